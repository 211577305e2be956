"""Telemetry of the device, read from the backend every few seconds."""

import logging
import threading
import time
from dataclasses import asdict

from nnrt_device_service.host.threads import start_thread
from nnrt_hdi.backend import Backend, Telemetry

_log = logging.getLogger(__name__)

_EVERY_S = 5.0
# Missed rounds after which the latest figures are stale.
_ROUNDS = 3
# Seconds that the hook gets to return when the daemon ends. After that the daemon doesn't close the backend.
_STOP_S = 5.0


class TelemetryWatch:
    """Reader of a backend's telemetry in a thread of its own, so that a hook that raises or hangs disturbs nothing.

    Logs each kind of failure once in the daemon's lifetime.
    """

    def __init__(self, backend: Backend, every_s: float = _EVERY_S) -> None:
        self._backend = backend
        self._every_s = every_s
        self._latest: Telemetry | None = None
        self._read_at = time.monotonic()
        self._logged: set[str] = set()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start reading if the backend implements `telemetry`. Raises OutOfMemory if no thread can be started."""
        if type(self._backend).telemetry is not Backend.telemetry:
            self._read_at = time.monotonic()
            self._thread = start_thread(self._run, "telemetry")

    def stop(self) -> bool:
        """Stop reading and return whether the hook has returned. Idempotent."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
        return self._thread is None or not self._thread.is_alive()

    @property
    def latest(self) -> Telemetry | None:
        """Latest figures, or None if there are none or they are stale."""
        if self._thread is None:
            return None
        silent_s = time.monotonic() - self._read_at
        if silent_s > _ROUNDS * self._every_s:
            self._log_once("the backend has sent no telemetry for %.0f s", silent_s)
            return None
        return self._latest

    def _run(self) -> None:
        while True:
            try:
                figures = self._backend.telemetry()
                self._latest = None if figures is None else self._checked(figures)
            except BaseException:  # SystemExit, too, would end the thread.
                self._latest = None
                self._log_once("the backend failed to read its telemetry", exc_info=True)
            self._read_at = time.monotonic()
            if self._stopped.wait(self._every_s):
                return

    def _checked(self, figures: Telemetry) -> Telemetry:
        plausible = figures.plausible()
        for name, figure in asdict(figures).items():
            if figure is not None and getattr(plausible, name) is None:
                self._log_once(f"the backend's {name} is impossible and is ignored: %r", figure)
        return plausible

    def _log_once(self, message: str, *arguments: object, exc_info: bool = False) -> None:
        if message not in self._logged:
            self._logged.add(message)
            _log.warning(message, *arguments, exc_info=exc_info)
