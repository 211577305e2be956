"""Cancellation of a run: how a backend learns that the run must stop."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

from nnrt_hdi.errors import NnrtError, OperationFailed, TimedOut

_log = logging.getLogger(__name__)

_CANCELLED = OperationFailed("the run was cancelled")


def _nothing() -> None:
    """Do nothing: the listener was called already."""


class Elsewhere(Protocol):
    """Other process that computes a run. The methods raise nothing and don't wait."""

    def cancel(self) -> None:
        """Ask the process to stop the run."""

    def kill(self) -> None:
        """End the process, because the run doesn't stop."""


class Cancellation:
    """Signal that a run was cancelled or is late, and must stop. A backend checks it at least between operators."""

    # Where the run is computed; None if that is this process. Whoever sets it looks at `is_cancelled` afterwards.
    elsewhere: "Elsewhere | None" = None

    def __init__(self, deadline: float | None = None, reason: NnrtError = _CANCELLED) -> None:
        """Create a signal.

        Args:
            deadline: Time of time.monotonic() at which the run is late; None: never.
            reason: What `check` raises if `cancel` gets no reason.
        """
        self.deadline = deadline
        # Time that the client gave the run, for messages; 0: unknown.
        self.timeout_ms = 0
        self.is_cancelled = False
        # When the run started on the device, of time.perf_counter_ns(); None before.
        self.began_ns: int | None = None
        # When the compilation within the run started, of the same clock; None if none is under way.
        self.compiling_since_ns: int | None = None
        self._compiled_s = 0.0
        self._compiled_at = -math.inf
        self._cancelled_at = math.inf
        self._reason = reason
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def cancel(self, reason: NnrtError | None = None) -> None:
        """Ask the run to stop. Any thread may call this, any number of times: the first call counts.

        An exception of a listener is logged.

        Args:
            reason: What `check` raises from now on; None: the constructor's reason.
        """
        with self._lock:
            if not self.is_cancelled:
                self._reason = reason or self._reason
                self._cancelled_at = time.monotonic()
                self.is_cancelled = True
        while listener := self._next_listener():
            try:
                listener()
            except BaseException:  # The thread that cancels isn't at fault, and must call the other listeners too.
                _log.exception("a listener failed to stop a run that was cancelled")
        if (elsewhere := self.elsewhere) is not None:
            elsewhere.cancel()

    def on_cancel(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Add a listener that the cancelling thread calls once. A cancelled run's listener is called immediately.

        Args:
            listener: Called without arguments.

        Returns:
            A function that removes the listener. Another thread may be calling the listener at the same time.
        """
        with self._lock:
            if not self.is_cancelled:
                self._listeners.append(listener)
                return partial(self._remove_listener, listener)
        listener()
        return _nothing

    def _remove_listener(self, listener: Callable[[], None]) -> None:
        with self._lock, suppress(ValueError):  # It was called, or removed before.
            self._listeners.remove(listener)

    def _next_listener(self) -> Callable[[], None] | None:
        with self._lock:
            return self._listeners.pop(0) if self._listeners else None

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, at most threading.TIMEOUT_MAX; None without a deadline."""
        if self.deadline is None:
            return None
        return min(max(self.deadline - time.monotonic(), 0.0), threading.TIMEOUT_MAX)

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Mark a block in which the run compiles something or waits for a compilation. Blocks must not overlap.

        In the block the daemon applies its time limit of compilations instead of that of runs.

        Yields:
            Nothing.

        Raises:
            NnrtError: At the end of the block, what `check` raises.
        """
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
        """Seconds that the run has been on the device, without finished compilations."""
        now_ns = time.perf_counter_ns()
        return (now_ns - (self.began_ns or now_ns)) / 1e9 - self._compiled_s

    @property
    def overdue_s(self) -> float:
        """Seconds by which the run is late, negative if it need not stop yet.

        They count from its cancellation or deadline, or from the end of its last compilation if that is later.
        """
        stops_at = self._cancelled_at if self.deadline is None else min(self._cancelled_at, self.deadline)
        return time.monotonic() - max(stops_at, self._compiled_at)

    def check(self) -> None:
        """Raise TimedOut, OperationFailed, or the reason of the cancellation, if the run must stop."""
        if self.is_cancelled:
            raise self._reason.copy()
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise self._lateness()

    def expire(self) -> None:
        """Cancel the run because its deadline has passed."""
        self.cancel(self._lateness())

    def _lateness(self) -> TimedOut:
        given = f": {self.timeout_ms} ms (timeout_ms); give it more" if self.timeout_ms else ""
        return TimedOut(f"the run took longer than it was given{given}")
