"""Compression of the chunks that a session sends, and counts of the bytes that it saves."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from nnrt_hdi.compression import compressed
from nnrt_hdi.wire.packet import Bytes
from nnrt_hdi.wire.run_messages import Chunk, chunk_message


@dataclass(frozen=True, slots=True)
class CompressionStatistics:
    """Bytes of the chunks that a session has sent and received over gRPC so far.

    Chunks carry tensors of runs, in both directions, and constants of models.

    Attributes:
        plain_bytes: Size of these tensors and constants before compression.
        wire_bytes: Bytes that were sent and received for them.
    """

    plain_bytes: int = 0
    wire_bytes: int = 0

    @property
    def saved_bytes(self) -> int:
        """Bytes that compression saved."""
        return self.plain_bytes - self.wire_bytes


class Compressor:
    """Compressor of the chunks that a session sends. It also counts the bytes of chunks in both directions."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plain_bytes = self._wire_bytes = 0

    @property
    def compression_statistics(self) -> CompressionStatistics:
        with self._lock:
            return CompressionStatistics(self._plain_bytes, self._wire_bytes)

    def chunk_message(self, piece: memoryview) -> bytes:
        """Return a RunPacket message with one chunk, compressed if that makes it shorter."""
        return chunk_message(piece, self.compress(piece))

    def compress(self, piece: memoryview) -> bytes | None:
        """Compress a piece that is about to be sent. Return None if that would not make it shorter."""
        packed = compressed(piece)
        self._count(piece.nbytes, piece.nbytes if packed is None else len(packed))
        return packed

    def count_received(self, messages: Iterator[Bytes | Chunk]) -> Iterator[Bytes | Chunk]:
        """Yield the messages of a stream, and count the bytes of their chunks."""
        for message in messages:
            if isinstance(message, Chunk) and (size_bytes := len(message.data)):
                self._count(message.expanded_bytes or size_bytes, size_bytes)
            yield message
            del message  # Otherwise it would keep tensors alive.

    def _count(self, plain_bytes: int, wire_bytes: int) -> None:
        with self._lock:
            self._plain_bytes += plain_bytes
            self._wire_bytes += wire_bytes
