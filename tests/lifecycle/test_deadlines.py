"""Runs without a waiting thread are cancelled at their deadline."""

import threading
import time
from collections.abc import Iterator

import pytest

from nnrt_device_service.scheduling.deadlines import Deadlines
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import TimedOut

DEADLINE_S = 30.0


@pytest.fixture
def deadlines() -> Iterator[Deadlines]:
    deadlines = Deadlines()
    yield deadlines
    deadlines.close()


def run_for(seconds: float) -> tuple[Cancellation, threading.Event]:
    """Return a run with this timeout, and an event that its cancellation sets."""
    run, is_cancelled = Cancellation(time.monotonic() + seconds), threading.Event()
    run.on_cancel(is_cancelled.set)
    return run, is_cancelled


def test_runs_are_cancelled_whichever_comes_first(deadlines: Deadlines) -> None:
    runs = [run_for(seconds) for seconds in (600, 0.2, 0.1, 0.0, -1.0)]
    for run, _ in runs:
        deadlines.add(run)
    for run, is_cancelled in runs[1:]:
        assert is_cancelled.wait(DEADLINE_S)
        with pytest.raises(TimedOut):
            run.check()
    (late, is_cancelled), *_ = runs
    assert not is_cancelled.is_set()
    late.check()


def test_a_run_that_ended_in_time_is_left_alone(deadlines: Deadlines) -> None:
    ended, is_cancelled = run_for(0.1)
    deadlines.add(ended)
    deadlines.discard(ended)
    other, is_other_cancelled = run_for(0.2)
    deadlines.add(other)
    assert is_other_cancelled.wait(DEADLINE_S)
    assert not is_cancelled.is_set()


def test_runs_without_a_deadline_need_no_thread() -> None:
    deadlines, run = Deadlines(), Cancellation()
    before = threading.active_count()
    deadlines.add(run)
    deadlines.discard(run)
    assert threading.active_count() == before


def test_one_that_cannot_be_stopped_keeps_no_other(deadlines: Deadlines, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError("the driver is gone")

    bad, other = Cancellation(time.monotonic()), run_for(0.1)
    bad.on_cancel(fail)
    deadlines.add(bad)
    deadlines.add(other[0])
    assert other[1].wait(DEADLINE_S)
    assert "failed to stop a run" in caplog.text
