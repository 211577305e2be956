"""Enum members and the numbers that messages have for them."""

from enum import IntEnum
from typing import Any, TypeVar

from nnrt_hdi.errors import InvalidParameter

EnumT = TypeVar("EnumT", bound=IntEnum)


def known_enum(enum: type[EnumT], number: int, what: str) -> EnumT:
    """The enum member of a number from a message. Raises InvalidParameter naming the field, `what`, and the members."""
    try:
        return enum(number)
    except ValueError:
        known = ", ".join(f"{member.value} ({member.name})" for member in enum)
        raise InvalidParameter(f"{what} is {number}; use one of {known}") from None


def enum_or(fallback: EnumT, number: int) -> EnumT:
    """The enum member of a number from a message; the fallback for a number that this version doesn't know."""
    members = type(fallback).__members__.values()
    return next((member for member in members if member == number), fallback)


def number(member: IntEnum) -> Any:
    """An enum member as a message takes it: protobuf's stubs have a type for it that exists nowhere else."""
    return member.value
