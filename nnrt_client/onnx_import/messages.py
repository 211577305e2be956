"""Iteration over the fields of serialized protobuf messages, without parsing their values.

A message is a sequence of fields, each a tag (field number and wire type) and a value. A nested message is a value with
its length in front (protobuf.dev/programming-guides/encoding).
"""

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Malformed(Exception):
    """Error for bytes that are no message, or use a wire type that this module can't read. Protobuf must parse them."""


class Field(NamedTuple):
    """Field of a message: offsets of the field, of its value and of its end. `number` is 0 unless the type is BYTES."""

    number: int
    begin: int
    content: int
    end: int


def fields(data: memoryview, at: int, end: int) -> Iterator[Field]:
    """Yield the fields of the message between two offsets. Raise Malformed if the bytes are no message."""
    while at < end:
        begin = at
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == BYTES:
            length, at = _varint(data, at)
        elif kind == VARINT:
            length = _varint(data, at)[1] - at
        elif kind in (FIXED64, FIXED32):
            length = 8 if kind == FIXED64 else 4
        else:
            raise Malformed
        if at + length > end:
            raise Malformed
        yield Field(tag >> 3 if kind == BYTES else 0, begin, at, at + length)
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return the number at an offset, and the offset behind it."""
    number = shift = 0
    try:
        while (byte := data[at]) & 0x80:
            number |= (byte & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if shift > 63:
                raise Malformed
    except IndexError as error:
        raise Malformed from error
    return number | byte << shift, at + 1
