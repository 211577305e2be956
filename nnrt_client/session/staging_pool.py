"""Staging pool: reusable shared memory for inputs and outputs that the daemon can't access where they are."""

import weakref
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.limits import MAX_BUFFER_BYTES
from nnrt_hdi.shared_memory import SharedMemory
from nnrt_hdi.signals import raised_by_handler, suppressed
from nnrt_hdi.tensor import Array, Shape

# Sizes of the pool's memory. From the smallest one, sizes double up to `_SHARED_BYTES`, the most that small tensors of
# a run may share, so that tensors that grow from run to run find memory to reuse. Above, there are 16 sizes between a
# power of two and the next, so that a memory is at most a sixteenth too large: the session's limit counts all of it.
_LEAST_BYTES = 1 << 16
_SHARED_BYTES = 1 << 20
_SIZES_PER_DOUBLING = 16
# Alignment of the parts of a memory.
_PART_BYTES = 64
# Limits of the idle memory in the pool.
_MOST_IDLE_BYTES = 256 << 20
_MOST_IDLE = 32
# Limit of the results that the application may keep in memory of the pool. Further results are copied.
_MOST_LEASES = 32


# Data type and shape of an array.
Form = tuple[np.dtype[np.generic], Shape]


class Room(NamedTuple):
    """Part of a memory of the pool."""

    memory: SharedMemory
    offset: int
    room_bytes: int

    def array(self, dtype: np.dtype[np.generic], shape: Shape) -> Array:
        """Return an array over the first bytes of the part."""
        array: Array = np.ndarray(shape, dtype, self.memory.view, self.offset)
        return array


class _Leased(np.ndarray[tuple[int, ...], np.dtype[np.generic]]):
    """Array over a memory of the pool. The pool takes the memory back when this array and all its views are gone."""


class _Lease(weakref.ref[_Leased]):
    """Weak reference to a leased array, with the memory to take back."""

    memory: SharedMemory


class StagingPool:
    """Pool of memory that a daemon can map. Any thread may use it; its counts are approximate."""

    def __init__(self) -> None:
        self._idle: defaultdict[int, deque[SharedMemory]] = defaultdict(deque)
        self._keeps_idle = True
        self._idle_count = self._idle_bytes = 0
        # Leases by their `id()`, because a weak reference hashes its object, and arrays have no hash. The pool takes
        # memory back only when memory is needed, so leases have at most `_MOST_IDLE_BYTES` in all; memory beyond that
        # is freed with its arrays.
        self.leases: dict[int, _Lease] = {}
        # Leases whose arrays are gone. Python drops exceptions that a signal handler raises in a weak reference's
        # callback, so the callback is not Python code: it is the `append` of this deque.
        self._ended: deque[weakref.ref[_Leased]] = deque()

    def take(self, size_bytes: int) -> SharedMemory:
        """Take memory of at least `size_bytes` from the pool, or allocate it. Raise OutOfMemory."""
        if size_bytes > MAX_BUFFER_BYTES:
            raise OutOfMemory(f"{size_bytes} bytes are more than a buffer can have")
        whole_bytes = pooled_bytes(size_bytes)
        self.take_ended()
        try:
            memory = self._idle[whole_bytes].pop()
        except IndexError as error:
            if raised_by_handler(error):
                raise
            return SharedMemory.allocate(whole_bytes, "nnrt-staged")
        self._idle_count -= 1
        self._idle_bytes -= whole_bytes
        return memory

    def take_rooms(self, sizes: Sequence[int]) -> list[Room]:
        """Take parts of at least these sizes for one run, all in one memory if their sum is small.

        Raises OutOfMemory.
        """
        whole_bytes = sum(sizes) + _PART_BYTES * (len(sizes) - 1)
        if whole_bytes > _SHARED_BYTES:
            taken = [self.take(size) for size in sizes]
            return [Room(memory, 0, memory.size_bytes) for memory in taken]
        memory, offset, rooms = self.take(whole_bytes), 0, []
        for size in sizes:
            rooms.append(Room(memory, offset, size))
            offset += -(-size // _PART_BYTES) * _PART_BYTES
        return rooms

    def give_back(self, memory: SharedMemory) -> None:
        """Take back memory that neither this process nor the daemon uses any more."""
        if (
            self._keeps_idle
            and self._idle_count < _MOST_IDLE
            and self._idle_bytes + memory.size_bytes <= _MOST_IDLE_BYTES
        ):
            self._idle_count += 1
            self._idle_bytes += memory.size_bytes
            self._idle[memory.size_bytes].append(memory)

    def close(self) -> None:
        """Free the idle memory, and keep no memory that is given back later."""
        self._keeps_idle = False
        self._idle.clear()
        self.leases.clear()
        self._ended.clear()

    def lease_arrays(self, rooms: Sequence[Room], forms: Sequence[Form]) -> list[Array]:
        """Make read-only arrays of these data types and shapes over parts of one memory.

        `rooms` must have all used parts of the memory. The pool takes the memory back when the last array is gone. If
        there are `_MOST_LEASES` leases already, the arrays are copies, and the pool takes the memory back at once.
        """
        memory = rooms[0].memory
        self.take_ended()
        if len(self.leases) >= _MOST_LEASES:
            copies = [room.array(*form).copy() for room, form in zip(rooms, forms, strict=True)]
            self.give_back(memory)
            for copy in copies:
                copy.flags.writeable = False
            return copies
        leased = _Leased(memory.size_bytes, np.uint8, memory.view)
        leased.flags.writeable = False
        leased_bytes = sum(lease.memory.size_bytes for lease in list(self.leases.values()))
        if self._keeps_idle and leased_bytes + memory.size_bytes <= _MOST_IDLE_BYTES:
            lease = _Lease(leased, self._ended.append)
            lease.memory = memory
            self.leases[id(lease)] = lease
        return [
            np.ndarray(shape, dtype, leased, room.offset) for room, (dtype, shape) in zip(rooms, forms, strict=True)
        ]

    def take_ended(self) -> None:
        """Take back the memory of leases whose arrays are gone."""
        while self._ended:
            with suppressed(IndexError):  # Another thread has taken the last one.
                lease = self.leases.pop(id(self._ended.popleft()), None)
                if lease is not None:
                    self.give_back(lease.memory)


def pooled_bytes(size_bytes: int) -> int:
    """Return the size of the pool's memory that has room for `size_bytes`."""
    if size_bytes <= _LEAST_BYTES:
        return _LEAST_BYTES
    if size_bytes <= _SHARED_BYTES:
        return 1 << (size_bytes - 1).bit_length()
    step = (1 << (size_bytes - 1).bit_length() - 1) // _SIZES_PER_DOUBLING
    return -(-size_bytes // step) * step
