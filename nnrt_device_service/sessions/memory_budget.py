"""The memory that a session may hold."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.errors import OutOfMemory

# What anything held costs at least: a million empty things are not free.
LEAST_BYTES = 1024
_NOTHING: AbstractContextManager[None] = nullcontext()


class MemoryBudget:
    """A number of bytes that constants and buffers share. Reserved before memory is allocated."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._reclaims: list[Callable[[], bool]] = []
        self.used_bytes = 0

    def on_shortage(self, reclaim: Callable[[], bool]) -> None:
        """Call this when bytes don't fit; it gives some back that nobody needs, or says that there are none."""
        self._reclaims.append(reclaim)

    def reserve(self, size_bytes: int) -> None:
        """Raises OutOfMemory if it doesn't fit."""
        cost = max(size_bytes, LEAST_BYTES)
        while not self._try_reserve(cost):
            if cost > self._limit or not any(reclaim() for reclaim in self._reclaims):
                raise OutOfMemory(
                    f"{cost} more bytes pass this session's limit of {self._limit} ({self.used_bytes} are used);"
                    " release models or buffers, or raise the daemon's --session-bytes"
                )

    def release(self, size_bytes: int) -> None:
        with self._lock:
            self.used_bytes -= max(size_bytes, LEAST_BYTES)

    def reserved(self, size_bytes: int) -> AbstractContextManager[None]:
        """Hold bytes while the block lasts; none cost nothing. Raises OutOfMemory if they don't fit."""
        return self._reserved(size_bytes) if size_bytes else _NOTHING

    @contextmanager
    def _reserved(self, size_bytes: int) -> Iterator[None]:
        self.reserve(size_bytes)
        try:
            yield
        finally:
            self.release(size_bytes)

    def allocate(self, size_bytes: int) -> NDArray[np.uint8]:
        """Zeroed memory of that size, to be given back. Raises OutOfMemory if it doesn't fit, or the host has none."""
        self.reserve(size_bytes)
        try:
            return np.zeros(size_bytes, np.uint8)
        except MemoryError as error:
            self.release(size_bytes)
            raise OutOfMemory(f"the daemon's host has no {size_bytes} bytes left; ask for less") from error

    def _try_reserve(self, cost: int) -> bool:
        with self._lock:
            if self.used_bytes + cost > self._limit:
                return False
            self.used_bytes += cost
            return True
