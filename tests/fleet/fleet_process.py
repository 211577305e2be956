"""A supervisor as a process of its own, as an operator starts it."""

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
from waiting import until

from nnrt_device_service.fleet.control import ask
from nnrt_device_service.fleet.process import Process
from nnrt_device_service.fleet.shown import unsupervised_rows
from nnrt_device_service.fleet.state_directory import StateDirectory

_TESTS = Path(__file__).parent.parent
# Where daemons find the backends of tests.
PLUGINS = f"{_TESTS / 'plugins'}:{_TESTS}"
_EXIT_S = 60.0


def nnrt_device(*arguments: str | Path, through: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """The outcome of a command, in a process of its own. `through` is a command that ends by executing this one."""
    command = [*through, sys.executable, "-m", "nnrt_device_service", *arguments]
    return warm.run(command, capture_output=True, text=True, timeout=_EXIT_S, env=_environment())


class FleetProcess:
    """`nnrt-device up`."""

    def __init__(self, state: Path, *arguments: str | Path, to_be_ready: bool = True) -> None:
        self.state = state
        self._log = (state.parent / "supervisor.log").open("w+b")
        self.process = warm.Popen(
            [sys.executable, "-m", "nnrt_device_service", "up", "--state-dir", state, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=_environment(),
        )
        self.said = ""
        if to_be_ready:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait for the line that says it."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line
            if line.startswith("ready: "):
                return
        raise RuntimeError(f"the supervisor did not get on: {self.log()}")

    def log(self) -> str:
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(_EXIT_S)

    def kill(self) -> None:
        """End it at once, and no daemon. Idempotent."""
        self.process.kill()
        self.process.wait(_EXIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()


def ps(state: Path) -> dict[str, dict[str, Any]]:
    """How the devices are, by their names, as `nnrt-device ps` says it."""
    directory = StateDirectory(state)
    devices = ask(directory.control, {"do": "ps"}, print)
    return {device["name"]: device for device in (unsupervised_rows(directory) if devices is None else devices)}


def wait_for(directory: Path, name: str, /, **wanted: object) -> dict[str, Any]:
    """Wait until `ps` says this of a device; all that it says then."""

    def look() -> dict[str, Any]:
        device = ps(directory).get(name, {})
        return device if all(device.get(key) == value for key, value in wanted.items()) else {}

    return until(look, lambda: ps(directory))


def kill_daemons(state: Path) -> None:
    """End what a test leaves, by what identifies it."""
    for record in StateDirectory(state).records().values():
        process = Process.find(record.process) if record.process else None
        if process is not None:
            process.send(signal.SIGKILL)
            until(lambda process=process: process.is_over)  # type: ignore[misc]
            process.close()


def kill_one(state: Path, chance: random.Random) -> None:
    """`kill -9` one of the daemons that are ready, but not the last of them."""

    def several_ready() -> list[int]:
        ready = [device["pid"] for device in ps(state).values() if device["state"] == "ready"]
        return ready if len(ready) > 1 else []

    os.kill(chance.choice(until(several_ready, lambda: ps(state))), signal.SIGKILL)


def fleet_file(path: Path, *names: str, **defaults: object) -> Path:
    """Write a file with some devices of the same kind."""
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


def lives(pid: int) -> bool:
    """Whether there is such a process that has not ended, whoever is to ask how it did."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
