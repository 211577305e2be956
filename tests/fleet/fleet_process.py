"""A supervisor as a process, started like an operator starts it."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import warm
from logged_process import LoggedProcess
from waiting import until

from nnrt_device_service.fleet.control import ask
from nnrt_device_service.fleet.process import Process
from nnrt_device_service.fleet.shown import unsupervised_rows
from nnrt_device_service.fleet.state_directory import StateDirectory

_TESTS = Path(__file__).parent.parent
# PYTHONPATH with which daemons find the tests' backends.
PLUGINS = f"{_TESTS / 'plugins'}:{_TESTS}"
_EXIT_S = 60.0


def nnrt_device(*arguments: str | Path, through: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """Run `nnrt-device` as a process, and return its outcome.

    `through` is a command that executes the command that follows it.
    """
    command = [*through, sys.executable, "-m", "nnrt_device_service", *arguments]
    return warm.run(command, capture_output=True, text=True, timeout=_EXIT_S, env=_environment())


class FleetProcess(LoggedProcess):
    """Process of `nnrt-device up`."""

    exit_s = _EXIT_S

    def __init__(self, state: Path, *arguments: str | Path, to_be_ready: bool = True) -> None:
        self.state = state
        command = [sys.executable, "-m", "nnrt_device_service", "up", "--state-dir", state, *arguments]
        super().__init__(command, _environment(), (state.parent / "supervisor.log").open("w+b"))
        self.said = ""
        if to_be_ready:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until the supervisor prints that it is ready."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if line.startswith("ready: "):
                return
        raise RuntimeError(f"the supervisor did not get on: {self.log()}")


def ps(state: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of `nnrt-device ps` by device name."""
    directory = StateDirectory(state)
    devices = ask(directory.control, {"do": "ps"}, print)
    return {device["name"]: device for device in (unsupervised_rows(directory) if devices is None else devices)}


def wait_for(directory: Path, name: str, /, **wanted: object) -> dict[str, Any]:
    """Wait until `ps` shows these values for a device, and return its row."""

    def look() -> dict[str, Any]:
        device = ps(directory).get(name, {})
        return device if all(device.get(key) == value for key, value in wanted.items()) else {}

    return until(look, lambda: ps(directory))


def kill_daemons(state: Path) -> None:
    """Kill the daemons that a test has left, identified by their records in the state directory."""
    for record in StateDirectory(state).records().values():
        process = Process.find(record.process) if record.process else None
        if process is not None:
            process.send(signal.SIGKILL)
            until(lambda process=process: process.is_over)  # type: ignore[misc]
            process.close()


def kill_one(state: Path, chance: random.Random) -> None:
    """Kill a random ready daemon with SIGKILL, but never the last one."""

    def several_ready() -> list[int]:
        ready = [device["pid"] for device in ps(state).values() if device["state"] == "ready"]
        return ready if len(ready) > 1 else []

    os.kill(chance.choice(until(several_ready, lambda: ps(state))), signal.SIGKILL)


def fleet_file(path: Path, *names: str, **defaults: object) -> Path:
    """Write a fleet file with devices of the same kind, and return its path."""
    lines = [
        f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in {"backend": "reference", **defaults}.items()
    ]
    path.write_text("\n".join(["[defaults]", *lines, *(f"[device.{name}]" for name in names), ""]))
    return path


def _environment() -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("NNRT_", "NOTIFY_"))}
    return {**variables, "PYTHONPATH": PLUGINS}


def pids(state: Path) -> dict[str, int]:
    return {name: device["pid"] for name, device in ps(state).items()}


def is_running(pid: int) -> bool:
    """Return whether the process exists and isn't a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
