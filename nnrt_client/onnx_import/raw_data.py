"""The raw data of large tensors, taken out of a file's bytes before protobuf copies them, twice.

A serialized message is fields, each a tag (number and kind) and a value; messages lie in each other with their length
in front (protobuf.dev/programming-guides/encoding). Of an ONNX file only what leads to raw data is looked at:

    ModelProto.graph -> GraphProto.initializer -> TensorProto.raw_data

A tensor whose raw data is taken out says so as one does whose data is in another file (TensorProto.external_data).
"""

from collections.abc import Iterator

from onnx import TensorProto

# Less is left where it is.
LEAST_BYTES = 1 << 12
# The location of what lies in the file itself. No path has a zero in it.
HERE = "\0"

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_PLACED = (13, 14)  # external_data, data_location
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

# A field's number, where it begins, and where its value begins and ends.
_Field = tuple[int, int, int, int]


class _Malformed(Exception):
    """It is no message, or one that we don't know: protobuf itself will say."""


def without_raw_data(data: memoryview) -> bytes | None:
    """The file without the raw data of its large initializers, which say where in `data` that is; None where the bytes
    are to be parsed as they are."""
    try:
        return b"".join(_replaced(data, 0, data.nbytes, (_GRAPH, _INITIALIZER)))
    except (_Malformed, IndexError):
        return None


def _replaced(data: memoryview, begin: int, end: int, path: tuple[int, ...]) -> Iterator[bytes | memoryview]:
    """The message with what the fields on this path lead to replaced."""
    kept = begin
    for number, start, value, stop in _fields(data, begin, end):
        if number != path[0] or stop - value < LEAST_BYTES:
            continue
        inner = path[1:]
        pieces = list(_replaced(data, value, stop, inner) if inner else _tensor(data, value, stop))
        yield data[kept:start]
        yield _tag(number, _BYTES) + _varint(sum(map(len, pieces)))
        yield from pieces
        kept = stop
    yield data[kept:end]


def _tensor(data: memoryview, begin: int, end: int) -> Iterator[bytes | memoryview]:
    fields = list(_fields(data, begin, end))
    raw = [field for field in fields if field[0] == _RAW_DATA]
    if len(raw) != 1 or any(field[0] in _PLACED for field in fields):
        yield data[begin:end]
        return
    ((_, start, value, stop),) = raw
    yield data[begin:start]
    yield data[stop:end]
    place = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", HERE), ("offset", str(value)), ("length", str(stop - value))):
        place.external_data.add(key=key, value=entry)
    yield place.SerializeToString()


def _fields(data: memoryview, begin: int, end: int) -> Iterator[_Field]:
    at = begin
    while at < end:
        start = at
        tag, at = _read_varint(data, at)
        kind = tag & 7
        if kind == _BYTES:
            length, at = _read_varint(data, at)
        elif kind == _VARINT:
            _, value_end = _read_varint(data, at)
            length = value_end - at
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise _Malformed
        if at + length > end:
            raise _Malformed
        # What is no message leads nowhere.
        yield (tag >> 3 if kind == _BYTES else 0), start, at, at + length
        at += length


def _read_varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while (byte := data[at]) & 0x80:
        number |= (byte & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if shift > 63:
            raise _Malformed
    return number | byte << shift, at + 1


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)
