"""The flight recorder: its parts add up to what the caller of a run waited."""

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from daemon_process import DaemonProcess
from networks import identity_model

from nnrt_client import Compilation, Executor, Runtime, RunTimes, Settings
from nnrt_client.run.stamps import Stamps

RUNS = 21
SMALL, LARGE = np.ones(256, np.float32), np.ones(3 << 20, np.float32)


def executor_on(closing: ExitStack, address: str, settings: Settings) -> Executor:
    runtime = closing.enter_context(Runtime([address], settings))
    compilation = closing.enter_context(Compilation(identity_model(), runtime.device()))
    compilation.build()
    return closing.enter_context(Executor(compilation))


def require_whole(run: Callable[[], Any]) -> list[RunTimes]:
    """Run often, and compare what each run tells with the caller's own clock: never more, and all but 5 % of it. (The
    median, for this thread may be taken off its processor between its look at the clock and the run's.)"""
    run()
    shares, found = [], []
    for _ in range(RUNS):
        began_ns = time.perf_counter_ns()
        result = run()
        waited_ns = time.perf_counter_ns() - began_ns
        times = result.times
        assert times is not None
        assert min(times) >= 0
        assert times.total_ns <= waited_ns
        assert began_ns <= result.began_ns <= began_ns + waited_ns - times.total_ns
        shares.append(times.total_ns / waited_ns)
        found.append(times)
    assert statistics.median(shares) >= 0.95
    return found


@pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])
@pytest.mark.parametrize("given", [SMALL, LARGE], ids=["1 KB", "12 MB"])
def test_the_parts_of_a_run_add_up(
    share_memory: bool, given: np.ndarray[Any, Any], shared_daemon: DaemonProcess
) -> None:
    with ExitStack() as closing:
        executor = executor_on(closing, shared_daemon.address, Settings(share_memory=share_memory))
        for times in require_whole(lambda: executor.run_sync([given])):
            assert min(times.packed_ns, times.handled_ns, times.copied_in_ns, times.computed_ns, times.unpacked_ns) > 0


def test_the_parts_of_a_daemon_that_tells_more_than_can_be() -> None:
    """It is cut, from the end on, so that the sum is the client's."""
    times = stamps(told=(0, 10, 20, 30, 40, 5)).times()
    assert times == RunTimes(100, 100, 47, 0, 5, 0, 0, 0, 48, 100, 0)
    assert stamps(told=(0, 50, 20, 60, 40, 1 << 60)).times() == RunTimes(100, 100, 0, 0, 50, 20, 30, 0, 0, 100, 0)


def test_the_parts_of_a_daemon_that_tells_less() -> None:
    """What is unknown is the wire's."""
    assert stamps(told=(0, 10, 20, 30, 0, 0)).times() == RunTimes(100, 100, 20, 0, 10, 20, 30, 0, 20, 100, 0)
    assert stamps(told=(0, 0, 0, 0, 0, 0)).times() == RunTimes(100, 100, 50, 0, 0, 0, 0, 0, 50, 100, 0)


def stamps(told: tuple[int, ...]) -> Stamps:
    """Those of a run of 400 ns, of which 100 passed between request and reply."""
    made = Stamps()
    made.began_ns, made.packing_ns, made.sent_ns, made.answered_ns, made.unpacked_ns = 0, 100, 200, 300, 400
    made.told = told
    return made


def test_which_part_made_a_run_slow() -> None:
    times = RunTimes(*range(11))
    assert (times.slowest, times.total_ns) == ("woken", 55)
    assert times.shares()["queued"] == 4 / 55
    assert sum(RunTimes(*[0] * 11).shares().values()) == 0
