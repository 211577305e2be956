"""`nnrt` as a process: its exit codes, what it does on Ctrl-C, and what it shows on a terminal."""

import json
import os
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model, identity_model, weighted_model

from cli.command import NOBODY, on_terminal, process, saved

_DEADLINE_S = 60


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "exit_code"), [(["--version"], 0), (["devices", NOBODY], 1), (["devices", "-x"], 2)]
)
def test_exit_codes(arguments: list[str], exit_code: int) -> None:
    with process(*arguments) as command:
        command.communicate(timeout=_DEADLINE_S)
    assert command.returncode == exit_code


@pytest.mark.parametrize("name", ["run", "bench"])
def test_interrupted(start_daemon: StartDaemon, tmp_path: Path, name: str) -> None:
    """In the middle of a run: the exit code of a shell's, no traceback, no file; and the daemon is asked no more."""
    daemon = start_daemon("--backend", "slow")
    path = saved(identity_model(elements=4), tmp_path / "identity")
    np.save(tmp_path / "x.npy", np.ones(4, np.float32))
    output = tmp_path / "output"
    to_file = ("-o", output) if name == "run" else ("--csv", output)
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as stderr,
        process(
            name, path, "--device", daemon.address, "--input", tmp_path / "x.npy", *to_file, stderr=stderr
        ) as command,
    ):
        deadline = time.monotonic() + _DEADLINE_S
        while "run started" not in daemon.log():
            assert command.poll() is None
            assert time.monotonic() < deadline
        command.send_signal(signal.SIGINT)
        printed, _ = command.communicate(timeout=_DEADLINE_S)
    assert command.returncode == 130
    assert printed == b""
    assert errors.read_text() == "interrupted\n"
    assert not output.exists()
    while "model closed" not in daemon.log():
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_a_bar_on_a_terminal(restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    """While the JSON stays alone on the standard output."""
    path = saved(weighted_model(100_000), tmp_path / "model")
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    terminal, end = os.openpty()
    with (
        os.fdopen(terminal, "rb", buffering=0) as reader,
        process(
            "run", path, "--device", restoring_daemon.address, "--input", tmp_path / "x.npy", "--json", stderr=end
        ) as command,
    ):
        os.close(end)
        shown = b""
        try:
            while part := reader.read(1 << 16):
                shown += part
        except OSError:  # How a terminal ends whose other end is closed.
            pass
        printed, _ = command.communicate(timeout=_DEADLINE_S)
    assert command.returncode == 0
    assert json.loads(printed)["model"] == "compiled"
    assert "compiling" in shown.decode()
    assert "100%" in shown.decode()


def shown_table(lines: list[str]) -> list[list[str]]:
    """The cells of the lines of tables, which begin with two spaces."""
    return [re.split(r" {2,}", line.strip()) for line in lines if line.startswith("  ") and line.strip()]


@pytest.mark.slow
def test_tables_fit_a_terminal(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """With 80 columns no cell of bench's tables is broken, also not where a percentile is asked for."""
    path = saved(identity_model(elements=4), tmp_path / "identity")
    lines = on_terminal(
        *("bench", path, "--device", shared_daemon.address, "--concurrency", "100", "--percentile", "97.5"),
        *("--window", "0.02", "--max-windows", "3"),
    )
    tables = shown_table(lines)
    assert tables[0] == ["in flight", "runs/s", "mean", "p50", "p90", "p97.5", "p99", "stable"]
    assert [len(row) for row in tables if row[0] == "100"] == [8, 4, 4]
    assert ["in flight", "runs", "ms", "largest parts"] in tables
    assert max(len(line) for line in lines if line.startswith("  ")) <= 80


@pytest.mark.slow
def test_devices_on_a_narrow_terminal(shared_daemon: DaemonProcess) -> None:
    """A line for each of what is known: names and addresses stay in one piece."""
    lines = dict(re.split(r" {2,}", line.strip()) for line in on_terminal("devices", shared_daemon.address) if line)
    assert lines["name"] == "reference_nnrt_v2_1"
    assert lines["address"] == shared_daemon.address
    assert lines["status"] == "AVAILABLE"


@pytest.mark.slow
def test_nobody_reads(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """No traceback into a pipe that is closed."""
    path = saved(convolution_model(), tmp_path / "model")
    read, write = os.pipe()
    os.close(read)
    errors = tmp_path / "errors"
    with errors.open("wb") as stderr:
        command = process("inspect", path, "--json", stdout=write, stderr=stderr)
        os.close(write)
        command.wait(_DEADLINE_S)
    assert errors.read_text() == ""
