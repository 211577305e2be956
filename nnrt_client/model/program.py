"""Model files in a device's own format, which the client sends without conversion."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from nnrt_hdi.part import Part

ONNX = "onnx"


@dataclass(frozen=True, slots=True)
class Program:
    """Model file in parts: the model, and the data of its large tensors. The client sends only what a daemon lacks."""

    format: str
    parts: Sequence[Part]

    @property
    def digest(self) -> bytes:
        """SHA-256 of everything that decides what the program computes."""
        digests = b"".join(part.sha256 for part in self.parts)
        return hashlib.sha256(b"\0".join((b"program", self.format.encode(), digests))).digest()
