"""Chunks: which tensors travel in chunks, how they are cut, and how they are joined."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nnrt_hdi.errors import InvalidParameter, OutOfMemory
from nnrt_hdi.tensor import Array, TensorSpec, flat_bytes

# Measured: docs/reference/performance.md, "Large tensors over TCP".
CHUNK_BYTES = 1 << 20
# In Welcome.features: a message may contain several chunks of constants, also in shared memory.
FEATURE = "chunks"
# Bytes of tensors that travel inside a message; larger ones follow in chunks.
INLINE_BYTES = 1 << 20


def beyond_inline(sizes: Iterable[int], message_bytes: int) -> set[int]:
    """Return the indexes of the tensors that don't travel inside their message."""
    room, beyond = min(INLINE_BYTES, message_bytes), set()
    for index, size in enumerate(sizes):
        if size > room:
            beyond.add(index)
        else:
            room -= size
    return beyond


def cut(data: memoryview, message_bytes: int, start: int = 0) -> Iterator[tuple[int, memoryview]]:
    """Yield pieces of the bytes from `start` on with their offsets, each of at most `message_bytes` (0: no limit)."""
    return ((begin, data[begin : begin + size]) for begin, size in cut_sizes(data.nbytes, message_bytes, start))


def cut_sizes(size_bytes: int, message_bytes: int, start: int = 0) -> Iterator[tuple[int, int]]:
    """Yield offsets and sizes of the pieces that `cut` makes."""
    most = min(CHUNK_BYTES, message_bytes or CHUNK_BYTES)
    return ((begin, min(most, size_bytes - begin)) for begin in range(start, size_bytes, most))


def pieces(arrays: Iterable[Array], message_bytes: int) -> Iterator[memoryview]:
    """Yield the bytes of contiguous arrays in pieces; no piece spans two arrays."""
    for array in arrays:
        for _, piece in cut(flat_bytes(array), message_bytes):
            yield piece


def allocate_array(spec: TensorSpec) -> Array:
    """Allocate an array for a tensor. Raise OutOfMemory if the host has no memory."""
    try:
        return np.empty(spec.shape, spec.numpy_dtype)
    except MemoryError as error:
        raise OutOfMemory(f"this host has no {spec.byte_size} bytes left for {spec}; ask for less") from error


def array_stub(spec: TensorSpec) -> Array:
    """Return a read-only array of the tensor's type, shape and size that takes up no memory."""
    return np.broadcast_to(np.empty((), spec.numpy_dtype), spec.shape)


class Assembly:
    """Arrays that are assembled from pieces, in order."""

    def __init__(self, arrays: Sequence[Array]) -> None:
        # Read-only arrays are placeholders: their pieces are counted and dropped.
        self._sizes = [array.nbytes for array in arrays]
        self._views = [flat_bytes(array) if array.flags.writeable else None for array in arrays]
        self._at = self._index = 0
        self._skip_full()

    @property
    def is_complete(self) -> bool:
        return self._index == len(self._sizes)

    def drop_rest(self) -> None:
        """Drop all further pieces."""
        self._views = [None] * len(self._sizes)

    def take(self, piece: memoryview | bytes) -> None:
        """Write the next piece.

        Raises:
            InvalidParameter: The piece is empty, or longer than the rest of its array.
        """
        end = self._at + len(piece)
        if self.is_complete or not self._at < end <= self._sizes[self._index]:
            missing = 0 if self.is_complete else self._sizes[self._index] - self._at
            raise InvalidParameter(f"a chunk has {len(piece)} bytes; {missing} are missing of the tensor it is for")
        if (view := self._views[self._index]) is not None:
            view[self._at : end] = piece
        self._at = end
        self._skip_full()

    def _skip_full(self) -> None:
        while not self.is_complete and self._at == self._sizes[self._index]:
            self._at, self._index = 0, self._index + 1
