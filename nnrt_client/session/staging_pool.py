"""Staging pool: shared memory that arrays pass through, used again and again."""

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

# Size of the smallest memory. From there sizes double up to what the small tensors of a run may need together, so that
# tensors that grow from run to run find memory again. Above that there are 16 sizes between a power of two and the
# next, so a memory has at most a sixteenth more than was asked for, and the session counts it whole.
_LEAST_BYTES = 1 << 16
_SHARED_BYTES = 1 << 20
_SIZES_PER_DOUBLING = 16
# Alignment of the parts of a memory.
_PART_BYTES = 64
# Most memory that may lie idle.
_MOST_IDLE_BYTES = 256 << 20
_MOST_IDLE = 32
# Most results that stay in memory of the pool, which is the application's as long as it keeps them. Others are copied.
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
    """Array over a memory of the pool, which takes it back when the last array over it is gone."""


class _Lease(weakref.ref[_Leased]):
    """Weak reference to the array of a lease."""

    memory: SharedMemory


class StagingPool:
    """Pool of memory that a daemon can map, for any thread; its counts are only approximate."""

    def __init__(self) -> None:
        self._idle: defaultdict[int, deque[SharedMemory]] = defaultdict(deque)
        self._keeps_idle = True
        self._idle_count = self._idle_bytes = 0
        # By their identities, because a weak reference hashes what it refers to, and arrays have no hash. The pool
        # takes memory back only when memory is needed, so leases have no more than `_MOST_IDLE_BYTES` in all; memory
        # beyond that is freed with its arrays.
        self.leases: dict[int, _Lease] = {}
        # Leases whose arrays are gone. Python drops what a signal handler raises in the function that is called when an
        # array goes. So that function is not written in Python.
        self._ended: deque[weakref.ref[_Leased]] = deque()

    def take(self, size_bytes: int) -> SharedMemory:
        """Take memory of at least `size_bytes`; raise OutOfMemory."""
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
        """Take parts of at least these sizes for one run, in one memory if they are small together.

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
        """Free the memory that lies idle, and from now on all that is given back."""
        self._keeps_idle = False
        self._idle.clear()
        self.leases.clear()
        self._ended.clear()

    def leased(self, rooms: Sequence[Room], forms: Sequence[Form]) -> list[Array]:
        """Make read-only arrays of these data types and shapes over these parts of one memory.

        The parts must be all of the memory that are in use. The pool takes the memory back when the last array is gone.
        If there are `_MOST_LEASES` leases already, the arrays are copies, and the memory comes back at once.
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
            with suppressed(IndexError):  # Another thread has taken it.
                lease = self.leases.pop(id(self._ended.popleft()), None)
                if lease is not None:
                    self.give_back(lease.memory)


def pooled_bytes(size_bytes: int) -> int:
    """Return the size of the memory that the pool takes for `size_bytes`."""
    if size_bytes <= _LEAST_BYTES:
        return _LEAST_BYTES
    if size_bytes <= _SHARED_BYTES:
        return 1 << (size_bytes - 1).bit_length()
    step = (1 << (size_bytes - 1).bit_length() - 1) // _SIZES_PER_DOUBLING
    return -(-size_bytes // step) * step
