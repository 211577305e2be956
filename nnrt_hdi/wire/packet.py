"""Packets of runs: frames of requests and replies, the same bytes on the local socket and over gRPC.

A packet has one or more frames. A frame has a head, perhaps a message, the regions of tensors in buffers, and the bytes
of the other tensors. The message of a request is its description (RunDescription); the daemon keeps it under the number
in the head, and later frames leave it out. The message of a reply says what differs from the description's promise
(RunOutcome). protos/README.md has the layout, docs/adr/0021-one-run.md the reasons.
"""

from collections.abc import Sequence
from operator import methodcaller
from struct import Struct

import numpy as np

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.limits import MAX_FRAMES
from nnrt_hdi.tensor import Array, flat_bytes

# First four bytes of a frame, as a number. No protobuf message begins with a zero byte.
REQUEST_MARK = 0x0100
REPLY_MARK = 0x0200
# First byte of a packet with frames, and of no message.
FIRST_BYTE = 0

# Mark, frame length, run_id, timeout_ms, number of the description, length of the description or 0.
_REQUEST_HEAD = "<IIQIII4x"
# Mark, frame length, run_id, six times (protos/README.md), length of the outcome or 0.
_REPLY_HEAD = "<IIQ6QI4x"
# buffer_id, offset, size.
_REGION = "QQQ"
# Everything in a frame begins at a multiple of this, from the start of the frame; the frame ends at one.
_ALIGNMENT = 8
# For more bytes of tensors, joining copies less often than struct does.
_JOINED_BYTES = 64 << 10

REGION_BYTES = Struct("<" + _REGION).size

request_head = Struct(_REQUEST_HEAD)
reply_head = Struct(_REPLY_HEAD)
_start = Struct("<II")

Bytes = bytes | memoryview

_bytes_of = methodcaller("tobytes")


class FrameLayout:
    """Layout of the frames of one description.

    `input_offsets` and `output_offsets` are offsets of tensors in a frame without a message, None for tensors that
    aren't in the frame; a message shifts them by `padded(len(message))`.
    """

    __slots__ = (
        "_pack_reply",
        "_pack_request",
        "_region_count",
        "input_offsets",
        "output_offsets",
        "read_regions",
        "regions_bytes",
        "reply_bytes",
        "request_bytes",
    )

    def __init__(
        self, input_bytes: Sequence[int | None], output_bytes: Sequence[int | None], region_count: int
    ) -> None:
        """Create a layout from the sizes of inline tensors (None for others), and the numbers of regions."""
        regions = Struct("<" + _REGION * region_count)
        self._region_count = region_count
        self.read_regions = regions.unpack_from
        self.regions_bytes = regions.size
        request, self.input_offsets = _with_tensors(_REQUEST_HEAD + _REGION * region_count, input_bytes)
        reply, self.output_offsets = _with_tensors(_REPLY_HEAD, output_bytes)
        self.request_bytes, self.reply_bytes = request.size, reply.size
        self._pack_request, self._pack_reply = request.pack, reply.pack

    def request(
        self,
        number: int,
        run_id: int,
        timeout_ms: int,
        regions: Sequence[int],
        tensors: Sequence[Array],
        description: bytes = b"",
    ) -> bytes:
        """Return the frame of a run.

        Args:
            number: Number of the description.
            run_id: Id of the run.
            timeout_ms: Milliseconds left; 0: no limit.
            regions: buffer_id, offset and size of each region, one after the other.
            tensors: Inline inputs, exactly as long as described: struct would silently cut or pad others.
            description: The serialized description, or empty.
        """
        if self.request_bytes <= _JOINED_BYTES and not description:
            return self._pack_request(
                REQUEST_MARK, self.request_bytes, run_id, timeout_ms, number, 0, *regions, *map(_bytes_of, tensors)
            )
        size = self.request_bytes + padded(len(description))
        head = request_head.pack(REQUEST_MARK, size, run_id, timeout_ms, number, len(description))
        places = Struct("<" + _REGION * self._region_count).pack(*regions)
        return _joined(head, description, places, tensors)

    def reply(self, run_id: int, times: Sequence[int], tensors: Sequence[Array]) -> bytes:
        """Return the frame of a reply whose outputs are as described, with the inline ones."""
        if self.reply_bytes <= _JOINED_BYTES:
            return self._pack_reply(REPLY_MARK, self.reply_bytes, run_id, *times, 0, *map(_bytes_of, tensors))
        return _joined(reply_head.pack(REPLY_MARK, self.reply_bytes, run_id, *times, 0), b"", b"", tensors)


def reply_with_outcome(run_id: int, times: Sequence[int], outcome: bytes, tensors: Sequence[Array] = ()) -> bytes:
    """Return the frame of a reply with a serialized RunOutcome and the outputs that it lists as inline."""
    size = reply_head.size + padded(len(outcome)) + sum(padded(tensor.nbytes) for tensor in tensors)
    head = reply_head.pack(REPLY_MARK, size, run_id, *times, len(outcome))
    return _joined(head, outcome, b"", tensors)


def frames_of(mark: int, packet: Bytes) -> list[tuple[int, int]]:
    """Return start and end of each frame of a packet. Raise InvalidParameter if it doesn't consist of frames."""
    end = len(packet)
    head_bytes = request_head.size if mark == REQUEST_MARK else reply_head.size
    frames: list[tuple[int, int]] = []
    at = 0
    while at < end or not frames:
        if end - at < head_bytes:
            raise InvalidParameter(f"a frame has {end - at} bytes; its head has {head_bytes}")
        found, size = _start.unpack_from(packet, at)
        if found != mark:
            raise InvalidParameter(f"a frame begins with {found:#x}; send {mark:#x}")
        if size < head_bytes or size % _ALIGNMENT or size > end - at:
            raise InvalidParameter(
                f"a frame says that it has {size} bytes; it has at least {head_bytes}, a multiple of {_ALIGNMENT}, and"
                f" the packet has {end - at} from there on"
            )
        frames.append((at, at + size))
        at += size
        if len(frames) > MAX_FRAMES:
            raise InvalidParameter(f"a packet has over {MAX_FRAMES} frames; send fewer at a time")
    return frames


def padded(size: int) -> int:
    """Return a length rounded up to the frame's alignment."""
    return size + -size % _ALIGNMENT


def _with_tensors(head: str, sizes: Sequence[int | None]) -> tuple[Struct, list[int | None]]:
    """Return a struct with tensors appended to a head, and the offset of each tensor."""
    layout, offsets, end = head, list[int | None](), Struct(head).size
    for size in sizes:
        if size is None:
            offsets.append(None)
            continue
        offsets.append(end)
        layout += f"{size}s{-size % _ALIGNMENT}x"
        end = padded(end + size)
    return Struct(layout), offsets


def _joined(head: bytes, message: bytes, places: bytes, tensors: Sequence[Array]) -> bytes:
    """Return the joined parts of a frame; each tensor is copied once."""
    parts: list[Bytes] = [head, message, bytes(-len(message) % _ALIGNMENT), places]
    for tensor in tensors:
        parts += (flat_bytes(np.ascontiguousarray(tensor)), bytes(-tensor.nbytes % _ALIGNMENT))
    return b"".join(parts)
