"""Buffers of a session, which runs can read and write."""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from typing import NamedTuple

from typing_extensions import Buffer

from nnrt_device_service.memory.device_memory import DeviceHeap, DeviceMemory, DeviceRange
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.settings import LimitReached
from nnrt_hdi import shared_memory
from nnrt_hdi.errors import InvalidParameter, OutOfMemory, UnavailableDevice, UnknownHandle
from nnrt_hdi.limits import FIRST_CLIENT_BUFFER_ID, MAX_BUFFER_BYTES
from nnrt_hdi.tensor import flat_bytes


class Region(NamedTuple):
    """Part of a buffer."""

    buffer_id: int
    offset: int
    data_size: int


class DerivedFromRegions:
    """Object derived from regions, which `BufferPool` keeps until a buffer is released."""

    __slots__ = ()


class _Buffer(NamedTuple):
    view: memoryview
    # Model id whose release also releases the buffer, or None.
    owner: object = None
    # Descriptor of its memory, if that can be shared with the client.
    fd: int | None = None
    is_shared: bool = False
    # Its memory if that is the device's; the view is empty then.
    memory: DeviceMemory | None = None

    @property
    def nbytes(self) -> int:
        return self.view.nbytes if self.memory is None else self.memory.size_bytes


_NOTHING = memoryview(b"")
_NONE = _Buffer(_NOTHING)

# Limits of the kept objects: their number, and the regions of each. They are so few that no budget counts them.
_MOST_KEPT = 64
_MOST_REGIONS = 16


class BufferPool:
    """Buffers of one session, by id, and objects derived from their regions.

    `kept(key)` returns the object that `keep` stored, until a buffer is released. Runs call it, so it takes no lock.
    """

    def __init__(self, budget: MemoryBudget, most_shared: int = 0) -> None:
        """Make a pool with at most `most_shared` buffers of shared memory: each takes descriptors of this process."""
        self._budget = budget
        self._most_shared = most_shared
        self._shared = 0
        self._lock = threading.Lock()
        self._ids = count(1)
        self._buffers: dict[int, _Buffer] = {}
        self._kept: dict[tuple[object, bytes], DerivedFromRegions] = {}
        self.kept = self._kept.get
        # Number of buffers released so far.
        self.releases = 0
        self._is_open = True

    def allocate(self, length: int, to_share: bool = False, heap: DeviceHeap | None = None) -> int:
        """Allocate a buffer of zero bytes and return its id.

        It lies in the device's memory if the heap has some, else in shared memory if `to_share`, else in memory of the
        daemon. Raises InvalidParameter, OutOfMemory, and UnavailableDevice if the device fails.
        """
        _require_length(length, "AllocateBuffer")
        memory = self._allocate_on_device(length, heap) if heap is not None else None
        if memory is not None:
            return self._add(_Buffer(_NOTHING, memory=memory))
        if to_share:
            with suppress(OutOfMemory):  # Descriptors may be used up, which the daemon's own memory doesn't need.
                return self._allocate_shared(length)
        return self._add(_Buffer(self._budget.allocate(length).data))

    def _allocate_on_device(self, length: int, heap: DeviceHeap) -> DeviceMemory | None:
        """Allocate device memory, which counts in the budget until it is freed, perhaps after its release."""
        self._budget.reserve(length)
        give_back = partial(self._budget.release, length)
        try:
            memory = heap.allocate(length, give_back)
        except BaseException:
            give_back()
            raise
        if memory is None:
            give_back()
        return memory

    def _allocate_shared(self, length: int) -> int:
        with self._reserved_shared(length):
            fd, view = shared_memory.allocated(length, "nnrt-buffer")
        return self._add(_Buffer(view, None, fd, True))

    def adopt(self, fd: int, length: int, buffer_id: int = 0) -> int:
        """Map the first `length` bytes of a client's shared memory as a buffer, and return its id.

        The client may choose the id, from FIRST_CLIENT_BUFFER_ID on; an id in use keeps its buffer. The caller closes
        the descriptor. Raises InvalidParameter or OutOfMemory.
        """
        _require_length(length, "ShareBuffer")
        if buffer_id and buffer_id < FIRST_CLIENT_BUFFER_ID:
            raise InvalidParameter(
                f"buffer_id is {buffer_id}; use 0, or {FIRST_CLIENT_BUFFER_ID} and above", place="ShareBuffer"
            )
        with self._lock:
            if buffer_id in self._buffers:
                return buffer_id
        with self._reserved_shared(length):
            view = shared_memory.mapped(fd, length)
        return self._add(_Buffer(view, is_shared=True), buffer_id)

    @contextmanager
    def _reserved_shared(self, length: int) -> Iterator[None]:
        """Count the shared memory that the block allocates, and undo that if the block fails. Raises OutOfMemory."""
        with self._lock:
            if self._shared >= self._most_shared:
                raise LimitReached(
                    f"this session shares {self._shared} buffers, its limit; release one, or raise the daemon's"
                    " --session-buffers",
                    "--session-buffers",
                )
            self._shared += 1
        try:
            self._budget.reserve(length)
            try:
                yield
            except BaseException:
                self._budget.release(length)
                raise
        except BaseException:
            with self._lock:
                self._shared -= 1
            raise

    def descriptor(self, buffer_id: int) -> tuple[int, int]:
        """Return a new descriptor of a buffer's memory, which the caller closes, and the buffer's length.

        Raises UnknownHandle, InvalidParameter if the buffer has no descriptor, and OutOfMemory.
        """
        with self._lock:
            buffer = self._buffer(buffer_id)
            if buffer.fd is None:
                raise InvalidParameter(
                    "it has no descriptor; it is memory of the device, or was allocated before the session was attached"
                    " to the local socket",
                    place=f"buffer {buffer_id}",
                )
            try:
                return os.dup(buffer.fd), buffer.view.nbytes
            except OSError as error:
                raise OutOfMemory(f"its memory could not be given: {error.strerror}") from error

    def adopt_all(self, parts: Iterable[Buffer], owner: object) -> list[int]:
        """Make read-only buffers of all these bytes and return their ids, or make none and raise OutOfMemory.

        `release_all_of(owner)` releases them at the latest. Only the session's budget limits their size. The caller
        must not change the bytes any more.
        """
        made: list[int] = []
        try:
            for part in parts:
                view = flat_bytes(part)
                self._budget.reserve(view.nbytes)
                made.append(self._add(_Buffer(view.toreadonly(), owner)))
        except BaseException:
            for buffer_id in made:
                self.release(buffer_id)
            raise
        return made

    def release(self, buffer_id: int) -> None:
        """Release a buffer, if it exists; a run that uses it keeps its memory until the run has ended."""
        with self._lock:
            buffer = self._buffers.pop(buffer_id, _NONE)
            self.releases += 1
            dropped = list(self._kept.values())  # To be destroyed, with its memory, after the lock is released.
            self._kept.clear()
            self._shared -= buffer.is_shared
            if buffer.fd is not None:
                os.close(buffer.fd)
        del dropped
        if buffer.memory is not None:
            buffer.memory.close()
        elif buffer is not _NONE:
            self._budget.release(buffer.nbytes)

    def keep(self, key: tuple[object, bytes], value: DerivedFromRegions, region_count: int, releases: int) -> None:
        """Keep an object that was derived from regions, unless a buffer has been released since.

        `releases` is the pool's `releases` from before the object was made.
        """
        if region_count > _MOST_REGIONS:
            return
        with self._lock:
            if releases == self.releases:
                if len(self._kept) >= _MOST_KEPT:
                    self._kept.clear()
                self._kept[key] = value

    def release_all_of(self, owner: object) -> None:
        for buffer_id, buffer in list(self._buffers.items()):
            if buffer.owner == owner:
                self.release(buffer_id)

    def is_on_device(self, buffer_id: int) -> bool:
        """Return whether a buffer lies in the device's memory; raise UnknownHandle."""
        return self._buffer(buffer_id).memory is not None

    def region(self, buffer_id: int, offset: int, size_bytes: int) -> memoryview | DeviceRange:
        """Return a part of a buffer for reading; raise UnknownHandle, or InvalidParameter if it passes the end."""
        buffer = self._buffer(buffer_id)
        if offset + size_bytes > buffer.nbytes:
            raise InvalidParameter(
                f"{size_bytes} bytes at {offset} pass the end; it has {buffer.nbytes} bytes",
                place=f"buffer {buffer_id}",
            )
        if buffer.memory is not None:
            return DeviceRange(buffer.memory, offset, size_bytes)
        return buffer.view[offset : offset + size_bytes]

    def writable_region(self, buffer_id: int, offset: int, size_bytes: int) -> memoryview | DeviceRange:
        """Return a part of a buffer for writing; raise UnknownHandle, or InvalidParameter also for a read-only one."""
        place = self.region(buffer_id, offset, size_bytes)
        if isinstance(place, memoryview) and place.readonly:
            raise InvalidParameter(
                "it can only be read, for it holds an exported model or is sealed against writing; use another",
                place=f"buffer {buffer_id}",
            )
        return place

    @property
    def held_bytes(self) -> int:
        return sum(buffer.nbytes for buffer in list(self._buffers.values()))

    def close(self) -> None:
        """Release all buffers and accept no more."""
        with self._lock:
            self._is_open = False
        for buffer_id in list(self._buffers):
            self.release(buffer_id)

    def _buffer(self, buffer_id: int) -> _Buffer:
        try:
            return self._buffers[buffer_id]
        except KeyError:
            raise UnknownHandle(f"this session has no buffer {buffer_id}") from None

    def _add(self, buffer: _Buffer, chosen_id: int = 0) -> int:
        """Add a buffer, whose bytes are reserved already, and return its id; an id in use keeps its buffer."""
        with self._lock:
            if chosen_id in self._buffers:  # Another connection has just shared it.
                self._shared -= buffer.is_shared
                self._budget.release(buffer.view.nbytes)
                return chosen_id
            buffer_id = chosen_id or next(self._ids)
            self._buffers[buffer_id] = buffer
            is_open = self._is_open
        if not is_open:
            self.release(buffer_id)
            raise UnavailableDevice("the session has ended")
        return buffer_id


def _require_length(length: int, place: str) -> None:
    if not 1 <= length <= MAX_BUFFER_BYTES:
        raise InvalidParameter(f"length is {length}; use 1..{MAX_BUFFER_BYTES}", place=place)
