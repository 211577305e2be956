"""How the tests of the rows are written down: under the id of a row, what to call and what that needs."""

from collections.abc import Callable
from typing import Any, NamedTuple

from oh_nn.world import World

# Makes what it needs in the world, makes the call, and gives its answer.
Body = Callable[[World], Any]


class Case(NamedTuple):
    """One way to meet the condition of a row."""

    row_id: str
    body: Body


# All of them, filled by the modules oh_nn.cases_*.
CASES: list[Case] = []


def cases(row_id: str, *bodies: Body) -> None:
    """These calls meet the condition of this row."""
    CASES.extend(Case(row_id, body) for body in bodies)


def case(row_id: str) -> Callable[[Body], Body]:
    """The same for one call that takes some arranging, or whose effects are looked at."""

    def declare(body: Body) -> Body:
        CASES.append(Case(row_id, body))
        return body

    return declare
