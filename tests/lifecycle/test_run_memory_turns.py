"""Runs that wait for the memory of others: without a slot, and in the turns of identities."""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from part import examples
from waiting import until

from nnrt_device_service.scheduling.run_watch import CompileWatch, RunWatch
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import OperationFailed, OutOfMemory, TimedOut

DEADLINE_S = 20.0
MEMORY = 100


class Runs:
    """Runs of a device, each in a thread of its own until it is told to end."""

    def __init__(
        self, slots: int, pool: ThreadPoolExecutor, queued_runs: int = 1000, identity_runs: int = 1000
    ) -> None:
        self.scheduler = Scheduler(slots, queued_runs, 1.0, identity_runs=identity_runs, run_bytes=MEMORY)
        self.started: list[str] = []
        self._pool = pool

    def start(
        self,
        name: str,
        size_bytes: int = 0,
        identity: str = "",
        cancellation: Cancellation | None = None,
        is_long: bool = False,
    ) -> "Run":
        """Of that identity, or one of its own."""
        run = Run(name, cancellation or Cancellation())
        account = self.scheduler.account(identity or name)

        def work() -> None:
            self.scheduler.acquire(account.flows[0], run.cancellation)
            try:
                if size_bytes or is_long:
                    self.scheduler.reserve(run.cancellation, size_bytes, is_long=is_long)
                self.started.append(name)
                assert run.go_on.wait(DEADLINE_S)
            finally:
                self.scheduler.release(run.cancellation)

        run.future = self._pool.submit(work)
        return run

    def running(self, name: str, size_bytes: int = 0, identity: str = "", is_long: bool = False) -> "Run":
        run = self.start(name, size_bytes, identity, is_long=is_long)
        until(lambda: name in self.started)
        return run

    def waiting(
        self,
        name: str,
        size_bytes: int = 0,
        identity: str = "",
        cancellation: Cancellation | None = None,
        is_long: bool = False,
    ) -> "Run":
        before = self.scheduler.queued
        run = self.start(name, size_bytes, identity, cancellation, is_long)
        until(lambda: self.scheduler.queued == before + 1)
        return run

    def await_start(self, name: str) -> None:
        until(lambda: name in self.started, lambda: self.started)


class Run:
    """One of them."""

    future: "Future[None]"

    def __init__(self, name: str, cancellation: Cancellation) -> None:
        self.name = name
        self.cancellation = cancellation
        self.go_on = threading.Event()

    def end(self) -> None:
        self.go_on.set()
        self.future.result(DEADLINE_S)


@contextmanager
def device(slots: int = 2, **limits: int) -> Iterator[Runs]:
    """All runs have ended, and left nothing behind, when the block ends."""
    with ThreadPoolExecutor(20) as pool:
        runs = Runs(slots, pool, **limits)
        yield runs
    assert (runs.scheduler.running, runs.scheduler.queued, runs.scheduler.has_free_slot) == (0, 0, True)
    assert runs.scheduler.memory.has_left(MEMORY)


def test_long_runs_leave_a_slot_to_short_ones() -> None:
    """Also to those that need memory, for which no long run waits."""
    with device() as runs:
        first = runs.running("long", is_long=True)
        second = runs.waiting("another long", 10, is_long=True)
        for size_bytes in (0, MEMORY):
            runs.running(f"short {size_bytes}", size_bytes).end()
        assert "another long" not in runs.started
        first.end()
        runs.await_start("another long")
        second.end()


def test_who_waits_for_memory_holds_no_slot() -> None:
    """Others have it, and the time counts for nothing."""
    with device() as runs:
        first = runs.running("first", 60)
        second = runs.waiting("second", 60)
        assert runs.scheduler.on_device() == [first.cancellation]
        assert second.cancellation.began_ns is None
        watch = RunWatch(max_run_s=0.001, stuck_s=0.001, compile_watch=CompileWatch(0.001, 0.001))
        assert watch.end_overdue([second.cancellation]) == ""
        for name in ("small", "another"):
            runs.running(name).end()
        assert "second" not in runs.started
        first.end()
        runs.await_start("second")
        second.end()


def test_smaller_runs_do_not_pass() -> None:
    with device(slots=3) as runs:
        first = runs.running("first", 60)
        large = runs.waiting("large", 80, "somebody")
        small = runs.waiting("small", 30, "somebody")
        first.end()
        runs.await_start("large")
        assert "small" not in runs.started
        large.end()
        runs.await_start("small")
        small.end()


def test_several_begin_when_a_large_one_ends() -> None:
    with device(slots=3) as runs:
        large = runs.running("large", MEMORY)
        waiting = [runs.waiting(f"small {number}", 30) for number in range(4)]
        large.end()
        until(lambda: len(runs.started) == 4)
        assert (runs.scheduler.running, runs.scheduler.queued) == (3, 1)
        for run in waiting:
            run.end()


def test_identities_take_turns() -> None:
    """A row of one identity's large runs keeps nobody else waiting for more than the run that is there."""
    with device() as runs:
        greedy = [runs.running("greedy 0", 60, "greedy")]
        greedy += [runs.waiting(f"greedy {number}", 60, "greedy") for number in range(1, 6)]
        honest = runs.waiting("honest", 60)
        greedy[0].end()
        runs.await_start("honest")
        assert runs.started == ["greedy 0", "honest"]
        honest.end()
        for run in greedy[1:]:
            run.end()


def test_who_waits_for_memory_keeps_nobody_from_a_slot() -> None:
    """Where both could begin, it is the one whose identity has spent less."""
    with device(slots=3) as runs:
        other = runs.running("other")
        greedy = [runs.running("greedy 0", MEMORY, "greedy")]
        greedy += [runs.waiting(f"greedy {number}", MEMORY, "greedy") for number in range(1, 3)]
        another = runs.running("another")
        honest = runs.waiting("honest")
        greedy[0].end()
        runs.await_start("honest")
        assert runs.started == ["other", "greedy 0", "another", "honest"]
        for run in (another, honest, other, *greedy):
            run.go_on.set()


def test_one_that_nobody_wants_any_more() -> None:
    """It leaves at once, and others find what it lacked; so does one whose time is over."""
    with device(slots=3) as runs:
        first = runs.running("first", 60)
        cancelled = runs.waiting("cancelled", 60, "somebody")
        small = runs.waiting("small", 30, "somebody")
        late = runs.start("late", 60, "somebody", Cancellation(time.monotonic() + 0.05))
        with pytest.raises(TimedOut):
            late.future.result(DEADLINE_S)
        cancelled.cancellation.cancel()
        with pytest.raises(OperationFailed):
            cancelled.future.result(DEADLINE_S)
        runs.await_start("small")
        for run in (first, small):
            run.end()


def test_more_than_there_is() -> None:
    with device() as runs, pytest.raises(OutOfMemory, match=r"--run-bytes\) is 100"):
        runs.start("too large", MEMORY + 1).future.result(DEADLINE_S)


def test_those_who_wait_for_memory_count_in_the_queue() -> None:
    """So that one identity does not fill it that way."""
    with device(slots=1, identity_runs=2) as runs:
        first = runs.running("first", 60)
        # There is one slot, which `first` has: they get it when it has ended, and one then waits for memory.
        waiting = [runs.waiting(f"greedy {number}", 60, "greedy") for number in range(2)]
        with pytest.raises(OutOfMemory, match="2 runs of this identity wait"):
            runs.start("greedy 2", 60, "greedy").future.result(DEADLINE_S)
        for run in (first, *waiting):
            run.go_on.set()


@given(
    st.lists(st.tuples(st.integers(0, MEMORY), st.sampled_from("abc"), st.booleans()), max_size=30), st.integers(1, 3)
)
@settings(max_examples=examples(30), deadline=None)
def test_nothing_is_left_behind(wanted: list[tuple[int, str, bool]], slots: int) -> None:
    """Whatever is asked for, and whoever gives up, never more than the memory is taken, and all of it comes back."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    with ExitStack() as after:
        after.callback(sys.setswitchinterval, interval_s)
        runs = after.enter_context(device(slots))
        started = [runs.start(str(number), size, identity) for number, (size, identity, _) in enumerate(wanted)]
        for run, (_, _, is_given_up) in zip(started, wanted, strict=True):
            if is_given_up:
                run.cancellation.cancel()
            run.go_on.set()
            assert runs.scheduler.memory.left_bytes >= 0
