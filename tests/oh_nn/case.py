"""Cases of the rows: under the id of a row, what to call and what that needs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from oh_nn.spec import ROWS
from oh_nn.world import World

# Makes what it needs in the world, makes the call, and gives its answer.
Body = Callable[[World], Any]


class Case(NamedTuple):
    """One way to meet the condition of a row."""

    row_id: str
    body: Body

    @property
    def function(self) -> str:
        """The name of the C function that the row is about."""
        return ROWS[self.row_id].function


# All of them, filled by the modules oh_nn.cases_*.
CASES: list[Case] = []


def cases(row_id: str, *bodies: Body) -> None:
    """These calls meet the condition of this row."""
    CASES.extend(Case(row_id, body) for body in bodies)


def case(row_id: str) -> Callable[[Body], Body]:
    """Declare a case of one call that takes some arranging, or whose effects are looked at."""

    def declare(body: Body) -> Body:
        CASES.append(Case(row_id, body))
        return body

    return declare
