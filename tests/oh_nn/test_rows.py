"""Every row of the specification, against real daemons; and that none is missing."""

from typing import Any

import pytest

from oh_nn import cases_compilation, cases_descriptions, cases_execution  # noqa: F401  (they fill CASES)
from oh_nn.calls import CALLS
from oh_nn.case import CASES, Case
from oh_nn.cases_death import AFTER_DEATH, ROW_IDS, bury, killed_while_running
from oh_nn.spec import NULL, ROWS, VOID
from oh_nn.world import World

RETURNS = {call.function.__name__: call.returns for call in CALLS}


def check(row_id: str, answer: Any) -> None:
    row = ROWS[row_id]
    returns = RETURNS[row.function]
    if row.expected in (NULL, VOID):
        assert returns == {NULL: "pointer", VOID: "nothing"}[row.expected]
        assert answer is None, row
    elif returns == "value":
        assert answer[0] is row.expected, row
    else:
        assert answer is row.expected, row


def case_id(case: Case) -> str:
    return f"{case.row_id} {case.function}: {ROWS[case.row_id].condition}"


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_row(case: Case, world: World) -> None:
    check(case.row_id, case.body(world))


@pytest.mark.slow
def test_rows_after_a_death(world: World) -> None:
    deceased = bury(world)
    for row_id, body in AFTER_DEATH:
        check(row_id, body(deceased))


@pytest.mark.slow
def test_rows_while_a_daemon_is_killed(world: World) -> None:
    for row_id, answer in killed_while_running(world):
        check(row_id, answer)


def test_every_row_has_a_case() -> None:
    assert {case.row_id for case in CASES} | ROW_IDS == set(ROWS)


def test_every_row_is_of_a_function() -> None:
    assert {row.function for row in ROWS.values()} <= set(RETURNS)
