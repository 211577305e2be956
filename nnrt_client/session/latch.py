"""Event and condition that an exception of a signal handler (Ctrl-C) can't leave locked.

threading.Event and threading.Condition take their locks in Python code, where such an exception leaves them locked for
ever. The `with` of a plain lock is one step of the interpreter, so these classes use plain locks.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator

from nnrt_hdi.signals import suppressed

# Interval at which a waiting thread checks again, because the thread that should wake it may have been interrupted.
_LOOK_AGAIN_S = 0.5


class Latch:
    """Flag that is set once and that threads can wait for, like threading.Event."""

    __slots__ = ("_waiters", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._waiters: deque[threading.Lock] = deque()

    def set(self) -> None:
        """Set the flag, and wake the threads that wait for it. Idempotent."""
        self.is_set = True
        while self._waiters:
            with suppressed(IndexError):  # Another thread has woken the waiter.
                self._waiters.popleft().release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the flag is set or the time is over. Return whether it is set."""
        if self.is_set:
            return True
        waiter = threading.Lock()
        waiter.acquire()
        self._waiters.append(waiter)
        if timeout_s is None:
            while not (self.is_set or waiter.acquire(timeout=_LOOK_AGAIN_S)):
                pass
            return True
        # Every run over gRPC waits here, so avoid a generator, which would delay the thread that sends the run.
        pauses = (timeout_s,) if 0.0 < timeout_s <= _LOOK_AGAIN_S else _pauses(timeout_s)
        for pause_s in pauses:
            if self.is_set or waiter.acquire(timeout=pause_s):
                return True
        with suppressed(ValueError):
            self._waiters.remove(waiter)
        return self.is_set


class Changes:
    """Signal for threads that wait for a condition, sent when the condition may have become true.

    It is used like threading.Condition.
    """

    __slots__ = ("_lock", "_next")

    def __init__(self) -> None:
        # An RLock, like all locks that the main thread takes, because a signal handler there may take it again.
        self._lock = threading.RLock()
        self._next = Latch()

    def announce(self) -> None:
        """Wake the waiting threads, so that they check their conditions again."""
        with self._lock:
            announced, self._next = self._next, Latch()
        announced.set()

    def wait_for(self, predicate: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Wait until the predicate is true or the time is over. Return whether it is true.

        The predicate must not wait long for a lock.
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
    """Yield the durations of waits, until their sum is `timeout_s`."""
    if timeout_s is None:
        while True:
            yield _LOOK_AGAIN_S
    until = time.monotonic() + timeout_s
    while (remaining_s := until - time.monotonic()) > 0:
        yield min(remaining_s, _LOOK_AGAIN_S)
