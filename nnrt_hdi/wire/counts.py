"""Counts of the messages nested in a serialized message, without parsing it.

Parsing takes too much memory: an empty message of two bytes takes forty times as many when it is parsed.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf.message import Message

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import MAX_NODES, MAX_QUANT_PARAMS, MAX_TENSORS, require_at_most
from nnrt_hdi.v2 import model_pb2, node_pb2

# Shorter messages can't contain enough others to do harm.
UNCOUNTED_BYTES = 64 * 1024
# Limit for messages of any other type.
_MOST = 1 << 17
_LIMITS: Mapping[str, int] = {
    node_pb2.Node.DESCRIPTOR.full_name: MAX_NODES,
    model_pb2.Tensor.DESCRIPTOR.full_name: MAX_TENSORS,
    model_pb2.SharedBuffer.DESCRIPTOR.full_name: MAX_TENSORS,
    model_pb2.ConstantRef.DESCRIPTOR.full_name: MAX_TENSORS,
    model_pb2.QuantParam.DESCRIPTOR.full_name: MAX_QUANT_PARAMS,
}
# Limit for fields of any kind: those of all nodes and tensors, and as many again.
_MOST_FIELDS = 1 << 22
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4}


def require_moderate(data: bytes, kind: type[Message]) -> None:
    """Raise InvalidParameter for a serialized message with more parts than any real one has.

    Raises it too for data that this function can't parse to the end, because protobuf might find more in the rest.
    Groups are such data, although protobuf skips unknown ones.
    """
    if len(data) < UNCOUNTED_BYTES:
        return
    counts: dict[str, int] = {}
    fields, at, end, nested = 0, 0, len(data), _nested(kind.DESCRIPTOR)
    outer: list[tuple[int, dict[int, Any]]] = []
    try:
        while True:
            while at == end:
                if not outer:
                    return
                end, nested = outer.pop()
            fields += 1
            if fields > _MOST_FIELDS:
                raise InvalidParameter(f"the request has more than {_MOST_FIELDS} fields")
            tag, at = _number(data, at)
            if tag & 7 == _VARINT:
                _, at = _number(data, at)
            elif tag & 7 == _BYTES:
                length, at = _number(data, at)
                if at + length > end:
                    raise _unreadable()
                inner = nested.get(tag >> 3)
                if inner is None:
                    at += length
                else:
                    name = inner.full_name
                    counts[name] = count = counts.get(name, 0) + 1
                    require_at_most(_LIMITS.get(name, _MOST), count, f"{inner.name} messages or more")
                    outer.append((end, nested))
                    end, nested = at + length, _nested(inner)
            elif (fixed_bytes := _FIXED_BYTES.get(tag & 7)) is not None:
                at += fixed_bytes
            else:
                raise _unreadable()
            if at > end:
                raise _unreadable()
    except IndexError:
        raise _unreadable() from None


def _unreadable() -> InvalidParameter:
    return InvalidParameter("the request can't be decoded: its fields don't end where they should, or are groups")


@cache
def _nested(kind: Any) -> dict[int, Any]:
    """Return the types of a message's fields that are messages, by number."""
    return {field.number: field.message_type for field in kind.fields if field.message_type is not None}


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint and the index after it."""
    number = data[at]
    at += 1
    if number < 0x80:
        return number, at
    number &= 0x7F
    shift = 7
    while (byte := data[at]) & 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise IndexError
    return number | byte << shift, at + 1
