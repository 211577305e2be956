"""Freeing of the backend's models and buffers that sessions no longer use."""

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

# Seconds that a client's call waits for what it has released, so that the memory is free for its next call.
_PATIENCE_S = 1.0


@contextmanager
def device_faults(doing: str) -> Iterator[None]:
    """Turn unexpected exceptions of the backend in the block into UnavailableDevice."""
    try:
        yield
    except (NnrtError, MemoryError):
        raise
    except BaseException as error:  # SystemExit or CancelledError would be lost otherwise.
        raise UnavailableDevice(
            f"the device failed to {doing} ({type(error).__name__}); the daemon's log has the details"
        ) from error


class Freeing:
    """Freer of models and buffers that are no longer used, one after another in a thread of its own.

    The thread that used them last may belong to the backend, which has just ended a run, may watch for stuck devices,
    or may serve other clients: none of these may wait for the backend.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._has_freed = threading.Condition(self._lock)
        # Numbers of objects that were counted by `expect`, of those given to `free`, and of those that have been freed.
        self._expected = self._left = self._freed = 0
        # For each thread: the value of `_left` after its latest `free` in a block of `await_own`.
        self._own = threading.local()
        self._to_free: deque[Callable[[], None]] = deque()
        self._is_under_way = False
        self._calls: dict[Cancellation, str] = {}

    def expect(self) -> None:
        """Count an object that will be given to `free` one day."""
        with self._lock:
            self._expected += 1

    def free(self, doing: str, close: Callable[[], object], on_freed: Callable[[], object]) -> None:
        """Queue an object that `expect` has counted, for the thread to call the backend's `close` and then `on_freed`.

        Doesn't wait. An exception of `close` is only logged. `doing` names the work in error messages.
        """
        with self._lock:
            self._left += 1
            self._own.left = self._left
            self._to_free.append(partial(self._free, doing, close, on_freed))
        self.ensure_thread()

    def ensure_thread(self) -> None:
        """Start the thread if there is something to free and it isn't running; the next call retries if that fails."""
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
        take_each((partial(self._call, doing, close), on_freed), "freeing what a session had")

    def _call(self, doing: str, close: Callable[[], object]) -> None:
        with self.calling_backend(doing):
            close()

    @contextmanager
    def calling_backend(self, doing: str) -> Iterator[None]:
        """List the block in `backend_calls` while the backend works in it; raise as `device_faults` does."""
        cancellation = Cancellation()
        cancellation.began_ns = time.perf_counter_ns()
        self._calls[cancellation] = doing
        try:
            with device_faults(doing):
                yield
        finally:
            del self._calls[cancellation]

    @property
    def backend_calls(self) -> list[tuple[Cancellation, str]]:
        """Backend calls under way besides computing, such as allocating and freeing, with what each does.

        The backend doesn't check these cancellations: they only say how long the calls take.
        """
        return list(self._calls.items())

    def await_queued(self, timeout_s: float) -> bool:
        """Wait until everything that has been given to `free` is freed; return whether that was in time."""
        with self._lock:
            left = self._left
            return self._has_freed.wait_for(lambda: self._freed >= left, timeout_s)

    @contextmanager
    def await_own(self, timeout_s: float = _PATIENCE_S) -> Iterator[None]:
        """Wait after the block, at most `timeout_s`, until the objects are freed that this thread gave to `free` in it.

        Objects of other threads may come first, as one thread frees all in order. Without own objects it doesn't wait.
        """
        self._own.left = 0
        yield
        with self._lock:
            self._has_freed.wait_for(lambda: self._freed >= self._own.left, timeout_s)

    def await_all(self, timeout_s: float) -> bool:
        """Wait until every object that was ever counted is freed; return whether that was in time."""
        with self._lock:
            return self._has_freed.wait_for(lambda: self._freed == self._expected, timeout_s)
