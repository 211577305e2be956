"""Deadlines of runs. ONNX Runtime has no deadlines: a run ends early only if `RunOptions.terminate` is set."""

import itertools
import math
import threading
import time
from collections.abc import Callable

from nnrt_hdi.errors import OutOfMemory


class Deadlines:
    """Canceller of runs at their deadlines. Its one thread starts with the first deadline.

    A new deadline wakes the thread only if it is the earliest, which is rare. The end of a run never wakes the thread.
    """

    def __init__(self) -> None:
        # Runs take this lock directly: entering a condition costs another call.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiting: dict[int, tuple[float, Callable[[], None]]] = {}
        self._numbers = itertools.count()
        self._wakes_at = math.inf
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def add(self, deadline: float, end: Callable[[], None]) -> int:
        """Call `end` at a deadline, unless the ticket is removed before.

        Args:
            deadline: A time on the clock of time.monotonic.
            end: Called in the thread of this class, under its lock.

        Returns:
            The ticket, for `remove`.

        Raises:
            OutOfMemory: The thread can't be started.
        """
        ticket = next(self._numbers)
        with self._lock:
            if deadline < self._wakes_at:
                self._wake_at(deadline)
            self._waiting[ticket] = deadline, end
        return ticket

    def remove(self, ticket: int) -> None:
        """Forget a run that has ended."""
        with self._lock:
            self._waiting.pop(ticket, None)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread:
            thread.join()

    def _wake_at(self, deadline: float) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._watch, name="nnrt-onnxruntime-deadlines", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:
                raise OutOfMemory(f"the daemon has no thread left to watch the deadline of a run ({error})") from error
            self._thread = thread
        else:
            self._changed.notify()
        self._wakes_at = deadline

    def _watch(self) -> None:
        with self._changed:
            while not self._is_closed:
                now = time.monotonic()
                for ticket in [ticket for ticket, (deadline, _) in self._waiting.items() if deadline <= now]:
                    _, end = self._waiting.pop(ticket)
                    end()
                self._wakes_at = min((deadline for deadline, _ in self._waiting.values()), default=math.inf)
                left = self._wakes_at - now
                self._changed.wait(None if left == math.inf else min(left, threading.TIMEOUT_MAX))
