"""Addresses that represent handles in C programs. Each points to readable memory and is never used for two handles."""

import ctypes
import mmap
from itertools import count
from typing import Any

from nnrt_client.c_interface.handles import Handle, NN_Tensor, OH_NN_Memory
from nnrt_client.session.fork import ModuleLock

# Size of the memory at the address of a handle: that of an OH_NN_Memory.
_SLOT_BYTES = 16
_CHUNK_BYTES = 16 << 20


class MemoryStruct(ctypes.Structure):
    """Layout of C's struct OH_NN_Memory."""

    _fields_ = (("data", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Slots:
    """Allocator of addresses of zeroed memory, which is never freed and takes no physical memory until written."""

    def __init__(self) -> None:
        self._chunks: list[mmap.mmap] = []
        self._end = 0
        self._next = count(0)

    def take(self) -> int:
        """Return a new address. The caller holds the lock. Raise MemoryError if there is none."""
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
    """Live handles by their addresses, and the objects that C programs may point to as long as a handle lives."""

    def __init__(self) -> None:
        self._lock = ModuleLock()
        self._slots = _Slots()
        self._handles: dict[int, Handle[Any]] = {}
        self._addresses: dict[Handle[Any], int] = {}
        self._kept: dict[Handle[Any] | None, dict[object, Any]] = {}
        # Handles of memory that is freed with its executor.
        self._memory: dict[Handle[Any], set[OH_NN_Memory]] = {}
        # Function that returns the live handle at an address, or None.
        self.handle = self._handles.get

    def get(self, handle: Handle[Any]) -> int:
        """Return the address of a handle, which never changes. Raise MemoryError if there is none."""
        with self._lock.itself:
            address = self._addresses.get(handle)
            if address is None:
                address = self._slots.take()
                if isinstance(handle, OH_NN_Memory):
                    struct = MemoryStruct.from_address(address)
                    struct.data, struct.length = address_of(handle.data), handle.length
                self._handles[address], self._addresses[handle] = handle, address
        return address

    def remove(self, handle: Handle[Any]) -> None:
        """Remove a destroyed handle, and the handles and objects that live as long as it."""
        if isinstance(handle, NN_Tensor):
            self.remove(handle._desc)
        for memory in self._memory.pop(handle, ()):
            self.remove(memory)
        if isinstance(handle, OH_NN_Memory):
            for memories in list(self._memory.values()):
                memories.discard(handle)
        if (address := self._addresses.pop(handle, None)) is not None:
            del self._handles[address]
            self._kept.pop(handle, None)

    def keep_memory(self, executor: Handle[Any], memory: OH_NN_Memory) -> int:
        """Return the address of a memory's handle, which `remove` removes together with its executor's handle."""
        self._memory.setdefault(executor, set()).add(memory)
        return self.get(memory)

    def keep(self, owner: Handle[Any] | None, key: object, made: Any) -> Any:
        """Keep an object that a C program points to until its owner is destroyed, and return it.

        Args:
            owner: handle whose destruction frees the object, or None to keep it forever.
            key: key of the object. If the owner has an object with this key already, that one is kept and returned.
            made: the object.
        """
        return self._kept.setdefault(owner, {}).setdefault(key, made)


def address_of(view: memoryview | None) -> int | None:
    """Return the address of a view's bytes."""
    return None if view is None else ctypes.addressof(ctypes.c_char.from_buffer(view))


addresses = Addresses()
