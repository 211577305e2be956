"""Dimensions that are known only in a run, and arithmetic on them by formulas."""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.tensor import UNKNOWN_DIM

# Most elements of a value that shape arithmetic reads.
MAX_ELEMENTS = 64
# A number with a longer formula becomes a new unknown number.
_LONGEST_FORMULA = 200
_serial = itertools.count()


@dataclass(frozen=True, slots=True)
class Dim:
    """Number that is known only in a run. Equal formulas mean equal numbers. If `is_size`, it is never negative."""

    formula: str
    is_size: bool = True

    def __add__(self, other: Any) -> "Number":
        return self if other == 0 else _combine("+", self, other, is_commutative=True)

    def __mul__(self, other: Any) -> "Number":
        if other in (0, 1) and isinstance(other, int):
            return self if other else 0
        return _combine("*", self, other, is_commutative=True)

    def __sub__(self, other: Any) -> "Number":
        return 0 if other == self else self if other == 0 else _combine("-", self, other)

    def __rsub__(self, other: Any) -> "Number":
        return _combine("-", other, self)

    def __floordiv__(self, other: Any) -> "Number":
        return 1 if other == self else self if other == 1 else _combine("/", self, other)

    def __rfloordiv__(self, other: Any) -> "Number":
        return 0 if other == 0 else _combine("/", other, self)

    def __neg__(self) -> "Number":
        return _combine("-", 0, self)

    __radd__ = __add__
    __rmul__ = __mul__


Number = int | Dim
Dims = tuple[Number, ...]
# Array of int and Dim.
Elements = NDArray[np.object_]


def shape_of(dims: Iterable[Number]) -> tuple[int, ...]:
    """Return dimensions as a model has them, -1 for those known only in a run."""
    return tuple(dim if isinstance(dim, int) else UNKNOWN_DIM for dim in dims)


def product(dims: Iterable[Number]) -> Number:
    """Return the number of elements of a shape."""
    return math.prod(dims)


def elements(values: Iterable[Number] | Number) -> Elements:
    """Return numbers as an array of objects, which can contain Dims."""
    return np.array(values if isinstance(values, int | Dim) else list(values), dtype=object)


def are_known(values: Elements) -> bool:
    return all(isinstance(value, int) for value in values.reshape(-1))


def equal(a: Number, b: Number) -> bool | None:
    """Return whether two numbers are equal, or None if that is known only in a run."""
    if a == b:
        return True
    if isinstance(a, int) and isinstance(b, int):
        return False
    dim, number = (a, b) if isinstance(a, Dim) else (b, a)
    is_never = isinstance(number, int) and number < 0 and isinstance(dim, Dim) and dim.is_size
    return False if is_never else None


def is_less(a: Number, b: Number) -> bool | None:
    """Return whether a is less than b, or None if that is known only in a run."""
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if a == b or (isinstance(a, Dim) and a.is_size and isinstance(b, int) and b <= 0):
        return False
    return True if isinstance(b, Dim) and b.is_size and isinstance(a, int) and a < 0 else None


def broadcast(a: Dims, b: Dims) -> Dims:
    """Broadcast two shapes by numpy's rules. A dimension known only in a run becomes a new unknown one."""
    rank = max(len(a), len(b))
    padded = ((1,) * (rank - len(dims)) + dims for dims in (a, b))
    return tuple(_broadcast_dim(*pair) for pair in zip(*padded, strict=True))


def _broadcast_dim(a: Number, b: Number) -> Number:
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    # A known dimension is not 1 here, so the unknown one is 1 or equal to it.
    return a if isinstance(a, int) else b if isinstance(b, int) else new_dim()


def new_dim(*, is_size: bool = True) -> Dim:
    """Return a new unknown number, which equals no other."""
    return Dim(f"?{next(_serial)}", is_size)


def _combine(sign: str, a: Any, b: Any, *, is_commutative: bool = False) -> Dim:
    texts = [part.formula if isinstance(part, Dim) else str(part) for part in (a, b)]
    is_size = sign in "+*/" and all(part.is_size if isinstance(part, Dim) else part >= 0 for part in (a, b))
    if is_commutative:
        texts.sort()
    formula = f"({texts[0]} {sign} {texts[1]})"
    return Dim(formula if len(formula) <= _LONGEST_FORMULA else new_dim().formula, is_size)
