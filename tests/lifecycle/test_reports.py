"""Reports for bugs: what is in them, what is not, and that they are made where little else works."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import warm
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from waiting import DEADLINE_S, until

from nnrt_client import Compilation, Executor, Runtime
from nnrt_device_service.reports.archive import unpack
from nnrt_device_service.reports.hidden import visible_environment, visible_option

ONE = np.ones(1, np.float32)
_NOBODY = 65534


def asked(*arguments: str | Path | int, to_fail: bool = False) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nnrt_device_service", "report", *map(str, arguments)]
    done = warm.run(command, capture_output=True, text=True, timeout=2 * DEADLINE_S)
    assert bool(done.returncode) == to_fail, done.stderr
    return done


def only_report(directory: Path) -> dict[str, str]:
    """The parts of the one archive there."""
    (path,) = until(lambda: list(directory.glob("nnrt-report-*.tar.gz")))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(directory.iterdir()) == [path], "nothing unfinished is left"
    return unpack(path.read_bytes())


def started(closing: ExitStack, daemon: DaemonProcess, fault: bytes) -> None:
    """Start a run that does something wrong, and doesn't end soon."""
    runtime = closing.enter_context(Runtime([daemon.address]))
    compilation = closing.enter_context(Compilation(identity_model(), runtime.device()))
    compilation.add_extension_config("fault", fault)
    compilation.build()
    executor = closing.enter_context(Executor(compilation))
    closing.callback(daemon.kill)  # Before those end who would wait for it.
    executor.submit([ONE])


def test_a_signal_asks_for_one(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--report-dir", str(tmp_path), "--name", "rack 7/slot")
    with Runtime([daemon.address]) as runtime:
        runtime.device().status()
        daemon.send(signal.SIGUSR1)
        parts = only_report(tmp_path)
    until(lambda: "a report is at" in daemon.log())
    settings, told = json.loads(parts["settings.json"]), json.loads(parts["device.json"])
    assert (settings["name"], settings["listen"]) == ("rack 7/slot", ["127.0.0.1:0"])
    assert told["info"]["device_name"] == "rack 7/slot"
    assert told["state"]["sessions"] == 1
    (session,) = json.loads(parts["sessions.json"])
    assert session["identity"] == "host 127.0.0.1"
    assert json.loads(parts["counters.json"])["identities"][0]["identity"] == "host 127.0.0.1"
    assert json.loads(parts["versions.json"])["packages"]["numpy"]
    assert "serving rack 7/slot" in parts["log.txt"]
    assert "Thread MainThread" in parts["stacks.txt"]
    assert json.loads(parts["host.json"])["pid"] == daemon.pid
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0


@pytest.mark.parametrize(
    ("pair", "told"),
    [("provider=cuda", "provider=cuda"), ("api_key=abc", "api_key=***"), ("licenseToken=a=b", "licenseToken=***")],
)
def test_options_that_may_be_secrets(pair: str, told: str) -> None:
    assert visible_option(pair) == told


def test_variables_that_are_told() -> None:
    given = {"HOME": "/root", "NNRT_DEVICE_NAME": "x", "CUDA_VISIBLE_DEVICES": "0"}
    assert visible_environment(given) == {"CUDA_VISIBLE_DEVICES": "0", "NNRT_DEVICE_NAME": "***"}


def test_a_stuck_device(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack) -> None:
    """The report shows what is on the device, since when, and in which line."""
    daemon = start_daemon("--backend", "faulty")
    started(closing, daemon, b"stuck")
    until(lambda: _on_device(daemon, _folder(tmp_path / "seen")))
    said = asked(daemon.pid, "-o", _folder(tmp_path / "report")).stdout
    assert said.startswith(f"process {daemon.pid}: {tmp_path / 'report'}/nnrt-report-")
    parts = only_report(tmp_path / "report")
    (run,) = json.loads(parts["device.json"])["runs on the device"]
    assert run["on_device_s"] > 0
    assert "nnrt_faulty_backend.py" in parts["stacks.txt"]
    assert parts["host/status"].startswith("Name:")


def test_a_lock_that_nobody_gives_back(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack) -> None:
    """Parts that wait for it say so, also in the next report; the others are there."""
    daemon = start_daemon("--backend", "faulty")
    started(closing, daemon, b"holds the scheduler")
    for name in ("first", "second"):
        parts = until(partial(_hung, daemon, _folder(tmp_path / name)))
        assert parts is not None
        assert "it was not there after" in parts["counters.json"] or "since a report before" in parts["counters.json"]
        assert json.loads(parts["settings.json"])["backend"] == "faulty"
        assert "serving faulty" in parts["log.txt"]


def test_python_stands_still(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack) -> None:
    """The daemon writes down its stacks all the same, and the command the rest."""
    daemon = start_daemon("--backend", "faulty")
    started(closing, daemon, b"holds Python")
    parts = until(lambda: _unanswered(daemon, _folder(tmp_path / "report")))
    assert parts is not None
    assert "in _hold_python" in parts["stacks.txt"]
    assert "did not give one within 1 s" in parts["no-answer.txt"]
    assert parts["host/status"].startswith("Name:")


@pytest.mark.parametrize("way", ["signal", "command"])
def test_no_descriptor_is_left(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack, way: str) -> None:
    reports = _folder(tmp_path / "reports")
    daemon = DaemonProcess("--backend", "faulty", "--report-dir", str(reports), through=("prlimit", "--nofile=256:256"))
    closing.callback(daemon.kill)
    started(closing, daemon, b"takes all descriptors")
    until(lambda: daemon.descriptor_count() > 250, daemon.descriptor_count)
    if way == "signal":
        daemon.send(signal.SIGUSR1)
    else:
        asked(daemon.pid, "-o", reports)
    parts = only_report(reports)
    assert json.loads(parts["host.json"])["descriptor_limits"] == [256, 256]
    assert "Thread MainThread" in parts["stacks.txt"]


@pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's place, which root can")
def test_other_users_get_nothing(shared_daemon: DaemonProcess) -> None:
    beginning = f"@nnrt-report-{shared_daemon.pid}-"
    lines = Path("/proc/net/unix").read_text().splitlines()
    (name,) = (line.rpartition(" ")[2] for line in lines if beginning in line)
    for user, is_given in ((_NOBODY, False), (0, True)):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(DEADLINE_S)
            os.seteuid(user)
            try:
                connection.connect(name.replace("@", "\0", 1))
            finally:
                os.seteuid(0)
            assert bool(connection.recv(1)) == is_given


@pytest.mark.slow
def test_nothing_to_report_of(tmp_path: Path) -> None:
    state = _folder(tmp_path / "state")
    assert "no device is called 'a'; there are: none" in asked("a", "--state-dir", state, to_fail=True).stderr
    assert "there is no such process" in asked("999999999", to_fail=True).stderr
    assert "it is no daemon" in asked(str(os.getpid()), to_fail=True).stderr


@pytest.mark.slow
def test_a_directory_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"--report-dir: '.*' is no directory; make it first"):
        DaemonProcess("--report-dir", str(tmp_path / "none"))


def _folder(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    return path


def _told(daemon: DaemonProcess, into: Path, *arguments: str) -> dict[str, str]:
    for path in into.glob("*.tar.gz"):
        path.unlink()
    asked(daemon.pid, "-o", into, *arguments)
    return only_report(into)


def _unanswered(daemon: DaemonProcess, into: Path) -> dict[str, str] | None:
    """The report of a daemon that doesn't answer; None where it still does."""
    parts = _told(daemon, into, "--timeout-s", "1")
    return parts if "no-answer.txt" in parts else None


def _on_device(daemon: DaemonProcess, into: Path) -> Any:
    return json.loads(_told(daemon, into)["device.json"])["runs on the device"]


def _hung(daemon: DaemonProcess, into: Path) -> dict[str, str] | None:
    """The report of a daemon that hangs; None where it doesn't yet."""
    parts = _told(daemon, into)
    return None if parts["counters.json"].startswith("{") else parts
