"""Processes of a demonstration: daemons and servers that say where they listen."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Started:
    """Process that was started, and the addresses where it listens."""

    def __init__(self, process: "subprocess.Popen[str]", addresses: list[str]) -> None:
        self.process = process
        self.addresses = addresses

    @property
    def address(self) -> str:
        """The first address."""
        return self.addresses[0]


@contextmanager
def started(module: str, *arguments: str) -> Iterator[Started]:
    """Start a command, wait until it listens, and kill it when the block ends, also by an exception."""
    command = [sys.executable, "-m", module, *arguments]
    # A separate process session: Ctrl-C in the terminal reaches only the demo, which then ends the others.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            ready = process.stdout.readline().split()
            if ready[:2] != ["listening", "on"]:
                raise SystemExit(f"{' '.join(command)} did not start")
            yield Started(process, ready[2:])
        finally:
            process.kill()
