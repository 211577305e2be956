"""Asks the device every few seconds what it measures of itself."""

import logging
import threading
import time
from dataclasses import asdict

from nnrt_device_service.host.threads import start_thread
from nnrt_hdi.backend import Backend, Telemetry

_log = logging.getLogger(__name__)

_EVERY_S = 5.0
# How many rounds a device may miss until what it told counts for nothing.
_ROUNDS = 3
# A hook that takes longer than that to return, when the daemon ends, has the backend left as it is.
_STOP_S = 5.0


class TelemetryWatch:
    """Asks a backend for its figures, in a thread of its own: a hook that raises or hangs harms nobody else.

    Of each thing that goes wrong the log has one line until the daemon ends.
    """

    def __init__(self, backend: Backend, every_s: float = _EVERY_S) -> None:
        self._backend = backend
        self._every_s = every_s
        self._told: Telemetry | None = None
        self._told_at = time.monotonic()
        self._logged: set[str] = set()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Ask from now on, if the backend has anything to tell. Raises OutOfMemory where there is no thread for it."""
        if type(self._backend).telemetry is not Backend.telemetry:
            self._told_at = time.monotonic()
            self._thread = start_thread(self._run, "telemetry")

    def stop(self) -> bool:
        """Ask no more; whether the backend isn't being asked any longer. Idempotent."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)
        return self._thread is None or not self._thread.is_alive()

    @property
    def latest(self) -> Telemetry | None:
        """The latest figures; None where there are none that are fresh."""
        if self._thread is None:
            return None
        silent_s = time.monotonic() - self._told_at
        if silent_s > _ROUNDS * self._every_s:
            self._log_once("the backend has not told its telemetry for %.0f s", silent_s)
            return None
        return self._told

    def _run(self) -> None:
        while True:
            try:
                told = self._backend.telemetry()
                self._told = None if told is None else self._checked(told)
            except BaseException:  # One that exits would end the thread.
                self._told = None
                self._log_once("the backend fails to tell its telemetry", exc_info=True)
            self._told_at = time.monotonic()
            if self._stopped.wait(self._every_s):
                return

    def _checked(self, told: Telemetry) -> Telemetry:
        plausible = told.plausible()
        for name, figure in asdict(told).items():
            if figure is not None and getattr(plausible, name) is None:
                self._log_once(f"the backend tells a {name} that can't be, which counts as none: %r", figure)
        return plausible

    def _log_once(self, message: str, *arguments: object, exc_info: bool = False) -> None:
        if message not in self._logged:
            self._logged.add(message)
            _log.warning(message, *arguments, exc_info=exc_info)
