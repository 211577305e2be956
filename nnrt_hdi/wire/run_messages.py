"""RunPackets (messages of RunStream and AwaitRun) as bytes.

The bytes are the published protobuf. Protobuf itself would copy a tensor several times, so this module writes and reads
the few bytes around it.
"""

from typing import NamedTuple

from google.protobuf.message import Message

from nnrt_hdi.compression import expanded
from nnrt_hdi.v2.prepared_model_pb2 import RunPacket
from nnrt_hdi.wire.packet import Bytes

# Tags: number * 8 + 2 for length-delimited fields, number * 8 for numbers.
_PADDING = 1 * 8 + 2
_FRAMES = 2 * 8 + 2
_CHUNK = 3 * 8 + 2
_EXPANDED = 4 * 8
# Offset of frames in a message that this module writes: aligned for fast computing.
_FRAMES_AT = 16
_ZEROS = bytes(_FRAMES_AT)


class Chunk(NamedTuple):
    """Message with the next bytes of a tensor, perhaps compressed."""

    data: Bytes
    expanded_bytes: int

    @property
    def piece(self) -> Bytes:
        """Bytes of the tensor. Raises InvalidParameter if the chunk isn't compressed as it says."""
        return expanded(self.data, self.expanded_bytes)


def frames_message(frames: bytes) -> bytes:
    """Return the message with these frames."""
    size = _varint(len(frames))
    padding = _FRAMES_AT - 3 - len(size)
    return b"".join((bytes((_PADDING, padding)), _ZEROS[:padding], bytes((_FRAMES,)), size, frames))


def chunk_message(piece: memoryview, packed: bytes | None = None) -> bytes:
    """Return the message with a chunk; `packed` is the compressed piece, if that is shorter."""
    if packed is None:
        return b"".join((bytes((_CHUNK,)), _varint(piece.nbytes), piece))
    expanded_bytes = bytes((_EXPANDED,)) + _varint(piece.nbytes)
    return b"".join((bytes((_CHUNK,)), _varint(len(packed)), packed, expanded_bytes))


def read_message(message: bytes) -> Bytes | Chunk:
    """Return the frames or the chunk of a RunPacket. Raise DecodeError.

    If a message has both, the frames count; a message with neither is an empty chunk, which nobody accepts.
    """
    view = _plain(message)
    if view is not None:
        return view
    parsed = RunPacket.FromString(message)
    return parsed.frames or Chunk(parsed.chunk, parsed.expanded_bytes)


def _plain(message: bytes) -> Bytes | Chunk | None:
    """Read a message as this module writes it; return None for one that protobuf must parse."""
    at = 0
    if message[:1] == b"\x0a" and len(message) > 1 and message[1] < 0x80:
        at = 2 + message[1]
    if at >= len(message):
        return None
    tag, size, shift, end = message[at], 0, 0, min(len(message), at + 6)
    while (at := at + 1) < end:
        size |= (message[at] & 0x7F) << shift
        shift += 7
        if message[at] < 0x80:
            break
    content = memoryview(message)[at + 1 :]
    if at == end or len(content) != size or not size:
        return None
    if tag == _FRAMES:
        return content
    return Chunk(content, 0) if tag == _CHUNK else None


def _varint(number: int) -> bytes:
    """Return a number as a varint of protobuf."""
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def serialized(message: bytes | Message) -> bytes:
    """Serialize a message for gRPC; bytes of this module pass unchanged."""
    return message if isinstance(message, bytes) else message.SerializeToString()
