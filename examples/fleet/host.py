"""Host whose daemons `nnrt-device up` keeps running, controlled by an operator's commands."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLEET_FILE = Path(__file__).resolve().parent / "fleet.toml"
_END_S = 30.0
_DEVICE_COMMAND = [sys.executable, "-m", "nnrt_device_service"]


class Host:
    """Daemons that the fleet file lists, under one `nnrt-device up`."""

    def __init__(self, folder: Path) -> None:
        self._environment = {**os.environ, "NNRT_FLEET_STATE_DIR": str(folder / "state")}

    def daemons(self) -> list[dict[str, Any]]:
        """Return what `nnrt-device ps` reports about each daemon."""
        devices: list[dict[str, Any]] = json.loads(self.command("ps", "--json"))["devices"]
        return devices

    @property
    def addresses(self) -> list[str]:
        """Addresses of the daemons, one address per daemon."""
        return [daemon["addresses"][0] for daemon in self.daemons()]

    def kill(self, name: str) -> int:
        """Kill a daemon with `kill -9`, and return its process id."""
        (process,) = (daemon["pid"] for daemon in self.daemons() if daemon["name"] == name)
        os.kill(process, signal.SIGKILL)
        return int(process)

    def command(self, *arguments: str) -> str:
        """Run a command of `nnrt-device`, and return what it prints."""
        command = [*_DEVICE_COMMAND, *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=self._environment).stdout


@contextmanager
def start_host(folder: Path, say: Callable[[str], object]) -> Iterator[Host]:
    """Start the daemons, with their sockets in a folder, and end them when the block ends, also by an exception.

    `say` gets the lines that `nnrt-device up` prints until all daemons are ready.
    """
    host = Host(folder)
    file = Path(shutil.copy(FLEET_FILE, folder))
    # A separate process session: Ctrl-C in the terminal reaches only the demo, which then ends the daemons.
    with subprocess.Popen(
        [*_DEVICE_COMMAND, "up", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env=host._environment,
    ) as supervisor:
        try:
            assert supervisor.stdout is not None
            for line in supervisor.stdout:
                say(line.rstrip())
                if line.startswith("ready: "):
                    break
            else:
                raise SystemExit("the daemons did not start")
            yield host
        finally:
            supervisor.terminate()
            try:
                supervisor.wait(_END_S)
            except subprocess.TimeoutExpired:
                supervisor.kill()
