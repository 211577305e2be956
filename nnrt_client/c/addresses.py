"""Handles as C programs have them: addresses of readable memory, each of which is given once."""

import ctypes
import mmap
from itertools import count
from typing import Any

from nnrt_client.c_interface.handles import Handle, NN_Tensor, OH_NN_Memory
from nnrt_client.session.fork import ModuleLock

# What a handle leads to: as much as an OH_NN_Memory has. It takes memory only where something is written.
_SLOT_BYTES = 16
_CHUNK_BYTES = 16 << 20


class MemoryStruct(ctypes.Structure):
    """C's OH_NN_Memory."""

    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Slots:
    """Addresses of zeroed memory that is never freed. Nothing but virtual memory is taken by those that nobody
    writes."""

    def __init__(self) -> None:
        self._chunks: list[mmap.mmap] = []
        self._end = 0
        self._next = count(0)

    def take(self) -> int:
        """One more address. Raises MemoryError. With the lock held."""
        address = next(self._next)
        if address >= self._end:
            try:
                chunk = mmap.mmap(-1, _CHUNK_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except OSError as error:
                raise MemoryError("no memory is left for handles") from error
            self._chunks.append(chunk)
            address = ctypes.addressof(ctypes.c_char.from_buffer(chunk))
            self._next, self._end = count(address + _SLOT_BYTES, _SLOT_BYTES), address + _CHUNK_BYTES
        return address


class Addresses:
    """The handles that are alive, by their addresses, and what C programs have pointers to as long as these are."""

    def __init__(self) -> None:
        self._lock = ModuleLock()
        self._slots = _Slots()
        self._handles: dict[int, Handle[Any]] = {}
        self._addresses: dict[Handle[Any], int] = {}
        self._kept: dict[Handle[Any] | None, dict[object, Any]] = {}
        # Memory that goes with its executor.
        self._memory: dict[Handle[Any], set[OH_NN_Memory]] = {}
        # The handle at an address; None for a null pointer, and for what is no handle or none any more.
        self.handle = self._handles.get

    def of(self, handle: Handle[Any]) -> int:
        """The address of a handle: always the same. Raises MemoryError."""
        with self._lock.itself:
            address = self._addresses.get(handle)
            if address is None:
                address = self._slots.take()
                if isinstance(handle, OH_NN_Memory):
                    struct = MemoryStruct.from_address(address)
                    struct.data, struct.length = address_of(handle.data), handle.length
                self._handles[address], self._addresses[handle] = handle, address
        return address

    def forget(self, handle: Handle[Any]) -> None:
        """Forget a handle that has been destroyed, and what it lent."""
        if isinstance(handle, NN_Tensor):
            self.forget(handle._desc)
        for memory in self._memory.pop(handle, ()):
            self.forget(memory)
        if isinstance(handle, OH_NN_Memory):
            for memories in list(self._memory.values()):
                memories.discard(handle)
        if (address := self._addresses.pop(handle, None)) is not None:
            del self._handles[address]
            self._kept.pop(handle, None)

    def allocated(self, executor: Handle[Any], memory: OH_NN_Memory) -> int:
        """The address of memory that its executor has allocated, and frees with itself."""
        self._memory.setdefault(executor, set()).add(memory)
        return self.of(memory)

    def keep(self, owner: Handle[Any] | None, key: object, made: Any) -> Any:
        """Keep what a C program gets a pointer to until its owner is destroyed, or for good; what was kept under the
        same key is given in its place."""
        return self._kept.setdefault(owner, {}).setdefault(key, made)


def address_of(view: memoryview | None) -> int | None:
    """Find the address of the bytes of a view."""
    return None if view is None else ctypes.addressof(ctypes.c_char.from_buffer(view))


addresses = Addresses()
