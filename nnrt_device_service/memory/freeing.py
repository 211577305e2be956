"""Frees what sessions have of the backend's besides computed results."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from nnrt_device_service.host.steps import take_each
from nnrt_device_service.host.threads import Threads
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import NnrtError, OutOfMemory, UnavailableDevice

# What a client waits at most for what it has given up, so that there is room for what it asks for next.
_PATIENCE_S = 1.0


@contextmanager
def device_faults(doing: str) -> Iterator[None]:
    """Make what the backend raises in this block, and no client can mend, UnavailableDevice."""
    try:
        yield
    except (NnrtError, MemoryError):
        raise
    except BaseException as error:  # Nobody else would hear of one that ends a thread, or of a task that is cancelled.
        raise UnavailableDevice(
            f"the device failed to {doing} ({type(error).__name__}); the daemon's log has the details"
        ) from error


class Freeing:
    """Has a thread free models and memory that nobody uses any more, one after another.

    Whoever was the last to use them may be a thread of the backend's, which has just ended a run, the one that looks
    after stuck devices, or one that serves other clients: none of them may wait for the backend.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._has_freed = threading.Condition(self._lock)
        # How many things there have been, how many of them nobody uses any more, and how many of those are free.
        self._expected = self._left = self._freed = 0
        # How many there had been when a thread left its latest in a block of `awaited`.
        self._own = threading.local()
        self._to_free: deque[Callable[[], None]] = deque()
        self._is_under_way = False
        self._asked: dict[Cancellation, str] = {}

    def expect(self) -> None:
        """Count something that is to be freed one day."""
        with self._lock:
            self._expected += 1

    def free(self, doing: str, close: Callable[[], object], on_freed: Callable[[], object]) -> None:
        """Have what has been counted be freed by `close`, the backend's, and `on_freed` be called afterwards.

        Waits for neither. A backend that can't close something is logged: nobody can help.
        """
        with self._lock:
            self._left += 1
            self._own.left = self._left
            self._to_free.append(partial(self._free, doing, close, on_freed))
        self.go_on()

    def go_on(self) -> None:
        """Have a thread free what is left, if none does. Where none can be started that is left to the next call."""
        with self._lock:
            if self._is_under_way or not self._to_free:
                return
            self._is_under_way = True
        try:
            self._threads.run(self._free_all)
        except OutOfMemory:
            with self._lock:
                self._is_under_way = False

    def _free_all(self) -> None:
        while True:
            with self._lock:
                if not self._to_free:
                    self._is_under_way = False
                    return
                free = self._to_free.popleft()
            free()
            with self._lock:
                self._freed += 1
                self._has_freed.notify_all()

    def _free(self, doing: str, close: Callable[[], object], on_freed: Callable[[], object]) -> None:
        take_each((partial(self._ask, doing, close), on_freed), "freeing what a session had")

    def _ask(self, doing: str, close: Callable[[], object]) -> None:
        with self.asking(doing):
            close()

    @contextmanager
    def asking(self, doing: str) -> Iterator[None]:
        """Count a block in which the backend does this among `asked`. Raises as `device_faults`."""
        cancellation = Cancellation()
        cancellation.began_ns = time.perf_counter_ns()
        self._asked[cancellation] = doing
        try:
            with device_faults(doing):
                yield
        finally:
            del self._asked[cancellation]

    @property
    def asked(self) -> list[tuple[Cancellation, str]]:
        """What the backend is doing with its models and its memory besides computing. It heeds no cancellation."""
        return list(self._asked.items())

    def settle(self, timeout_s: float) -> bool:
        """Wait until all is free that nobody uses by now; whether it came to that in time."""
        with self._lock:
            left = self._left
            return self._has_freed.wait_for(lambda: self._freed >= left, timeout_s)

    @contextmanager
    def awaited(self, timeout_s: float = _PATIENCE_S) -> Iterator[None]:
        """Wait after a block until what this thread has left in it is free, for no time if that is nothing.

        As things are freed one after another, it may wait behind what others have left, but never longer than that.
        """
        self._own.left = 0
        yield
        with self._lock:
            self._has_freed.wait_for(lambda: self._freed >= self._own.left, timeout_s)

    def await_all(self, timeout_s: float) -> bool:
        """Wait until everything is free that there has been; whether it came to that in time."""
        with self._lock:
            return self._has_freed.wait_for(lambda: self._freed == self._expected, timeout_s)
