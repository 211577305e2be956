"""The raw data of large tensors, taken out of a file's bytes before protobuf copies them, twice.

Of an ONNX file only what leads to raw data is looked at:

    ModelProto.graph -> GraphProto.initializer -> TensorProto.raw_data

A tensor whose raw data is taken out says so as one does whose data is in another file (TensorProto.external_data).
"""

from collections.abc import Iterator

from onnx import TensorProto

from nnrt_client.onnx_import.messages import BYTES, Malformed, fields

# Less is left where it is.
LEAST_BYTES = 1 << 12
# The location of what lies in the file itself. No path has a zero in it.
HERE = "\0"

_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL_DATA = 7, 5, 9, 13


def without_raw_data(data: memoryview) -> bytes | None:
    """The file without the raw data of its large initializers, which say where in `data` that is; None where the bytes
    are to be parsed as they are."""
    try:
        return b"".join(_replaced(data, 0, data.nbytes, (_GRAPH, _INITIALIZER)))
    except Malformed:
        return None


def _replaced(data: memoryview, begin: int, end: int, path: tuple[int, ...]) -> Iterator[bytes | memoryview]:
    """The message with what the fields on this path lead to replaced."""
    kept = begin
    for number, start, value, stop in fields(data, begin, end):
        if number != path[0] or stop - value < LEAST_BYTES:
            continue
        inner = path[1:]
        pieces = list(_replaced(data, value, stop, inner) if inner else _tensor(data, value, stop))
        yield data[kept:start]
        yield _tag(number, BYTES) + _varint(sum(map(len, pieces)))
        yield from pieces
        kept = stop
    yield data[kept:end]


def _tensor(data: memoryview, begin: int, end: int) -> Iterator[bytes | memoryview]:
    found = list(fields(data, begin, end))
    raw = [field for field in found if field.number == _RAW_DATA]
    if len(raw) != 1 or any(field.number == _EXTERNAL_DATA for field in found):
        yield data[begin:end]
        return
    ((_, start, value, stop),) = raw
    yield data[begin:start]
    yield data[stop:end]
    place = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", HERE), ("offset", str(value)), ("length", str(stop - value))):
        place.external_data.add(key=key, value=entry)
    yield place.SerializeToString()


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)
