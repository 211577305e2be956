"""Raw contents of a message, read where they are: protobuf would copy them twice."""

from collections.abc import Iterator

from nnrt_client.serving.errors import TooLarge
from nnrt_client.serving.requests import MOST_TEXT_BYTES
from nnrt_client.serving.wire import open_inference_pb2 as pb
from nnrt_hdi.errors import InvalidParameter

# Below, protobuf's copies take less time than looking for the contents.
_LEAST_BYTES = 1 << 16
# Most fields: each takes much more time and memory than the bytes that it has.
_MOST_FIELDS = 1 << 14
_FIELD = pb.ModelInferRequest.RAW_INPUT_CONTENTS_FIELD_NUMBER
# Wire types of protobuf's encoding: a number, 8 bytes, a length with so many bytes, 4 bytes.
_NUMBER, _EIGHT, _LENGTH, _FOUR = 0, 1, 2, 5
_SIZES = {_EIGHT: 8, _FOUR: 4}
_LONGEST_NUMBER = 10


def split(data: bytes) -> tuple[bytes, list[memoryview]]:
    """Return the bytes of a ModelInferRequest without its raw contents, and these, which are views of `data`.

    A small message is returned as it is, without views.

    Raises:
        InvalidParameter: It is no message.
        TooLarge: It has too many fields, or too many bytes besides raw contents.
    """
    if len(data) < _LEAST_BYTES:
        return data, []
    view, rest, contents = memoryview(data), list[memoryview](), list[memoryview]()
    for count, (field, begin, payload, end) in enumerate(_fields(data)):
        if count == _MOST_FIELDS:
            raise TooLarge(f"the request has more than {_MOST_FIELDS} fields")
        if field == _FIELD:
            contents.append(view[payload:end])
        else:
            rest.append(view[begin:end])
    size = sum(map(len, rest))
    if size > MOST_TEXT_BYTES:
        raise TooLarge(
            f"it has {size} bytes besides raw contents; use at most {MOST_TEXT_BYTES}, and these for tensors"
        )
    return b"".join(rest), contents


def _fields(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield each field's number, with the places where it, its payload and what follows it begin."""
    at = 0
    while at < len(data):
        begin = at
        tag, at = _number(data, at)
        field, kind = tag >> 3, tag & 7
        payload = at
        if kind == _NUMBER:
            _, at = _number(data, at)
        elif kind == _LENGTH:
            size, payload = _number(data, at)
            at = payload + size
        elif kind in _SIZES:
            at += _SIZES[kind]
        else:
            raise _no_message(begin)
        if at > len(data) or (field == _FIELD and kind != _LENGTH):
            raise _no_message(begin)
        yield field, begin, payload, at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a place, 7 bits in each byte, least first, and the place behind it."""
    number = 0
    for index, byte in enumerate(data[at : at + _LONGEST_NUMBER]):
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number, at + index + 1
    raise _no_message(at)


def _no_message(at: int) -> InvalidParameter:
    return InvalidParameter(f"the request is no ModelInferRequest: look at byte {at}")
