"""The memory that runs may make at a time, all together."""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import OutOfMemory, TimedOut


class RunMemory:
    """A number of bytes, of which a run takes what it is going to make before it starts. One that finds too few left
    waits for others to end, which it may, for those that run need no more. Who waits first is first: smaller runs that
    follow each other would keep a large one out for ever."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._freed = threading.Condition()
        self._used = 0
        self._waiting: deque[Cancellation] = deque()

    @contextmanager
    def reserved(self, size_bytes: int, cancellation: Cancellation) -> Iterator[None]:
        """Take bytes for a run in this block.

        Raises OutOfMemory for more than there are, and TimedOut or OperationFailed (cancelled) while it waits.
        """
        if size_bytes > self._limit_bytes:
            raise OutOfMemory(
                f"the run makes {size_bytes} bytes at a time; the daemon's limit (--run-bytes) is {self._limit_bytes}"
            )
        if not self._take(size_bytes):
            self._wait(size_bytes, cancellation)
        try:
            yield
        finally:
            with self._freed:
                self._used -= size_bytes
                self._freed.notify_all()

    def _take(self, size_bytes: int) -> bool:
        with self._freed:
            fits = not self._waiting and self._fits(size_bytes)
            self._used += size_bytes if fits else 0
            return fits

    def _fits(self, size_bytes: int) -> bool:
        return self._used + size_bytes <= self._limit_bytes

    def _wait(self, size_bytes: int, cancellation: Cancellation) -> None:
        def is_next() -> bool:
            return self._waiting[0] is cancellation and self._fits(size_bytes)

        cancellation.on_cancel(self._look_again)
        cancellation.began_ns = None  # Only what it computes counts as time on the device.
        with self._freed:
            self._waiting.append(cancellation)
            try:
                self._freed.wait_for(lambda: cancellation.is_cancelled or is_next(), cancellation.remaining)
                cancellation.check()
                if not is_next():
                    raise TimedOut("the run's time was over before others had left memory for it")
                self._used += size_bytes
            finally:
                self._waiting.remove(cancellation)
                self._freed.notify_all()

    def _look_again(self) -> None:
        with self._freed:
            self._freed.notify_all()
