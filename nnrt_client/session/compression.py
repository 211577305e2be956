"""Compression of what a session sends and receives, and the bytes that it saves."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nnrt_hdi.compression import compressed
from nnrt_hdi.wire.run_codec import Incoming, request_chunk


@dataclass(frozen=True, slots=True)
class CompressionStatistics:
    """Bytes that went over gRPC in chunks so far, of tensors of runs either way and of constants of models: how many
    these have, and how many travelled."""

    plain_bytes: int = 0
    wire_bytes: int = 0

    @property
    def saved_bytes(self) -> int:
        """Bytes that did not have to travel."""
        return self.plain_bytes - self.wire_bytes


class Compressor:
    """Compresses what a connection sends, and counts that and what it receives."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plain_bytes = self._wire_bytes = 0

    @property
    def compression_statistics(self) -> CompressionStatistics:
        with self._lock:
            return CompressionStatistics(self._plain_bytes, self._wire_bytes)

    def request_chunk(self, piece: memoryview) -> bytes:
        """A RunRequest with nothing but a chunk."""
        packed = self.packed(piece)
        return request_chunk(piece) if packed is None else request_chunk(memoryview(packed), piece.nbytes)

    def packed(self, piece: memoryview) -> bytes | None:
        """A piece that is about to be sent, compressed; None where that would not be shorter."""
        packed = compressed(piece)
        self._count(piece.nbytes, piece.nbytes if packed is None else len(packed))
        return packed

    def counted(self, replies: Iterator[Incoming]) -> Iterator[Any]:
        """These replies."""
        for reply in replies:
            if size_bytes := len(reply.chunk):
                self._count(reply.message.expanded_bytes or size_bytes, size_bytes)
            yield reply
            del reply  # It keeps no tensors alive.

    def _count(self, plain_bytes: int, wire_bytes: int) -> None:
        with self._lock:
            self._plain_bytes += plain_bytes
            self._wire_bytes += wire_bytes
