"""Whose turn it is on the device, and when it takes no more."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import TimedOut, UnavailableDevice


class _Waiting:
    """A run in the queue."""

    __slots__ = ("granted", "wake")

    def __init__(self) -> None:
        self.granted = False
        self.wake = threading.Event()


class Scheduler:
    """Lets a number of runs onto the device at a time, the others in the order they came.

    A run whose time is over or that is cancelled leaves the queue at once and never starts.
    """

    def __init__(self, slots: int) -> None:
        self._lock = threading.Lock()
        self._slots = slots
        self._free = slots
        self._queue: deque[_Waiting] = deque()

    @property
    def running(self) -> int:
        return self._slots - self._free

    @property
    def queued(self) -> int:
        return len(self._queue)

    @contextmanager
    def turn(self, cancellation: Cancellation) -> Iterator[None]:
        """Wait for a turn on the device and hold it. Raises TimedOut or OperationFailed (cancelled)."""
        self._acquire(cancellation)
        try:
            cancellation.check()
            yield
        finally:
            self._release()

    def _acquire(self, cancellation: Cancellation) -> None:
        with self._lock:
            if self._free and not self._queue:
                self._free -= 1
                return
            waiting = _Waiting()
            self._queue.append(waiting)
        cancellation.on_cancel(waiting.wake.set)
        waiting.wake.wait(cancellation.remaining)
        with self._lock:
            if waiting.granted:
                return
            self._queue.remove(waiting)
        cancellation.check()
        raise TimedOut("the run's time was over before its turn came")

    def _release(self) -> None:
        with self._lock:
            if self._queue:
                waiting = self._queue.popleft()
                waiting.granted = True
                waiting.wake.set()
            else:
                self._free += 1


class Gate:
    """Counts the work under way, and closes when the daemon shuts down.

    Work is inside until it has ended and gRPC has handed its reply to the transport, or knows that it never will.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._empty = threading.Condition(self._lock)
        self._inside = 0
        self.is_closed = False

    def require_open(self) -> None:
        """Raises UnavailableDevice once the gate is closed."""
        if self.is_closed:
            raise UnavailableDevice("the daemon is shutting down and takes no new work")

    def enter(self) -> None:
        """Be counted until `leave`. Raises UnavailableDevice once the gate is closed."""
        with self._lock:
            self.require_open()
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._empty.notify_all()

    @contextmanager
    def passage(self) -> Iterator[None]:
        """Be counted while the block lasts. Raises UnavailableDevice once the gate is closed."""
        self.enter()
        try:
            yield
        finally:
            self.leave()

    def close(self, timeout_s: float) -> bool:
        """Let nobody in any more and wait until all are out; whether they were in time."""
        with self._lock:
            self.is_closed = True
            return self._empty.wait_for(lambda: not self._inside, timeout_s)
