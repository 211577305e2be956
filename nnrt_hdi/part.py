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

    @classmethod
    def of(cls, data: Buffer) -> Self:
        """The part that holds these bytes, which nobody may change from now on."""
        flat = flat_bytes(data)
        return cls(flat, hashlib.sha256(flat).digest())
