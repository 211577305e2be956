"""RunRequests and RunReplies as bytes: those of tensors are copied once to be sent, and read where they arrived.

What is written and read is the published protobuf. Protobuf itself would copy a tensor four times on its way into a
message and twice on its way out, so the bytes around large tensors are written and looked for here; everything else,
small messages and whatever isn't plain, is protobuf's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple

from google.protobuf.message import Message
from typing_extensions import TypeVar

from nnrt_hdi.compression import compressed, expanded
from nnrt_hdi.tensor import Array, TensorForm, TensorSpec, flat_bytes
from nnrt_hdi.v2 import model_pb2
from nnrt_hdi.v2.prepared_model_pb2 import AwaitRunRequest, RunReply, RunRequest
from nnrt_hdi.wire.errors import at_place
from nnrt_hdi.wire.plans import planned_reply, planned_request
from nnrt_hdi.wire.runs import io_spec
from nnrt_hdi.wire.tensors import array_from_bytes

# From here on it pays to look for tensors in a message (measured).
VIEWED_BYTES = 128 * 1024

# Tags of length-delimited fields: number * 8 + 2.
_TENSORS = 2 * 8 + 2  # RunRequest.inputs, RunReply.outputs
_DATA = 5 * 8 + 2  # IOTensor.data
_PADDING = 6 * 8 + 2  # IOTensor.padding
_INLINE = 1 * 8 + 2  # SharedBuffer.inline
_REQUEST_CHUNK = 6 * 8 + 2  # RunRequest.chunk
_REPLY_CHUNK = 3 * 8 + 2  # RunReply.chunk
# Tags of numbers: number * 8.
_REQUEST_EXPANDED = 8 * 8  # RunRequest.expanded_bytes
_REPLY_EXPANDED = 6 * 8  # RunReply.expanded_bytes

# Where a processor likes to find what it computes with; the bytes of a message begin at such an address.
_ALIGNMENT = 16
# Fields of one message that are looked at before it is left to protobuf.
_MOST_FIELDS = 1024


RunMessage = RunRequest | RunReply
# Any where an annotation doesn't say which.
MessageT = TypeVar("MessageT", bound=RunMessage, default=Any)


class Incoming(Generic[MessageT]):
    """A message that has arrived. The bytes of its large tensors are not in `message` but beside it, where they are."""

    __slots__ = ("_inline", "chunk", "message")

    def __init__(self, message: MessageT, inline: Mapping[int, memoryview], chunk: memoryview | bytes) -> None:
        self.message = message
        self.chunk = chunk
        self._inline = inline

    @property
    def is_chunk(self) -> bool:
        """It has a chunk and nothing else."""
        message = self.message
        return bool(self.chunk) and len(message.ListFields()) == bool(message.chunk) + bool(message.expanded_bytes)

    @property
    def piece(self) -> memoryview | bytes:
        """The bytes of its chunk. Raises InvalidParameter for one that isn't compressed as it says."""
        return expanded(self.chunk, self.message.expanded_bytes)

    def arrays(self, tensors: Sequence[model_pb2.IOTensor], what: str) -> dict[int, Array]:
        """The large ones among its tensors, by index. Raises InvalidParameter, naming `what`."""
        if not self._inline:
            return {}
        return {
            index: at_place(f"{what} {index}", lambda: _array(view, io_spec(tensors[index])))  # noqa: B023
            for index, view in self._inline.items()
        }


def _array(view: memoryview, spec: TensorSpec) -> Array:
    array = array_from_bytes(view, TensorForm(spec))
    if not array.flags.aligned:
        array = array.copy()
        array.flags.writeable = False
    return array


# ---- writing


def request_chunk(piece: memoryview, expanded_bytes: int = 0) -> bytes:
    """A RunRequest with nothing but a chunk."""
    return _chunk(_REQUEST_CHUNK, piece, _REQUEST_EXPANDED, expanded_bytes)


def reply_chunk(piece: memoryview, expanded_bytes: int = 0) -> bytes:
    """A RunReply with nothing but a chunk."""
    return _chunk(_REPLY_CHUNK, piece, _REPLY_EXPANDED, expanded_bytes)


def compressed_reply_chunk(piece: memoryview) -> bytes:
    """A RunReply with nothing but a chunk, which is compressed where that makes it shorter."""
    packed = compressed(piece)
    return reply_chunk(piece) if packed is None else reply_chunk(memoryview(packed), piece.nbytes)


def _chunk(tag: int, piece: memoryview, expanded_tag: int, expanded_bytes: int) -> bytes:
    rest = _prefix(expanded_tag, expanded_bytes) if expanded_bytes else b""
    return b"".join((_prefix(tag, piece.nbytes), piece, rest))


def with_tensors(message: RunMessage, tensors: Sequence[tuple[model_pb2.IOTensor, Array | None]]) -> bytes:
    """A RunRequest or RunReply with these tensors: IOTensor messages, each with the array that it is to have inline, or
    None where it says itself where its data is."""
    parts: list[bytes | memoryview] = [message.SerializeToString()]
    offset = len(parts[0])
    for tensor, array in tensors:
        head = tensor.SerializeToString()
        if array is None:
            added: tuple[bytes | memoryview, ...] = (_prefix(_TENSORS, len(head)), head)
        else:
            added = _inline_tensor(head, flat_bytes(array), offset)
        parts += added
        offset += sum(map(len, added))
    return b"".join(parts)


def _inline_tensor(head: bytes, data: memoryview, offset: int) -> tuple[bytes | memoryview, ...]:
    inner = _prefix(_INLINE, data.nbytes)
    inner = _prefix(_DATA, len(inner) + data.nbytes) + inner
    # At least the two bytes of an empty padding, and as many zeros that the data is aligned.
    size = len(head) + 2 + len(inner) + data.nbytes
    padding = next(  # The prefix may become longer with it.
        padding
        for padding in range(2 * _ALIGNMENT)
        if not (offset + len(_prefix(_TENSORS, size + padding)) + size + padding - data.nbytes) % _ALIGNMENT
    )
    return _prefix(_TENSORS, size + padding), head, bytes((_PADDING, padding)) + bytes(padding), inner, data


def _prefix(tag: int, size: int) -> bytes:
    """The beginning of a length-delimited field, or a number as a field."""
    prefix = bytearray((tag,))
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix)


# ---- reading


def read_request(data: bytes) -> Incoming[RunRequest]:
    """A RunRequest. Raises DecodeError."""
    return _read(data, RunRequest.FromString, _REQUEST_CHUNK)


def read_stream_request(data: bytes) -> Incoming[RunRequest] | bytes:
    """A RunRequest; where it has nothing but a planned request, that alone. Raises DecodeError."""
    return planned_request(data) or read_request(data)


def read_reply(data: bytes) -> Incoming[RunReply]:
    """A RunReply. Raises DecodeError."""
    return _read(data, RunReply.FromString, _REPLY_CHUNK)


def read_stream_reply(data: bytes) -> Incoming[RunReply] | bytes:
    """A RunReply; where it has nothing but a planned reply, that alone. Raises DecodeError."""
    return planned_reply(data) or read_reply(data)


def _read(data: bytes, parse: Callable[[bytes], MessageT], chunk_tag: int) -> Incoming[MessageT]:
    if len(data) >= VIEWED_BYTES and (found := _found(data, chunk_tag)) is not None:
        rest, inline, chunk = found
        return Incoming(parse(rest), inline, chunk)
    message = parse(data)
    return Incoming(message, {}, message.chunk)


class _Odd(Exception):
    """Nothing wrong, perhaps, but protobuf's to read."""


class _Field(NamedTuple):
    """A field of a message: it begins with its tag, and its content ends where it does."""

    tag: int
    begin: int
    content: int
    end: int


def _found(data: bytes, chunk_tag: int) -> tuple[bytes, dict[int, memoryview], memoryview | bytes] | None:
    """The message without the bytes of its large tensors, or of its chunk, and those; None for an odd message.

    In the rest the bytes are as if they were none, so that protobuf judges everything around them.
    """
    view, inline, rest, copied, index = memoryview(data), dict[int, memoryview](), list[bytes](), 0, 0
    chunk: memoryview | bytes = b""
    seen_chunk = False
    try:
        for field in _fields(data, 0, len(data)):
            if field.tag == chunk_tag:
                if seen_chunk:
                    return None  # The last one counts.
                seen_chunk, chunk = True, view[field.content : field.end]
                rest.append(data[copied : field.begin])
                copied = field.end
            elif field.tag == _TENSORS:
                if field.end - field.content >= VIEWED_BYTES and (place := _inline_of(data, field)):
                    start, without = place
                    inline[index] = view[start.content : start.end]
                    rest += (data[copied : field.begin], _prefix(_TENSORS, len(without)), without)
                    copied = field.end
                index += 1
    except _Odd:
        return None
    rest.append(data[copied:])
    return b"".join(rest), inline, chunk


def _inline_of(data: bytes, tensor: _Field) -> tuple[_Field, bytes] | None:
    """The place of the inline bytes of an IOTensor, and its content without them; None where they are not large, or it
    is odd."""
    try:
        places = [field for field in _fields(data, tensor.content, tensor.end) if field.tag == _DATA]
        if len(places) != 1:
            return None  # Several would be merged.
        (place,) = places
        inline = next(_fields(data, place.content, place.end), None)
    except _Odd:
        return None
    if inline is None or inline.tag != _INLINE or inline.end != place.end:
        return None
    if inline.end - inline.content < VIEWED_BYTES:
        return None
    none = bytes((_DATA, 2, _INLINE, 0))
    return inline, data[tensor.content : place.begin] + none + data[place.end : tensor.end]


def _fields(data: bytes, at: int, end: int) -> Iterator[_Field]:
    """The fields of a message, one after another. Raises _Odd for tags of several bytes, groups, fixed numbers, lengths
    that take more bytes than they need, the end of the data in the middle, and more fields than is usual."""
    for _ in range(_MOST_FIELDS):
        if at == end:
            return
        begin, tag = at, data[at]
        if not 8 <= tag < 0x80 or tag & 7 not in (0, 2):
            raise _Odd
        number = shift = 0
        while True:
            at += 1
            if at >= end or shift > 63:
                raise _Odd
            byte = data[at]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        at += 1
        content = at
        if tag & 7:
            if not byte and shift:
                raise _Odd
            at += number
            if at > end:
                raise _Odd
        yield _Field(tag, begin, content, at)
    raise _Odd


# ---- for gRPC


def serialized(message: bytes | Message) -> bytes:
    """A message as gRPC takes it; one of this module is so already."""
    return message if isinstance(message, bytes) else message.SerializeToString()


# By the path of the RPC: what reads its requests in place of what the stubs have for it.
REQUEST_READERS: dict[str, Callable[[bytes], Any]] = {
    "/nnrt_hdi.v2.PreparedModel/Run": read_request,
    "/nnrt_hdi.v2.PreparedModel/RunStream": read_stream_request,
    "/nnrt_hdi.v2.PreparedModel/AwaitRun": AwaitRunRequest.FromString,
}
