"""Runs of several threads in batches that overlap, on a device with two slots."""

import threading
import weakref
from collections.abc import Sequence

import numpy as np
import pytest
from blocked_call import BlockedCall
from freed_at_once import freed_at_once, lone_model
from waiting import until

from nnrt_device_service.access.counters import BatchCounter
from nnrt_device_service.runs.batches import Batches, Joined
from nnrt_device_service.runs.run import Run
from nnrt_device_service.scheduling.joinable import MOST_SHAPES, Bucket, Group, Member
from nnrt_device_service.scheduling.run_costs import RunCosts
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.batching import Batching
from nnrt_hdi.enums import DataType, Priority
from nnrt_hdi.tensor import Array, TensorSpec

HOLD = 1.0


class _Doubling(PreparedModel):
    """y = 2 x; a run with HOLD in it waits for `gate`."""

    def __init__(self) -> None:
        self.inputs = self.outputs = (TensorSpec(DataType.FLOAT32, (-1, 1)),)
        self.gate = threading.Event()

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        if (inputs[0] == HOLD).any():
            assert self.gate.wait(30)
        return [inputs[0] * 2]


class World:
    """A scheduler with two slots, and runs of one bucket for it."""

    def __init__(self, batching: Batching) -> None:
        self.prepared = _Doubling()
        self.scheduler = Scheduler(2, 100, 600.0)
        self.batches = Batches(self.scheduler, RunCosts(0, None), BatchCounter())
        self.bucket = Bucket(batching)
        self._session = Session(Settings(), "a client", freed_at_once())
        self._session.account = self.scheduler.account("somebody")

    def run(self, number: float, priority: Priority = Priority.NONE) -> Joined:
        run = Run(self._session, 0, Cancellation())
        run.model = LoadedModel(lone_model(self.prepared), freed_at_once(), lambda: None, priority)
        run.inputs = [np.full((1, 1), number, np.float32)]
        return Joined(run, self.bucket)

    def occupied(self, slots: int) -> list[Cancellation]:
        """Have others hold so many slots."""
        held = [Cancellation() for _ in range(slots)]
        for each in held:
            self.scheduler.acquire(self._session.account.flows[0], each)
        return held


def value(joined: Joined) -> float:
    """The only number of an outcome that is outputs."""
    outcome = joined.outcome
    assert isinstance(outcome, list)
    return float(outcome[0].item())


def test_some_of_a_threads_runs_are_computed_by_another_one() -> None:
    """It gets the others' outcomes first, and waits for that of the one that was taken along."""
    world = World(Batching(max_size=2))
    one, other = world.occupied(2)
    mine = [world.run(HOLD, Priority.MEDIUM), world.run(3.0, Priority.LOW)]
    first = BlockedCall(lambda: world.batches.settle(mine))
    until(lambda: world.scheduler.queued == 2)
    urgent = world.run(5.0, Priority.HIGH)
    second = BlockedCall(lambda: world.batches.settle([urgent]))
    until(lambda: world.scheduler.queued == 3)
    world.scheduler.release(one)  # The urgent one takes along the one that is held.
    until(lambda: mine[0] not in world.bucket.waiting)
    world.scheduler.release(other)
    until(lambda: mine[1].is_settled)
    first.require_blocked()
    world.prepared.gate.set()
    first.wait(), second.wait()
    assert [value(run) for run in (*mine, urgent)] == [2 * HOLD, 6.0, 10.0]
    assert (world.scheduler.running, world.scheduler.queued) == (0, 0)


def test_runs_whose_time_is_over_never_begin() -> None:
    world = World(Batching(max_size=4))
    runs = [world.run(2.0), world.run(3.0)]
    runs[0].cancellation.cancel()
    world.batches.settle(runs)
    assert str(runs[0].outcome) == "the run was cancelled"
    assert value(runs[1]) == 6.0
    assert (world.scheduler.running, world.scheduler.queued) == (0, 0)


def test_who_completes_a_batch_ends_the_wait_for_others() -> None:
    """With a delay that outlives the test."""
    world = World(Batching(max_size=2, max_delay_us=1_000_000))
    first, second = world.run(2.0), world.run(3.0)
    waiting = BlockedCall(lambda: world.batches.settle([first]))
    until(lambda: world.bucket.gathering)
    world.batches.settle([second])
    waiting.wait()
    assert (value(first), value(second)) == (4.0, 6.0)
    assert first.began_ns == second.began_ns


def test_who_fails_to_compute_those_of_others_leaves_them_to_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as where there is no memory left."""
    world = World(Batching(max_size=2, max_delay_us=1_000_000))
    first, second = world.run(2.0), world.run(3.0)
    waiting = BlockedCall(lambda: world.batches.settle([first]))
    until(lambda: world.bucket.gathering)

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(world.scheduler, "acquire_together", fail)
    with pytest.raises(MemoryError):
        world.batches.settle([second])
    waiting.wait()
    assert (first.outcome, second.outcome) == (None, None)


def test_who_finds_no_company_goes_alone() -> None:
    world = World(Batching(max_size=2, max_delay_us=1000))
    run = world.run(2.0)
    world.batches.settle([run])
    assert value(run) == 4.0
    assert not world.bucket.gathering


def test_time_is_shared_by_rows() -> None:
    """Of the account of each, to the nanosecond."""
    world = World(Batching(max_size=4))
    slot = Cancellation()
    runs = [world.run(2.0), world.run(3.0), world.run(4.0)]
    world.scheduler.acquire_together(runs, slot)
    world.scheduler.release(slot, 1000)
    assert runs[0].flow.tally.busy_ns == 1000


def shapes(number: int) -> list[tuple[int, ...]]:
    return [(1, number)]


def test_shapes_of_one_session_leave_others_theirs() -> None:
    """Whoever has runs with very many shapes is joined with those who have runs of the same."""
    group = Group(Batching(max_size=16))
    one, other = Member(group), Member(group)
    known = [one.find_bucket(shapes(number)) for number in range(MOST_SHAPES)]
    assert None not in known
    assert one.find_bucket(shapes(MOST_SHAPES)) is None
    theirs = other.find_bucket(shapes(MOST_SHAPES))
    assert theirs is not None
    assert one.find_bucket(shapes(MOST_SHAPES)) is theirs
    assert other.find_bucket(shapes(0)) is known[0]


def test_runs_on_behalf_of_others() -> None:
    """They are joined with those of the same identity, or with all where batches may span identities."""
    for is_for_all in (False, True):
        member = Member(Group(Batching(max_size=16), is_for_all=is_for_all))
        adas, bobs, own = (member.find_bucket(shapes(0), served) for served in ("ada", "bob", ""))
        assert member.find_bucket(shapes(0), "ada") is adas
        assert (adas is bobs is own) == is_for_all
        assert is_for_all or len({adas, bobs, own}) == 3


def test_shapes_are_forgotten_with_the_sessions_that_had_them() -> None:
    group = Group(Batching(max_size=16))
    bucket = weakref.ref(Member(group).find_bucket(shapes(0)))
    assert bucket() is None
