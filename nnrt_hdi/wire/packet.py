"""Packets of runs: frames of requests and of replies, the same bytes on the local socket and over gRPC.

A packet is one frame or several. A frame has a head, perhaps a message, the places of tensors in regions of buffers,
and the bytes of the others. The message of a request is its description (RunDescription), which the daemon keeps under
the number in the head and a later frame leaves out; that of a reply says what is not as the description promises
(RunOutcome). protos/README.md has the layout, docs/adr/0021-one-run.md the reasons.
"""

from collections.abc import Sequence
from operator import methodcaller
from struct import Struct

import numpy as np

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.limits import MAX_FRAMES
from nnrt_hdi.tensor import Array, flat_bytes

# With what a frame begins, as a number of four bytes. No message of protobuf begins with a zero byte.
REQUEST_MARK = 0x0100
REPLY_MARK = 0x0200
# What a packet with frames begins with, and no message does.
FIRST_BYTE = 0

# Mark, length of the frame, run_id, timeout_ms, number of the description, length of the description or 0.
_REQUEST_HEAD = "<IIQIII4x"
# Mark, length of the frame, run_id, the six numbers of the times (protos/README.md), length of the
# outcome or 0.
_REPLY_HEAD = "<IIQ6QI4x"
# buffer_id, offset, and the bytes that there are.
_REGION = "QQQ"
# Everything in a frame begins at a multiple of this, counted from the begin of the frame, and the frame ends at one.
_ALIGNMENT = 8
# Tensors that are longer together are copied once more by a struct than by who joins them.
_JOINED_BYTES = 64 << 10

request_head = Struct(_REQUEST_HEAD)
reply_head = Struct(_REPLY_HEAD)
_start = Struct("<II")

Bytes = bytes | memoryview

_bytes_of = methodcaller("tobytes")


class FrameLayout:
    """Where everything is in the frames of one description.

    `input_offsets` and `output_offsets` say where a tensor begins in a frame without a message, None for one that the
    frame doesn't have; a message shifts them all by `padded(len(message))`.
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
        """Take the sizes of the tensors that frames have in them, None for the others, and how many lie in regions."""
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
        """Make the frame of a run, with the three numbers of each region and the tensors that it has in it,
        each exactly as long as the description says: struct would cut or fill others without a word."""
        if self.request_bytes <= _JOINED_BYTES and not description:
            return self._pack_request(
                REQUEST_MARK, self.request_bytes, run_id, timeout_ms, number, 0, *regions, *map(_bytes_of, tensors)
            )
        size = self.request_bytes + padded(len(description))
        head = request_head.pack(REQUEST_MARK, size, run_id, timeout_ms, number, len(description))
        places = Struct("<" + _REGION * self._region_count).pack(*regions)
        return _joined(head, description, places, tensors)

    def reply(self, run_id: int, times: Sequence[int], tensors: Sequence[Array]) -> bytes:
        """Make the frame of a reply that is as its description promises, with the tensors that it has in
        it."""
        if self.reply_bytes <= _JOINED_BYTES:
            return self._pack_reply(REPLY_MARK, self.reply_bytes, run_id, *times, 0, *map(_bytes_of, tensors))
        return _joined(reply_head.pack(REPLY_MARK, self.reply_bytes, run_id, *times, 0), b"", b"", tensors)


def reply_with_outcome(run_id: int, times: Sequence[int], outcome: bytes, tensors: Sequence[Array] = ()) -> bytes:
    """Make the frame of a reply with a serialized RunOutcome, and the tensors that this says to be inline."""
    size = reply_head.size + padded(len(outcome)) + sum(padded(tensor.nbytes) for tensor in tensors)
    head = reply_head.pack(REPLY_MARK, size, run_id, *times, len(outcome))
    return _joined(head, outcome, b"", tensors)


def frames_of(mark: int, packet: Bytes) -> list[tuple[int, int]]:
    """Find where each frame of a packet begins and ends. Raises InvalidParameter for what can't be cut into frames."""
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
    """Round a length up to where the next thing in a frame begins."""
    return size + -size % _ALIGNMENT


def _with_tensors(head: str, sizes: Sequence[int | None]) -> tuple[Struct, list[int | None]]:
    """Append tensors to a layout; give it with where each one begins."""
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
    """Join the parts of a frame. The bytes of each tensor are copied once."""
    parts: list[Bytes] = [head, message, bytes(-len(message) % _ALIGNMENT), places]
    for tensor in tensors:
        parts += (flat_bytes(np.ascontiguousarray(tensor)), bytes(-tensor.nbytes % _ALIGNMENT))
    return b"".join(parts)
