"""Waits that an exception from a signal handler can end at any line, and that then block no other thread.

threading.Event and threading.Condition take their locks in Python code: an exception that comes at that moment (Ctrl-C)
leaves them locked for ever. The `with` of a plain lock is one step of the interpreter, so these classes use plain
locks.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from nnrt_hdi.signals import suppressed

# A waiting thread looks again after so long, because the thread that was to wake it may have been interrupted.
_LOOK_AGAIN_S = 0.5


class Latch:
    """Flag that is set once, and that threads wait for."""

    __slots__ = ("_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiters: deque[threading.Lock] = deque()

    def set(self) -> None:
        """Set the flag, and wake the threads that wait for it.

        Calling it again does nothing.
        """
        self.is_set = True
        while self._waiters:
            with suppressed(IndexError):  # Another thread has woken it.
                self._waiters.popleft().release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the flag is set or the time is over, and return whether it is set."""
        if self.is_set:
            return True
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        if timeout_s is None:
            while not (self.is_set or waiter.acquire(timeout=_LOOK_AGAIN_S)):
                pass
            return True
        # Every run over gRPC waits here. It needs no generator, which would delay the thread that sends the run.
        pauses = (timeout_s,) if 0.0 < timeout_s <= _LOOK_AGAIN_S else _pauses(timeout_s)
        for pause_s in pauses:
            if self.is_set or waiter.acquire(timeout=pause_s):
                return True
        with suppressed(ValueError):
            self._waiters.remove(waiter)
        return self.is_set


class Changes:
    """Signal that wakes threads which wait for a condition, each time that it may have become true."""

    __slots__ = ("_lock", "_next")

    def __init__(self) -> None:
        # An RLock, like all locks that the main thread takes: a signal handler can take it in the thread that has it.
        self._lock = threading.RLock()
        self._next = Latch()

    def announce(self) -> None:
        """Wake the waiting threads, so that they check their conditions again."""
        with self._lock:
            announced, self._next = self._next, Latch()
        announced.set()

    def wait_for(self, predicate: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until the predicate holds or the time is over, and return whether it holds.

        The predicate must take no lock for long.
        """
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
    """Yield how long to wait each time, until the time is over."""
    if timeout_s is None:
        while True:
            yield _LOOK_AGAIN_S
    until = time.monotonic() + timeout_s
    while (remaining_s := until - time.monotonic()) > 0:
        yield min(remaining_s, _LOOK_AGAIN_S)
