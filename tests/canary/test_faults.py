"""A device that goes wrong: its canary takes it out, nothing wrong is served after that, and it comes back."""

import os
import signal
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.command import json_output
from conftest import StartDaemon
from networks import identity_model
from observer import Observer
from waiting import until

from canary.faults import NOT_SERVING, SERVING, FaultyDaemon, canary_of, executor_on, until_back, until_out
from nnrt_client import Compilation, DeviceStatus, Runtime, Settings, UnavailableDevice
from nnrt_device_service.host.exit import ExitCode

ONE, MANY = np.ones(1, np.float32), np.arange(100, dtype=np.float32)


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A run with a single number ends when this is opened for writing and closed."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "count", "why"),
    [
        ("wrong", "wrong", r"its canary's answer is wrong: 1 of \d+ numbers, such as \S+ in place of \S+"),
        ("crash", "failed", r"its canary failed: the device failed to run the model \(RuntimeError\).*"),
        ("nonsense", "failed", r"its canary failed: the device 'injected' gave None for output 0.*"),
        ("stall", "late", r"its canary doesn't end, after [0-9.]+ s"),
        ("slow", "late", r"its canary takes [0-9.]+ ms, where [0-9.]+ are usual"),
    ],
    ids=["wrong", "crash", "nonsense", "stall", "slow"],
)
def test_a_fault_takes_the_device_out_until_it_is_gone(
    start_daemon: StartDaemon, tmp_path: Path, fault: str, count: str, why: str
) -> None:
    """Status, health and sessions say so; runs and compilations are refused, and go on in the same session later."""
    settings = ("--canary-late-ms", "50") if fault == "slow" else ()
    daemon = FaultyDaemon(start_daemon, tmp_path, *settings, options={"ms": 10 if fault == "slow" else 1})
    with Runtime([daemon.address]) as runtime, executor_on(runtime.device()) as executor:
        device = runtime.device()
        assert not canary_of(device).is_out
        np.testing.assert_array_equal(executor.run_sync([MANY]), [MANY])
        daemon.switch(fault)
        out = until_out(device)
        assert getattr(out, count) > 0
        assert device.status() is DeviceStatus.OFFLINE
        with pytest.raises(UnavailableDevice, match=f"the device is out: {why}; use another device"):
            executor.run_sync([MANY])
        with Compilation(identity_model(), device) as another, pytest.raises(UnavailableDevice, match="is out"):
            another.build()
        until(lambda: daemon.health() == NOT_SERVING)
        assert daemon.health("alive") == SERVING
        with pytest.raises(UnavailableDevice, match=rf"device at \S+: \w+ is out: {why}; since \d+ s"):
            runtime.device()
        with Observer(daemon.address) as observer:
            assert observer.state().out
        daemon.switch("")
        assert until_back(device).why == ""
        np.testing.assert_array_equal(executor.run_sync([MANY]), [MANY])
        until(lambda: daemon.health() == SERVING)
    assert "the device is back, after" in daemon.process.log()
    assert (count == "failed") == ("Traceback" in daemon.process.log()), "the log has the details of a failure alone"


@pytest.mark.parametrize("share_memory", [True, False], ids=["local socket", "gRPC"])
def test_a_run_under_way_gets_nothing_from_a_device_that_goes_out(
    start_daemon: StartDaemon, tmp_path: Path, gate: Path, share_memory: bool
) -> None:
    """Though the backend, which hears no cancellation, has outputs for it."""
    daemon = FaultyDaemon(start_daemon, tmp_path, "--concurrent-runs", "2", options={"gate": gate})
    settings = Settings(share_memory=share_memory)
    with Runtime([daemon.address], settings) as runtime, executor_on(runtime.device()) as executor:
        device, under_way = runtime.device(), executor.submit([ONE])
        until(lambda: "run started" in daemon.process.log())
        daemon.switch("wrong")
        until_out(device)
        assert not under_way.done()
        gate.write_bytes(b"")
        _require_refused(under_way)


def test_a_device_that_gives_its_canary_no_turn_is_out(start_daemon: StartDaemon, tmp_path: Path, gate: Path) -> None:
    """Runs that wait are told at once, the one that doesn't end when it does; then the canary has its turn."""
    daemon = FaultyDaemon(start_daemon, tmp_path, "--canary-turn-s", "0.3", options={"gate": gate})
    with Runtime([daemon.address]) as runtime, executor_on(runtime.device()) as executor:
        device, under_way = runtime.device(), executor.submit([ONE])
        until(lambda: "run started" in daemon.process.log())
        waiting = executor.submit([MANY])
        assert "no turn" in until_out(device).why
        _require_refused(waiting)
        assert not under_way.done()
        gate.write_bytes(b"")
        _require_refused(under_way)
        until_back(device)
        np.testing.assert_array_equal(executor.run_sync([MANY]), [MANY])
        (own,) = (one for one in device.counters().identities if one.identity.startswith("host"))
        assert (own.runs["refused"], own.errors["--canary"]) == (2, 2)


def test_a_device_that_is_wrong_from_the_beginning_begins_out(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = FaultyDaemon(start_daemon, tmp_path, fault="wrong")
    assert (daemon.health(), daemon.health("alive")) == (NOT_SERVING, SERVING)
    with Runtime([daemon.address]) as runtime:
        with pytest.raises(UnavailableDevice, match="its canary's answer is wrong"):
            runtime.device()
        daemon.switch("")
        until(runtime.find)
        with executor_on(runtime.device()) as executor:
            np.testing.assert_array_equal(executor.run_sync([MANY]), [MANY])


def _require_refused(run: "Future[Any]") -> None:
    with pytest.raises(UnavailableDevice, match="the device is out"):
        run.result(30)


def test_commands_say_that_a_device_is_out(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = FaultyDaemon(start_daemon, tmp_path)
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        (row,) = json_output("devices", daemon.address)
        assert (row["status"], row["canary"]["is_out"]) == ("AVAILABLE", False)
        daemon.switch("wrong")
        until_out(device)
        assert json_output("devices", daemon.address, exit_code=1) == []
        (top,) = json_output("top", "--once", daemon.address)["devices"]
        assert top["status"] == "OUT"
        assert "is out: its canary's answer is wrong" in top["why"]


def test_a_canary_that_does_not_end_ends_the_daemon(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """To be started again: the device is stuck."""
    daemon = FaultyDaemon(start_daemon, tmp_path, "--stuck-s", "0.5")
    daemon.switch("stall")
    assert daemon.process.wait() == ExitCode.STUCK


@pytest.mark.parametrize("fault", ["", "stall"])
def test_a_daemon_ends_in_order_whatever_its_canary_does(start_daemon: StartDaemon, tmp_path: Path, fault: str) -> None:
    daemon = FaultyDaemon(start_daemon, tmp_path)
    daemon.switch(fault)
    if fault:
        until(lambda: daemon.health() == NOT_SERVING)
    daemon.process.send(signal.SIGTERM)
    assert daemon.process.wait() == 0
    assert "Traceback" not in daemon.process.log()


def test_its_time_counts_for_an_identity_of_its_own(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = FaultyDaemon(start_daemon, tmp_path)
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        before = canary_of(device).runs
        until(lambda: canary_of(device).runs > before)
        (canary,) = (one for one in device.counters().identities if one.identity == "daemon canary")
        assert canary.run_s > 0
        assert device.state.sessions <= 1, "clients have sessions, the canary has none"
