"""Enum members and their numbers in messages."""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar

from nnrt_hdi.errors import InvalidParameter

EnumT = TypeVar("EnumT", bound=IntEnum)


def known_enum(enum: type[EnumT], number: int, what: str) -> EnumT:
    """Return the member for a number in a message. Raise InvalidParameter that names the field and the members."""
    members: Mapping[int, EnumT] = _members(enum)
    member = members.get(number)
    if member is None:
        known = ", ".join(f"{member.value} ({member.name})" for member in enum)
        raise InvalidParameter(f"{what} is {number}; use one of {known}")
    return member


def enum_or(fallback: EnumT, number: int) -> EnumT:
    """Return the member for a number in a message, or the fallback for an unknown number."""
    members = type(fallback).__members__.values()
    return next((member for member in members if member == number), fallback)


def number(member: IntEnum) -> Any:
    """Return the number of a member for a message field, as Any: only protobuf's stubs know the field's type."""
    return int(member)


@cache
def _members(enum: type[EnumT]) -> Mapping[int, EnumT]:
    """Return an enum's members by number; asking the enum is slow for tens of thousands of values."""
    return {int(member): member for member in enum}
