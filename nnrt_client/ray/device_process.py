"""Daemon as a child process."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from nnrt_client.ray import end_with_parent
from nnrt_hdi.closable import Closable
from nnrt_hdi.errors import UnavailableDevice

ON_THIS_HOST = "127.0.0.1:0"
_READY = "listening on"
# Time for a daemon to finish its runs and end.
_END_S = 60.0


class DeviceProcess(Closable):
    """Child process that runs `nnrt-device serve`.

    However this process ends, the daemon finishes its runs and ends, too. Its logs go to this process's standard error.
    The constructor returns when the daemon is ready.

    Args:
        serve: Arguments of `nnrt-device serve`.
        listen: Address to listen on.
        ended: Called with the daemon's exit code if it ends without `close`.

    Raises:
        UnavailableDevice: The daemon doesn't start.
    """

    def __init__(
        self, serve: Sequence[str] = (), listen: str = ON_THIS_HOST, ended: Callable[[int], None] | None = None
    ) -> None:
        self._command = [sys.executable, "-m", "nnrt_device_service", "serve", "--listen", listen, *serve]
        self._ended = ended
        self._is_closing = False
        self._process: subprocess.Popen[str] | None = None
        self._is_ready = threading.Event()
        self.address = ""
        # The kernel signals the child when the thread that started it ends.
        self._owner = threading.Thread(target=self._run_daemon, name="nnrt-daemon", daemon=True)
        self._owner.start()
        self._is_ready.wait()
        if not self.address:
            self._owner.join()
            code = "none" if self._process is None else self._process.returncode
            raise UnavailableDevice(
                f"the daemon ended before it was ready, with exit code {code}; the standard error of this process says"
                f" why: {' '.join(self._command)}"
            )

    @property
    def pid(self) -> int:
        """Process id of the daemon."""
        assert self._process is not None
        return self._process.pid

    def close(self) -> None:
        """Let the daemon finish its runs and end, and wait for that; kill it if it hangs.

        Calling it again does nothing.
        """
        self._is_closing = True
        process = self._process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            self._owner.join(_END_S)
            process.kill()
        self._owner.join()

    def _run_daemon(self) -> None:
        """Start the daemon, and wait for its end."""
        launcher = [sys.executable, str(Path(end_with_parent.__file__)), str(os.getpid())]
        try:
            self._process = subprocess.Popen([*launcher, *self._command], stdout=subprocess.PIPE, text=True)  # noqa: S603
            assert self._process.stdout is not None
            with self._process.stdout as output:
                line = output.readline()
                self.address = line.removeprefix(_READY).strip() if line.startswith(_READY) else ""
                self._is_ready.set()
                code = self._process.wait()
        finally:
            self._is_ready.set()
        if self.address and not self._is_closing and self._ended is not None:
            self._ended(code)
