"""Memory of a session that runs can read and write."""

import threading
from collections.abc import Iterable, Iterator
from itertools import count

from typing_extensions import Buffer

from nnrt_device_service.memory import MemoryBudget
from nnrt_hdi.errors import InvalidParameter, UnknownHandle
from nnrt_hdi.limits import MAX_BUFFER_BYTES
from nnrt_hdi.tensor import flat_bytes


class BufferPool:
    """The buffers of one session, by id. Regions are checked on every use."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._lock = threading.Lock()
        self._ids = count(1)
        # Each with its owner, if it has one.
        self._buffers: dict[int, tuple[memoryview, object]] = {}

    def allocate(self, length: int) -> int:
        """A new buffer of that many zero bytes. Raises InvalidParameter or OutOfMemory."""
        if not 1 <= length <= MAX_BUFFER_BYTES:
            raise InvalidParameter(f"length is {length}; use 1..{MAX_BUFFER_BYTES}", place="AllocateBuffer")
        return self._added(self._budget.allocate(length).data)

    def adopt_all(self, parts: Iterable[Buffer], owner: object) -> list[int]:
        """Buffers that hold these bytes, or none of them, until `release_all_of` their owner at the latest. Nobody may
        change the bytes; only the session's memory limits their size. Raises OutOfMemory."""
        made: list[int] = []
        try:
            for part in parts:
                view = flat_bytes(part)
                self._budget.take(view.nbytes)
                made.append(self._added(view.toreadonly(), owner))
        except BaseException:
            for buffer_id in made:
                self.release(buffer_id)
            raise
        return made

    def release(self, buffer_id: int) -> None:
        """Forget a buffer, if it exists; a run that uses it keeps its memory until it ends."""
        with self._lock:
            buffer, _ = self._buffers.pop(buffer_id, (None, None))
        if buffer is not None:
            self._budget.give_back(buffer.nbytes)

    def release_all_of(self, owner: object) -> None:
        for buffer_id, (_, owner_of_it) in list(self._buffers.items()):
            if owner_of_it == owner:
                self.release(buffer_id)

    def region(self, buffer_id: int, offset: int, size_bytes: int) -> memoryview:
        """A view of part of a buffer, to be read. Raises UnknownHandle or InvalidParameter."""
        buffer, _ = self._buffers.get(buffer_id, (None, None))
        if buffer is None:
            raise UnknownHandle(f"this session has no buffer {buffer_id}")
        if offset + size_bytes > buffer.nbytes:
            raise InvalidParameter(
                f"{size_bytes} bytes at {offset} pass the end; it has {buffer.nbytes} bytes",
                place=f"buffer {buffer_id}",
            )
        return buffer[offset : offset + size_bytes]

    def writable_region(self, buffer_id: int, offset: int, size_bytes: int) -> memoryview:
        """A view of part of a buffer, to be written. Raises UnknownHandle or InvalidParameter."""
        view = self.region(buffer_id, offset, size_bytes)
        if view.readonly:
            raise InvalidParameter(
                "it holds an exported model and can only be read; allocate another", place=f"buffer {buffer_id}"
            )
        return view

    def clear(self) -> None:
        for buffer_id in list(self._buffers):
            self.release(buffer_id)

    def _added(self, buffer: memoryview, owner: object = None) -> int:
        with self._lock:
            buffer_id = next(self._ids)
            self._buffers[buffer_id] = buffer, owner
        return buffer_id


def chunks(view: memoryview, size_bytes: int) -> Iterator[tuple[int, memoryview]]:
    """The view in pieces of at most that size, each with its offset."""
    return ((start, view[start : start + size_bytes]) for start in range(0, view.nbytes, size_bytes))
