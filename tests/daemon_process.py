"""A daemon as a process, started like an operator starts it."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from logged_process import LoggedProcess

# Backends and other plug-ins of tests.
PLUGINS = Path(__file__).parent / "plugins"


class DaemonProcess(LoggedProcess):
    """Process of `nnrt-device serve` on free addresses, ready when the constructor returns."""

    what = "the daemon"

    def __init__(self, *arguments: str, listen: str = "127.0.0.1:0", through: Sequence[str] = ()) -> None:
        """Start the daemon; `through` is a command that executes the command that follows it."""
        command = [*through, sys.executable, "-m", "nnrt_device_service", "serve", "--listen", listen, *arguments]
        super().__init__(command, {**os.environ, "PYTHONPATH": f"{PLUGINS}:{PLUGINS.parent}"})
        self.addresses = self.listening()

    @property
    def address(self) -> str:
        return self.addresses[0]

    def stop(self) -> None:
        """Send SIGSTOP, and wait until no thread of the daemon runs."""
        self.send(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

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
