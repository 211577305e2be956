"""Enum members and the numbers that messages have for them."""

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from typing import Any, TypeVar

from nnrt_hdi.errors import InvalidParameter

EnumT = TypeVar("EnumT", bound=IntEnum)


def known_enum(enum: type[EnumT], number: int, what: str) -> EnumT:
    """The enum member of a number from a message. Raises InvalidParameter naming the field, `what`, and the members."""
    members: Mapping[int, EnumT] = _members(enum)
    member = members.get(number)
    if member is None:
        known = ", ".join(f"{member.value} ({member.name})" for member in enum)
        raise InvalidParameter(f"{what} is {number}; use one of {known}")
    return member


def enum_or(fallback: EnumT, number: int) -> EnumT:
    """The enum member of a number from a message; the fallback for a number that this version doesn't know."""
    members = type(fallback).__members__.values()
    return next((member for member in members if member == number), fallback)


def number(member: IntEnum) -> Any:
    """An enum member as a message takes it: protobuf's stubs have a type for it that exists nowhere else."""
    return int(member)


@cache
def _members(enum: type[EnumT]) -> Mapping[int, EnumT]:
    """The members of an enum by their numbers: a model has tens of thousands, and to ask the enum is slow."""
    return {int(member): member for member in enum}
