"""Waits that an exception from a signal handler can end at any line, and that then block nobody else.

The locks of threading.Event and threading.Condition are taken in Python: an exception that comes just then (Ctrl-C)
leaves them locked for ever. Plain locks, whose `with` is one step of the interpreter, are not: these are made of them.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from nnrt_hdi.signals import suppressed

# Who waits looks again so often, for whoever was to wake it may have been interrupted.
_LOOK_AGAIN_S = 0.5


class Latch:
    """A flag that is set once, and waited for."""

    __slots__ = ("_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiters: deque[threading.Lock] = deque()

    def set(self) -> None:
        """Set the flag, and wake the threads that wait for it. Idempotent."""
        self.is_set = True
        while self._waiters:
            with suppressed(IndexError):  # Another thread does the same.
                self._waiters.popleft().release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the flag is set, or the time is over; true if it is set."""
        if self.is_set:
            return True
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        if timeout_s is None:
            while not (self.is_set or waiter.acquire(timeout=_LOOK_AGAIN_S)):
                pass
            return True
        # As every run over gRPC waits: with no generator, while the run's sender waits for Python.
        pauses = (timeout_s,) if 0.0 < timeout_s <= _LOOK_AGAIN_S else _pauses(timeout_s)
        for pause_s in pauses:
            if self.is_set or waiter.acquire(timeout=pause_s):
                return True
        with suppressed(ValueError):
            self._waiters.remove(waiter)
        return self.is_set


class Changes:
    """Wakes threads that wait for something, each time that it may be so."""

    __slots__ = ("_lock", "_next")

    def __init__(self) -> None:
        # Of the kind that a signal handler can take in the thread that has it, as all locks that the main thread takes.
        self._lock = threading.RLock()
        self._next = Latch()

    def announce(self) -> None:
        """Have the threads that wait look again."""
        with self._lock:
            announced, self._next = self._next, Latch()
        announced.set()

    def wait_for(self, predicate: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until the predicate holds, or the time is over; true if it holds. It must take no lock for long."""
        upcoming = self._next
        if predicate():
            return True
        for pause_s in _pauses(timeout_s):
            upcoming.wait(pause_s)
            upcoming = self._next
            if predicate():
                return True
        return False


def _pauses(timeout_s: float | None) -> Iterator[float]:
    """Yield how long to wait at a time, until the time is over."""
    if timeout_s is None:
        while True:
            yield _LOOK_AGAIN_S
    until = time.monotonic() + timeout_s
    while (remaining_s := until - time.monotonic()) > 0:
        yield min(remaining_s, _LOOK_AGAIN_S)
