"""A process of ours whose standard error is kept."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import warm


class LoggedProcess:
    """Process that writes what it has to tell to standard output, and its log to standard error."""

    # What errors call it.
    what = "the process"
    # Seconds that it may take to end.
    exit_s = 30.0

    def __init__(self, command: Sequence[str | Path], env: dict[str, str], log: BinaryIO | None = None) -> None:
        """Start it. `log` is the file for its standard error, without which it is a temporary one."""
        self._log = log or tempfile.TemporaryFile()  # noqa: SIM115  # `kill` closes it.
        self._written = ""
        self.process = warm.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True, env=env)

    @property
    def pid(self) -> int:
        return self.process.pid

    def listening(self) -> list[str]:
        """Wait until it says that it listens, and return its addresses."""
        assert self.process.stdout is not None
        # It writes this line when it is ready. If it dies before, the pipe ends: no timeout is needed.
        ready = self.process.stdout.readline().split()
        if ready[:2] != ["listening", "on"]:
            self.kill()
            raise RuntimeError(f"{self.what} did not start: {self.log()}")
        return ready[2:]

    def log(self) -> str:
        """Return what it has written to its standard error so far."""
        if not self._log.closed:
            # pread leaves the file position, which is shared with the process, unchanged.
            self._written = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode()
        return self._written

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Wait until it ends, and return its exit code."""
        return self.process.wait(self.exit_s)

    def kill(self) -> None:
        """Kill it, but no processes that it has started. Idempotent."""
        self.process.kill()
        self.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log()
        self._log.close()
