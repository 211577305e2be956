"""Integers of a run, some known only there: the number of rows, and sizes that are the same for all rows."""

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from nnrt_hdi.errors import Unsupported

# Larger products are no sizes of any model.
_MOST_UNKNOWNS = 256
_LARGEST_FACTOR = 2**63


class Unknown(NamedTuple):
    """Number that is known only in a run. `is_size` says that it can't be negative."""

    serial: int
    is_size: bool = True


ROWS = Unknown(0)


@dataclass(frozen=True, slots=True)
class Size:
    """Product of a known factor and of unknown numbers, in order."""

    factor: int = 1
    unknowns: tuple[Unknown, ...] = ()

    @property
    def number(self) -> int | None:
        """The number, or None if only a run knows it."""
        return None if self.unknowns else self.factor

    @property
    def counts_rows(self) -> bool:
        return ROWS in self.unknowns

    @property
    def is_size(self) -> bool:
        """True if the number can't be negative."""
        return self.factor >= 0 and all(unknown.is_size for unknown in self.unknowns)

    def __mul__(self, other: "Size") -> "Size":
        """Multiply two sizes. Raises Unsupported for products that no model has."""
        factor = self.factor * other.factor
        if factor == 0:
            return Size(0)
        unknowns = tuple(sorted(self.unknowns + other.unknowns))
        if abs(factor) >= _LARGEST_FACTOR or len(unknowns) > _MOST_UNKNOWNS:
            raise Unsupported("it computes sizes of too many factors to follow the rows through")
        return Size(factor, unknowns)

    def divided_by(self, other: "Size") -> "Size | None":
        """Return the quotient if it is an integer whatever the unknown numbers are, else None."""
        if other.factor == 0 or self.factor % other.factor:
            return None
        mine, theirs = Counter(self.unknowns), Counter(other.unknowns)
        if not theirs <= mine:
            return None
        return Size(self.factor // other.factor, tuple(sorted((mine - theirs).elements())))


ONE = Size()
ROW_COUNT = Size(1, (ROWS,))


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of sizes. Raises Unsupported for products that no model has."""
    result = ONE
    for size in sizes:
        result *= size
    return result


class Unknowns:
    """Unknown numbers of one graph, by what they are the number of."""

    def __init__(self) -> None:
        self._made: dict[Hashable, Size] = {}

    def get(self, *thing: Hashable, is_size: bool = True) -> Size:
        """Return the number of a thing, which is the same for all rows."""
        return self._made.setdefault(thing, Size(1, (Unknown(len(self._made) + 1, is_size),)))
