"""Sizes in a run: known integers, the number of rows, other numbers that only the run knows, and their products."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nnrt_hdi.errors import Unsupported

# Limits of a size, which no size in a real model reaches.
_MOST_UNKNOWNS = 256
_LARGEST_FACTOR = 2**63


class Unknown(NamedTuple):
    """Number that only a run knows. It is never negative if `is_nonnegative`."""

    serial: int
    is_nonnegative: bool = True


ROWS = Unknown(0)


@dataclass(frozen=True, slots=True)
class Size:
    """Integer in a run: the product of a known factor and of unknown numbers, which are sorted."""

    factor: int = 1
    unknowns: tuple[Unknown, ...] = ()

    @property
    def number(self) -> int | None:
        """The integer, or None if only a run knows it."""
        return None if self.unknowns else self.factor

    @property
    def counts_rows(self) -> bool:
        return ROWS in self.unknowns

    @property
    def is_nonnegative(self) -> bool:
        """True if the integer can't be negative."""
        return self.factor >= 0 and all(unknown.is_nonnegative for unknown in self.unknowns)

    def __mul__(self, other: "Size") -> "Size":
        """Multiply two sizes. Raises Unsupported for a product beyond the limits."""
        factor = self.factor * other.factor
        if factor == 0:
            return Size(0)
        unknowns = tuple(sorted(self.unknowns + other.unknowns))
        if abs(factor) >= _LARGEST_FACTOR or len(unknowns) > _MOST_UNKNOWNS:
            raise Unsupported("it computes sizes of too many factors to follow the rows through")
        return Size(factor, unknowns)

    def divided_by(self, other: "Size") -> "Size | None":
        """Return the quotient if it is an integer for all values of the unknown numbers, else None."""
        if other.factor == 0 or self.factor % other.factor:
            return None
        mine, theirs = Counter(self.unknowns), Counter(other.unknowns)
        if not theirs <= mine:
            return None
        return Size(self.factor // other.factor, tuple(sorted((mine - theirs).elements())))


ONE = Size()
ROW_COUNT = Size(1, (ROWS,))


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes. Raises Unsupported for a product beyond the limits."""
    result = ONE
    for size in sizes:
        result *= size
    return result


class Unknowns:
    """Unknown numbers of one graph, each identified by a key."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Size] = {}

    def get(self, *thing: Hashable, is_nonnegative: bool = True) -> Size:
        """Return the unknown number of a key, made at the first call; it is the same for all rows."""
        return self._made.setdefault(thing, Size(1, (Unknown(len(self._made) + 1, is_nonnegative),)))
