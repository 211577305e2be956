"""A daemon as a process, started like an operator starts it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import warm

# Backends and other plug-ins of tests.
PLUGINS = Path(__file__).parent / "plugins"
_EXIT_S = 30.0


class DaemonProcess:
    """Process of `nnrt-device serve` on free addresses, ready when the constructor returns."""

    def __init__(self, *arguments: str, listen: str = "127.0.0.1:0", through: Sequence[str] = ()) -> None:
        """Start the daemon; `through` is a command that executes the command that follows it."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # `kill` closes it.
        self._written = ""
        self.process = warm.Popen(
            [*through, sys.executable, "-m", "nnrt_device_service", "serve", "--listen", listen, *arguments],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": f"{PLUGINS}:{PLUGINS.parent}"},
        )
        assert self.process.stdout is not None
        # The daemon writes this line when it is ready. If it dies before, the pipe ends: no timeout is needed.
        ready = self.process.stdout.readline().split()
        if ready[:2] != ["listening", "on"]:
            self.kill()
            raise RuntimeError(f"the daemon did not start: {self.log()}")
        self.addresses = ready[2:]

    @property
    def address(self) -> str:
        return self.addresses[0]

    @property
    def pid(self) -> int:
        return self.process.pid

    def log(self) -> str:
        """Return what the daemon has written to its standard error so far."""
        if not self._log.closed:
            # pread leaves the file position, which is shared with the daemon, unchanged.
            self._written = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode()
        return self._written

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """Send SIGSTOP, and wait until no thread of the daemon runs."""
        self.send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def wait(self) -> int:
        """Wait until the daemon ends, and return its exit code."""
        return self.process.wait(_EXIT_S)

    def kill(self) -> None:
        """Kill the daemon. Idempotent."""
        self.process.kill()
        self.process.wait(_EXIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.log()
        self._log.close()

    def memory_bytes(self) -> int:
        """Return the daemon's resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_memory_bytes(self) -> int:
        """Return the daemon's peak resident memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024

    def descriptor_count(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
