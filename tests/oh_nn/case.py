"""Cases of the specification's rows: what to call under the id of a row, and what the call needs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from oh_nn.spec import ROWS
from oh_nn.world import World

# Creates the objects that the call needs, makes the call, and returns its result.
Body = Callable[[World], Any]


class Case(NamedTuple):
    """One way to meet the condition of a row."""

    row_id: str
    body: Body

    @property
    def function(self) -> str:
        """Name of the row's C function."""
        return ROWS[self.row_id].function


# All cases; the modules oh_nn.cases_* register them.
CASES: list[Case] = []


def cases(row_id: str, *bodies: Body) -> None:
    """Register calls that meet the condition of a row."""
    CASES.extend(Case(row_id, body) for body in bodies)


def case(row_id: str) -> Callable[[Body], Body]:
    """Register a case that needs preparation, or checks the effects of its call."""

    def declare(body: Body) -> Body:
        CASES.append(Case(row_id, body))
        return body

    return declare
