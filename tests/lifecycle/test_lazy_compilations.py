"""Backends that compile within a run: the bound for compilations counts there, not that for runs."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model
from waiting import until

from nnrt_client import Compilation, Device, Executor, OperationFailed, Runtime, TimedOut, UnavailableDevice
from nnrt_device_service.host.exit import ExitCode
from nnrt_device_service.scheduling.run_watch import CompileWatch, RunWatch
from nnrt_hdi.backend import Cancellation

ONE = np.ones(1, np.float32)
DEADLINE_S = 30.0
# More than the bounds for runs in these tests, of which the watch looks often.
LONG_S = 1.5
SHORT = ("--max-run-s", "0.2", "--stuck-s", "0.2", "--heartbeat-timeout-s", "2")


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


@contextmanager
def lazy(address: str) -> Iterator[tuple[Device, Executor]]:
    with Runtime([address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield compilation.device, executor


def wait_until_it_has_taken_long(device: Device) -> None:
    """Until a run has been on the device for long."""

    def busy_s() -> float:
        load = device.counters().load
        assert load is not None
        return load.busy_s

    until(lambda: busy_s() > LONG_S)


@pytest.mark.slow
def test_a_run_that_compiles_is_not_stuck(start_daemon: StartDaemon, gate: Path) -> None:
    daemon = start_daemon("--backend", "lazy", "--option", f"gate={gate}", *SHORT)
    with lazy(daemon.address) as (device, executor):
        first = executor.submit([ONE])
        wait_until_it_has_taken_long(device)
        gate.write_bytes(b"")
        assert first.result(DEADLINE_S)[0] == ONE
        assert executor.run_sync([ONE])[0] == ONE


@pytest.mark.slow
def test_a_client_that_gives_up_such_a_run_ends_no_daemon(start_daemon: StartDaemon, gate: Path) -> None:
    """What has been compiled meanwhile is there for the next run."""
    daemon = start_daemon("--backend", "lazy", "--option", f"gate={gate}", *SHORT)
    with lazy(daemon.address) as (device, executor):
        given_up = executor.submit([ONE], timeout_ms=100)
        with pytest.raises(TimedOut):
            given_up.result(DEADLINE_S)
        wait_until_it_has_taken_long(device)
        gate.write_bytes(b"")
        assert executor.run_sync([ONE])[0] == ONE


@pytest.mark.slow
def test_a_run_that_compiles_for_too_long(start_daemon: StartDaemon, gate: Path) -> None:
    """It is told which bound it has passed."""
    flags = ("--max-run-s", "0.2", "--max-compile-s", "0.3", "--heartbeat-timeout-s", "2")
    daemon = start_daemon("--backend", "lazy", "--option", f"gate={gate}", *flags)
    with lazy(daemon.address) as (device, executor):
        first = executor.submit([ONE])
        wait_until_it_has_taken_long(device)
        gate.write_bytes(b"")
        with pytest.raises(TimedOut, match="raise --max-compile-s"):
            first.result(DEADLINE_S)
        assert executor.run_sync([ONE])[0] == ONE


def test_a_run_whose_compilation_does_not_end(start_daemon: StartDaemon, gate: Path) -> None:
    daemon = start_daemon("--backend", "lazy", "--option", f"gate={gate}", *SHORT, "--max-compile-s", "0.3")
    with lazy(daemon.address) as (_, executor):
        with pytest.raises(UnavailableDevice, match="a compilation is not over"):
            executor.submit([ONE]).result(DEADLINE_S)
        assert daemon.wait() == ExitCode.STUCK


def test_the_time_of_a_compilation_is_none_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, within and after it, on a clock of the test's own."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "perf_counter_ns", lambda: int(now * 1e9))
    watch = RunWatch(5.0, 2.0, CompileWatch(50.0, 2.0))
    run = Cancellation(deadline=104.0)
    run.began_ns = int(now * 1e9)
    now = 103.0
    with pytest.raises(OperationFailed, match="cancelled"), run.compiling():
        now = 140.0
        assert watch.end_overdue([run]) == ""
        assert not run.is_cancelled
        run.cancel()
        now = 150.0
        assert watch.end_overdue([run]) == ""
        now = 156.0
        assert "a compilation is not over 3.0 s after its time" in watch.end_overdue([run])
    assert watch.end_overdue([run]) == "", "it has its time to stop from now on"
    now = 158.5
    assert "is still on the device, for 5.5 s by now" in watch.end_overdue([run])


def test_a_run_has_its_whole_time_after_a_compilation(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter_ns", lambda: int(now * 1e9))
    watch = RunWatch(5.0, 2.0, CompileWatch(50.0, 2.0))
    run = Cancellation()
    run.began_ns = int(now * 1e9)
    with run.compiling():
        now = 140.0
    now = 144.0
    assert watch.end_overdue([run]) == ""
    assert not run.is_cancelled
    now = 146.0
    watch.end_overdue([run])
    with pytest.raises(TimedOut, match="raise --max-run-s"):
        run.check()
