"""The cancellation of a run, by which a backend learns that the run is to stop."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from nnrt_hdi.errors import NnrtError, OperationFailed, TimedOut

_log = logging.getLogger(__name__)

_CANCELLED = OperationFailed("the run was cancelled")
_OUT_OF_TIME = TimedOut("the run took longer than it was given")


def _nothing() -> None:
    """Take back what has been called already."""


class Cancellation:
    """Tells a run to stop: it was cancelled, or its time is over. A backend asks at least between operators."""

    def __init__(self, deadline: float | None = None, reason: NnrtError = _CANCELLED) -> None:
        """`deadline` on the clock of time.monotonic, None for no limit; `reason` is what `check` raises where `cancel`
        gives none."""
        self.deadline = deadline
        self.is_cancelled = False
        # When the run got onto the device, on the clock of time.perf_counter_ns; None before that.
        self.began_ns: int | None = None
        # When the compilation within the run began that is under way, on the same clock; None while there is none.
        self.compiling_since_ns: int | None = None
        self._compiled_s = 0.0
        self._compiled_at = -math.inf
        self._cancelled_at = math.inf
        self._reason = reason
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def cancel(self, reason: NnrtError | None = None) -> None:
        """Ask the run to stop; `reason` is what `check` raises then. Any thread, any number of times: the first one
        counts. What a listener raises is logged."""
        with self._lock:
            if not self.is_cancelled:
                self._reason = reason or self._reason
                self._cancelled_at = time.monotonic()
                self.is_cancelled = True
        while listener := self._next_listener():
            try:
                listener()
            except BaseException:  # Whoever cancels isn't to blame, and others listen, too.
                _log.exception("a listener failed to stop a run that was cancelled")

    def on_cancel(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call this once when the run is cancelled, from the thread that cancels; at once if it already was.

        Gives what takes the listener back: after that it is not called any more, though another thread may just be
        calling it.
        """
        with self._lock:
            if not self.is_cancelled:
                self._listeners.append(listener)
                return partial(self._take_back, listener)
        listener()
        return _nothing

    def _take_back(self, listener: Callable[[], None]) -> None:
        with self._lock, suppress(ValueError):  # It has been called, or taken back before.
            self._listeners.remove(listener)

    def _next_listener(self) -> Callable[[], None] | None:
        with self._lock:
            return self._listeners.pop(0) if self._listeners else None

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, as long as a thread can wait at most; None without a deadline."""
        if self.deadline is None:
            return None
        return min(max(self.deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Compile something for the run in this block, or wait for that: the daemon's bound for compilations counts
        there, and not that for runs. One block at a time. At its end it raises what `check` raises."""
        began_ns = self.compiling_since_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self._compiled_s += (time.perf_counter_ns() - began_ns) / 1e9
            self._compiled_at = time.monotonic()
            self.compiling_since_ns = None
        self.check()

    @property
    def on_device_s(self) -> float:
        """Seconds that the run has been on the device, without its compilations that are over."""
        now_ns = time.perf_counter_ns()
        return (now_ns - (self.began_ns or now_ns)) / 1e9 - self._compiled_s

    @property
    def overdue_s(self) -> float:
        """Seconds since when the run should have stopped, or could after a compilation; negative while it need not."""
        stops_at = self._cancelled_at if self.deadline is None else min(self._cancelled_at, self.deadline)
        return time.monotonic() - max(stops_at, self._compiled_at)

    def check(self) -> None:
        """Raise TimedOut or OperationFailed if the run must stop, or what it was cancelled for."""
        if self.is_cancelled:
            raise self._reason.copy()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise _OUT_OF_TIME.copy()

    def expire(self) -> None:
        """Cancel the run because its deadline has passed."""
        self.cancel(_OUT_OF_TIME)
