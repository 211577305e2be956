"""Deadlines of runs for which no thread waits."""

import math
import threading
import time

from nnrt_device_service.host.threads import start_thread
from nnrt_hdi.backend import Cancellation


class Deadlines:
    """Thread that cancels runs at their deadlines; it starts with the first run that has one.

    There are about as many runs as slots on the device, so searching all of them costs less than sorting them.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._runs: dict[Cancellation, float] = {}
        # When the thread wakes next.
        self._wakes_at = -math.inf
        self._has_thread = self._is_over = False

    def add(self, run: Cancellation) -> None:
        """Cancel a run at its deadline, unless it has none or `discard` comes first.

        Raises OutOfMemory if the thread can't be started.
        """
        deadline = run.deadline
        if deadline is None:
            return
        with self._changed:
            if not self._has_thread:
                start_thread(self._watch, "deadlines")
                self._has_thread = True
            self._runs[run] = deadline
            if deadline < self._wakes_at:
                self._changed.notify()

    def discard(self, run: Cancellation) -> None:
        """Forget a run and its deadline."""
        if run.deadline is not None:
            with self._changed:
                self._runs.pop(run, None)

    def close(self) -> None:
        """End the thread; no run is cancelled afterwards."""
        with self._changed:
            self._is_over = True
            self._changed.notify()

    def _watch(self) -> None:
        while (overdue := self._pop_overdue()) is not None:
            overdue.expire()

    def _pop_overdue(self) -> Cancellation | None:
        """Wait for the next run whose deadline has passed, forget and return it; return None after `close`."""
        with self._changed:
            while not self._is_over:
                run = min(self._runs, key=self._runs.__getitem__, default=None)
                self._wakes_at = math.inf if run is None else self._runs[run]
                left_s = self._wakes_at - time.monotonic()
                if run is not None and left_s <= 0:
                    del self._runs[run]
                    return run
                self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
        return None
