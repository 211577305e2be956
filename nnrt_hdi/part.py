"""Parts of compiled models and files: bytes with their digest."""

import hashlib
from dataclasses import dataclass

from typing_extensions import Buffer, Self

from nnrt_hdi.tensor import flat_bytes

SHA256_BYTES = 32


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes and their SHA-256. Who makes one with another's digest checks it before giving away what comes of it."""

    # Flat, and of format B.
    data: memoryview
    sha256: bytes

    @property
    def size_bytes(self) -> int:
        return self.data.nbytes

    def piece(self, start: int, size: int) -> memoryview:
        """At most so many of its bytes, from `start` on."""
        return self.data[start : start + size]

    def fill(self, memory: memoryview, start: int) -> None:
        """Copy its bytes from `start` on into memory, as many as that holds."""
        memory[:] = self.piece(start, memory.nbytes)

    @classmethod
    def of(cls, data: Buffer) -> Self:
        """The part that holds these bytes, which nobody may change from now on."""
        flat = flat_bytes(data)
        return cls(flat, hashlib.sha256(flat).digest())
