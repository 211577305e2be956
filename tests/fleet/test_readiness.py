"""Messages of a daemon to its supervisor: systemd, or `nnrt-device up`."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm
from conftest import StartDaemon
from listener import Listener
from waiting import DEADLINE_S

from nnrt_device_service.host.readiness import sign_of_life_s

pytestmark = pytest.mark.slow


@pytest.fixture(params=["path", "abstract"])
def listener(request: pytest.FixtureRequest, state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    state.mkdir()
    name = f"@{state}/notify" if request.param == "abstract" else f"{state}/notify"
    listener = Listener(name.replace("@", "\0"))
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    yield listener
    listener.close()


def test_ready_and_stopping(listener: Listener, start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--name", "x", "--drain-timeout-s", "100")
    assert listener.next("READY") == {
        "READY": "1",
        "STATUS": f"serving x on {daemon.address}",
        "X_NNRT_ADDRESSES": daemon.address,
    }
    daemon.send(signal.SIGTERM)
    stopping = listener.next("STOPPING")
    assert stopping["STATUS"] == "draining"
    assert int(stopping["EXTEND_TIMEOUT_USEC"]) > 100e6
    assert daemon.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_as_soon_as_it_is_ready(listener: Listener, number: signal.Signals) -> None:
    """The daemon drains, although the signal arrives before it waits for signals."""
    command = [sys.executable, "-m", "nnrt_device_service", "serve"]
    daemon = warm.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    listener.next("READY")
    daemon.send_signal(number)
    assert daemon.wait(DEADLINE_S) == 0
    listener.next("STOPPING")


def test_why_it_does_not_start(listener: Listener, start_daemon: StartDaemon) -> None:
    with pytest.raises(RuntimeError, match="did not start"):
        start_daemon("--backend", "skipped")
    assert listener.next("STATUS") == {"STATUS": "backend 'skipped' can't work here: there is no such accelerator"}


def test_signs_of_life(listener: Listener, start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon sends them twice per watchdog interval, also while it drains, each with its addresses."""
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    daemon = start_daemon()
    began = time.monotonic()
    for _ in range(4):
        assert listener.next("WATCHDOG") == {"WATCHDOG": "1", "X_NNRT_ADDRESSES": daemon.address}
    assert time.monotonic() - began > 1.5


@pytest.mark.parametrize(
    ("usec", "pid", "expected"),
    [("3000000", None, 1.5), ("3000000", "own", 1.5), ("3000000", "1", None), ("0", None, None), ("soon", None, None)],
)
def test_who_is_watched(monkeypatch: pytest.MonkeyPatch, usec: str, pid: str | None, expected: float | None) -> None:
    """A daemon sends signs of life for its own watchdog only, not for its parent's."""
    monkeypatch.setenv("WATCHDOG_USEC", usec)
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    if pid is not None:
        monkeypatch.setenv("WATCHDOG_PID", pid.replace("own", str(os.getpid())))
    assert sign_of_life_s() == expected
