"""Fields of serialized messages, found without parsing what is in them.

A message is fields, each a tag (number and kind) and a value; messages lie in each other with their length in front
(protobuf.dev/programming-guides/encoding).
"""

from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


class Malformed(Exception):
    """It is no message, or one that we don't know: protobuf itself will say."""


class Field(NamedTuple):
    """A field: where it begins, and where its value begins and ends. What is no message or bytes has the number 0."""

    number: int
    begin: int
    content: int
    end: int


def fields(data: memoryview, at: int, end: int) -> Iterator[Field]:
    """The fields of a message, none of which is looked into. Raises Malformed where it is none."""
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
    """A number, and where it ends."""
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
