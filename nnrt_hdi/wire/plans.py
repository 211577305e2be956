"""Planned runs: requests and replies of a fixed layout, for runs that differ in nothing but their bytes.

A plan is a RunRequest that the daemon keeps under the client's number for it (RunRequest.plan). What it says once,
planned packets leave out: the model, the shape of each tensor, and which tensors lie in regions of buffers.
protos/README.md describes the layout, docs/adr/0015-runs-as-plans.md why it is no message of protobuf.
"""

from collections.abc import Sequence
from struct import Struct

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.limits import LOCAL_PACKET_BYTES

# In Welcome.features of a daemon that keeps plans.
FEATURE = "plans"
# With what a planned packet begins, as a number of four bytes. No protobuf message begins with a zero byte.
REQUEST_MARK = 0x0100
REPLY_MARK = 0x0200

# Mark, number of the plan, run_id, timeout_ms.
_REQUEST_HEAD = "<IIQI4x"
# Mark, run_id, and the numbers of `wire.times_told`.
_REPLY_HEAD = "<I4xQ6Q"
# buffer_id, offset, and the bytes that there are.
_REGION = "QQQ"
# What has the bytes of a tensor begins at a multiple of this, counted from the begin of the packet.
_ALIGNMENT = 8

request_head = Struct(_REQUEST_HEAD)

# Field numbers of `planned`, times eight, and 2 for what has a length.
_REQUEST_TAG = bytes((13 * 8 + 2,))
_REPLY_TAG = bytes((10 * 8 + 2,))


class PlanLayout:
    """Where everything is in the packets of a plan.

    `pack_request(REQUEST_MARK, plan, run_id, timeout_ms, *regions, *inputs)` makes a request: `regions` are the three
    numbers of each tensor in a region, inputs first, `inputs` the bytes of the others. `request[regions]` has the
    regions, of which `read_regions` gives the numbers. `pack_reply(REPLY_MARK, run_id, *times, *outputs)` makes a
    reply, of which `reply_head` gives mark, run_id and times. The bytes of each tensor must have exactly the length
    that the plan says: struct would cut or fill others, without a word.
    """

    __slots__ = (
        "input_offsets",
        "output_offsets",
        "pack_reply",
        "pack_request",
        "read_regions",
        "regions",
        "reply_bytes",
        "reply_head",
        "request_bytes",
    )

    def __init__(self, input_bytes: Sequence[int | None], output_bytes: Sequence[int | None]) -> None:
        """Sizes of the tensors, None for one in a region. Raises InvalidParameter where there are none to be had in a
        packet, for one is empty, or they are too long for it."""
        count = input_bytes.count(None) + output_bytes.count(None)
        regions = Struct("<" + _REGION * count)
        self.regions = slice(request_head.size, request_head.size + regions.size)
        self.read_regions = regions.unpack
        request, self.input_offsets = _with_tensors(Struct(_REQUEST_HEAD + _REGION * count), input_bytes)
        reply, self.output_offsets = _with_tensors(Struct(_REPLY_HEAD), output_bytes)
        self.request_bytes, self.reply_bytes = request.size, reply.size
        self.pack_request, self.pack_reply = request.pack, reply.pack
        self.reply_head = Struct(_REPLY_HEAD).unpack_from


def _with_tensors(head: Struct, sizes: Sequence[int | None]) -> tuple[Struct, list[int | None]]:
    """The layout of a packet with these tensors behind its head, and where each one begins."""
    layout, offsets, end = head.format, list[int | None](), head.size
    for size in sizes:
        if size is None:
            offsets.append(None)
            continue
        padding = -end % _ALIGNMENT
        offsets.append(end + padding)
        layout += f"{padding}x{size}s"
        end += padding + size
        if not size > 0 or end > LOCAL_PACKET_BYTES:
            raise InvalidParameter(f"tensors of {sizes} bytes can't be in a planned packet, of {LOCAL_PACKET_BYTES}")
    return Struct(layout), offsets


# ---- over gRPC


def request_prefix(layout: PlanLayout) -> bytes:
    """With a planned request behind it, a RunRequest that has only this one, as `planned`."""
    return _REQUEST_TAG + _length(layout.request_bytes)


def reply_prefix(layout: PlanLayout) -> bytes:
    """With a planned reply behind it, a RunReply that has only this one, as `planned`."""
    return _REPLY_TAG + _length(layout.reply_bytes)


def planned_request(message: bytes) -> bytes | None:
    """The planned request in a serialized RunRequest that has only this; None for another message."""
    return _planned(message, _REQUEST_TAG)


def planned_reply(message: bytes) -> bytes | None:
    """The planned reply in a serialized RunReply that has only this; None for another message."""
    return _planned(message, _REPLY_TAG)


def _planned(message: bytes, tag: bytes) -> bytes | None:
    if message[:1] != tag:
        return None
    size = shift = 0
    for at in range(1, min(len(message), 4)):
        size |= (message[at] & 0x7F) << shift
        shift += 7
        if message[at] < 0x80:
            packet = message[at + 1 :]
            return packet if len(packet) == size else None
    return None


def _length(size: int) -> bytes:
    """A number as protobuf has it."""
    length = bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes(length)
