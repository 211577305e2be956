"""Removal of the raw data of large tensors from a file's bytes, because protobuf would copy them twice.

Only this path through an ONNX file is followed:

    ModelProto.graph -> GraphProto.initializer -> TensorProto.raw_data

A tensor whose raw data is removed refers to it by TensorProto.external_data, as if it were in another file.
"""

from collections.abc import Iterator

from onnx import TensorProto

from nnrt_client.onnx_import.messages import BYTES, Malformed, fields
from nnrt_hdi.mapped_files import drop_pages

# Shorter raw data stays in the message.
LEAST_BYTES = 1 << 12
# Location of data in the model's file itself. No path contains a zero byte.
SAME_FILE = "\0"

_GRAPH, _INITIALIZER, _RAW_DATA, _EXTERNAL_DATA = 7, 5, 9, 13


def without_raw_data(data: memoryview) -> bytes | None:
    """Return the file without the raw data of its large initializers, which refer to it by offsets into `data`.

    Returns:
        The bytes for protobuf, or None if protobuf must parse `data` unchanged.
    """
    try:
        return b"".join(_replace_tensors(data, 0, data.nbytes, (_GRAPH, _INITIALIZER)))
    except Malformed:
        return None


def _replace_tensors(data: memoryview, begin: int, end: int, path: tuple[int, ...]) -> Iterator[bytes | memoryview]:
    """Yield the pieces of a message, with the tensors replaced to which the path of fields leads."""
    kept = begin
    for number, start, value, stop in fields(data, begin, end):
        if number != path[0] or stop - value < LEAST_BYTES:
            continue
        inner = path[1:]
        pieces = list(_replace_tensors(data, value, stop, inner) if inner else _replace_raw_data(data, value, stop))
        yield data[kept:start]
        yield _tag(number, BYTES) + _varint(sum(map(len, pieces)))
        yield from pieces
        kept = stop
    yield data[kept:end]


def _replace_raw_data(data: memoryview, begin: int, end: int) -> Iterator[bytes | memoryview]:
    found = list(fields(data, begin, end))
    raw = [field for field in found if field.number == _RAW_DATA]
    if len(raw) != 1 or any(field.number == _EXTERNAL_DATA for field in found):
        yield data[begin:end]
        return
    ((_, start, value, stop),) = raw
    yield bytes(data[begin:start])  # Copies: the views would bring the pages back.
    yield bytes(data[stop:end])
    place = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, entry in (("location", SAME_FILE), ("offset", str(value)), ("length", str(stop - value))):
        place.external_data.add(key=key, value=entry)
    yield place.SerializeToString()
    drop_pages([data[begin:end]])


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def _tag(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)
