"""Parts of compiled models and files: bytes with their digest."""

from dataclasses import dataclass

from typing_extensions import Buffer, Self

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.mapped_files import reading, sha256_of
from nnrt_hdi.tensor import flat_bytes

SHA256_BYTES = 32


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes and their SHA-256. Whoever takes the digest from somebody else checks it before using the part."""

    # Flat, of format B.
    data: memoryview
    sha256: bytes

    @property
    def size_bytes(self) -> int:
        return self.data.nbytes

    def piece(self, start: int, size: int) -> memoryview:
        """Return at most `size` bytes from `start` on."""
        return self.data[start : start + size]

    def fill(self, memory: memoryview, start: int) -> None:
        """Fill memory with bytes from `start` on."""
        piece = self.piece(start, memory.nbytes)
        with reading(piece):
            memory[:] = piece

    @classmethod
    def of(cls, data: Buffer) -> Self:
        """Return a part of these bytes, which nobody may change from now on."""
        flat = flat_bytes(data)
        return cls(flat, sha256_of(flat))


class AbsentPart(Part):
    """Part of which only digest and size are known here, for receivers that have the bytes."""

    __slots__ = ("_size_bytes",)

    _size_bytes: int

    def __init__(self, sha256: bytes, size_bytes: int) -> None:
        object.__setattr__(self, "sha256", sha256)
        object.__setattr__(self, "_size_bytes", size_bytes)

    @property
    def data(self) -> memoryview:
        """Raises InvalidParameter: there is nothing to read."""
        raise InvalidParameter("its data is not here; give the whole model")

    @property
    def size_bytes(self) -> int:
        return self._size_bytes
