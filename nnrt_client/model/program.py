"""Model files in a format of a device's own, which go to it as they are."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from nnrt_hdi.part import Part

ONNX = "onnx"


@dataclass(frozen=True, slots=True)
class Program:
    """A model file in parts: the model, and the data of its large tensors, each sent only where it isn't known."""

    format: str
    parts: Sequence[Part]

    @property
    def digest(self) -> bytes:
        """SHA-256 of all that decides what it computes."""
        digests = b"".join(part.sha256 for part in self.parts)
        return hashlib.sha256(b"\0".join((b"program", self.format.encode(), digests))).digest()
