"""Shared memory that arrays pass through, used again and again."""

import weakref
from collections import defaultdict, deque

import numpy as np

from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.limits import MAX_BUFFER_BYTES
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.tensor import Array, Shape

# The smallest memory; larger ones come in so many sizes between a power of two and the next, so that memory is used
# again, and what counts in the session is at most a sixteenth more than what is asked for.
_LEAST_BYTES = 1 << 16
_SIZES_PER_DOUBLING = 16
# What of it may lie idle.
_MOST_IDLE_BYTES = 256 << 20
_MOST_IDLE = 32
# Results that stay in such memory, which makes it the application's as long as it keeps them; others are copied.
_MOST_LEASES = 32


class _Leased(np.ndarray[tuple[int, ...], np.dtype[np.generic]]):
    """Elements in memory of the pool. It goes back when the last array over it is gone."""


class _Lease(weakref.ref[_Leased]):
    """Watches over the array of a lease."""

    memory: SharedMemory


class StagingPool:
    """Gives memory that a daemon can have too, to any thread; its counts are only about right."""

    def __init__(self) -> None:
        self._idle: defaultdict[int, deque[SharedMemory]] = defaultdict(deque)
        self._keeps_idle = True
        self._idle_count = self._idle_bytes = 0
        # By their identities: a reference has the hash of what it refers to, and arrays have none.
        self._leases: dict[int, _Lease] = {}

    def take(self, size_bytes: int) -> SharedMemory:
        """Memory of at least that size. Raises OutOfMemory."""
        if size_bytes > MAX_BUFFER_BYTES:
            raise OutOfMemory(f"{size_bytes} bytes are more than a buffer can have")
        pooled_bytes = _pooled_bytes(size_bytes)
        try:
            memory = self._idle[pooled_bytes].pop()
        except IndexError:
            return SharedMemory.allocate(pooled_bytes, "nnrt-staged")
        self._idle_count -= 1
        self._idle_bytes -= pooled_bytes
        return memory

    def give_back(self, memory: SharedMemory) -> None:
        """Take back memory that has no user any more, here or in the daemon."""
        if (
            self._keeps_idle
            and self._idle_count < _MOST_IDLE
            and self._idle_bytes + memory.size_bytes <= _MOST_IDLE_BYTES
        ):
            self._idle_count += 1
            self._idle_bytes += memory.size_bytes
            self._idle[memory.size_bytes].append(memory)

    def close(self) -> None:
        """Free the memory that lies idle, and from now on what is given back."""
        self._keeps_idle = False
        self._idle.clear()

    def leased(self, memory: SharedMemory, dtype: np.dtype[np.generic], shape: Shape) -> Array:
        """Make a read-only array of the memory's first elements; the memory comes back when nobody has that any
        more."""
        if len(self._leases) >= _MOST_LEASES:
            copy: Array = memory.array(dtype, shape).copy()
            self.give_back(memory)
            copy.flags.writeable = False
            return copy
        leased = _Leased(shape, dtype, memory.view)
        leased.flags.writeable = False
        lease = _Lease(leased, self._returned)
        lease.memory = memory
        self._leases[id(lease)] = lease
        plain: Array = leased.view(np.ndarray)
        return plain

    def _returned(self, lease: "weakref.ref[_Leased]") -> None:
        self.give_back(self._leases.pop(id(lease)).memory)


def _pooled_bytes(size_bytes: int) -> int:
    """The size of the memory that serves this one."""
    if size_bytes <= _LEAST_BYTES:
        return _LEAST_BYTES
    step = (1 << (size_bytes - 1).bit_length() - 1) // _SIZES_PER_DOUBLING
    return -(-size_bytes // step) * step
