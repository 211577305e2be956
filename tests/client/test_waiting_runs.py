"""The order in which runs leave the client."""

from dataclasses import dataclass

from nnrt_client import Priority
from nnrt_client.run.waiting_runs import AGEING_S, WaitingRuns


@dataclass(frozen=True)
class Run:
    priority: Priority
    number: int = 0
    on_behalf_of: str | None = None


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_priorities_then_order_of_coming() -> None:
    """NONE is no preference, which is MEDIUM."""
    waiting = WaitingRuns[Run](Clock())
    runs = [Run(priority, number) for number in range(2) for priority in Priority]
    for run in runs:
        waiting.append(run)
    none, low, medium, high = (0, 4), (1, 5), (2, 6), (3, 7)
    assert none[0] < medium[0]
    order = (*high, none[0], medium[0], none[1], medium[1], *low)
    assert [waiting.take() for _ in runs] == [runs[index] for index in order]
    assert not waiting


def test_identities_take_turns() -> None:
    """Within a priority, and each with its runs in the order in which they came."""
    waiting = WaitingRuns[Run](Clock())
    many = [Run(Priority.NONE, number, "many") for number in range(4)]
    few = [Run(Priority.NONE, number, "few") for number in range(2)]
    for run in (*many, *few):
        waiting.append(run)
    waiting.remove(many[1])
    waiting.remove(many[1])
    assert list(waiting) == [many[0], many[2], many[3], *few]
    assert [waiting.take() for _ in range(5)] == [many[0], few[0], many[2], few[1], many[3]]
    assert not waiting


def test_low_priority_has_a_turn_in_a_flood_of_high() -> None:
    clock = Clock()
    waiting = WaitingRuns[Run](clock)
    waiting.append(Run(Priority.LOW))
    waiting.append(Run(Priority.LOW, 1))
    taken = []
    for _ in range(80):
        waiting.append(Run(Priority.HIGH))
        taken.append(waiting.take())
        clock.now += AGEING_S / 10
    turns = [number for number, run in enumerate(taken) if run.priority is Priority.LOW]
    assert len(turns) == 2
    assert 20 <= turns[0] <= 31
    assert 20 <= turns[1] - turns[0] <= 31


def test_a_run_given_up() -> None:
    waiting = WaitingRuns[Run](Clock())
    first, second = Run(Priority.LOW), Run(Priority.LOW, 1)
    waiting.append(first)
    waiting.append(second)
    waiting.remove(first)
    waiting.remove(first)
    assert list(waiting) == [second]
    assert list(waiting.drain()) == [second]
    assert not waiting
