"""Sample data: a row or a few per operator, from which the generic tests are made.

An operand that is a tuple is a shape, filled with random numbers of the type under test; `Fixed` is a shape of a type
or range of its own; an array is what it is, and a constant of the model. Shapes of rank 4 are NHWC, and are turned for
NCHW. Attributes are numbers that FLOAT32 holds, as they travel so.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import ActivationType, Format, NodeType, PadMode

AnyArray = NDArray[Any]
Attrs = Mapping[str, Any]

HALF, SINGLE, DOUBLE = np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)
DTypes = Sequence[np.dtype[Any]]
FLOATS: tuple[np.dtype[Any], ...] = (HALF, SINGLE, DOUBLE)
SIGNED: tuple[np.dtype[Any], ...] = tuple(np.dtype(code) for code in ("i1", "i2", "i4", "i8"))
INTEGERS = SIGNED + tuple(np.dtype(code) for code in ("u1", "u2", "u4", "u8"))
NUMBERS = FLOATS + INTEGERS
BOOL = np.dtype(np.bool_)
ANY = (*NUMBERS, BOOL)
BOTH = (Format.NHWC, Format.NCHW)
PLAIN = (Format.NONE,)


@dataclass(frozen=True)
class Fixed:
    """Random numbers of one type, between bounds."""

    shape: tuple[int, ...]
    dtype: str = ""
    low: float = -4
    high: float = 4


Given = tuple[int, ...] | Fixed | AnyArray


@dataclass(frozen=True, eq=False)
class Row:
    """A node, and the types and layouts to try it with."""

    node_type: NodeType
    operands: Sequence[Given]
    attrs: Attrs = field(default_factory=dict)
    dtypes: DTypes = FLOATS
    layouts: Sequence[Format] = PLAIN


@dataclass(frozen=True, eq=False)
class Sample:
    """A node with its operands. The name is the seed of its random numbers."""

    name: str
    node_type: NodeType
    given: Sequence[Given]
    attrs: Attrs
    dtype: np.dtype[Any]
    layout: Format

    def arrays(self) -> list[AnyArray]:
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        return [self._array(random, operand) for operand in self.given]

    def is_constant(self, index: int) -> bool:
        return isinstance(self.given[index], np.ndarray)

    def layout_of(self, array: AnyArray) -> Format:
        return self.layout if array.ndim == 4 else Format.NONE

    def _array(self, random: np.random.Generator, given: Given) -> AnyArray:
        if isinstance(given, np.ndarray):
            return given
        wanted = given if isinstance(given, Fixed) else Fixed(given)
        shape = wanted.shape
        if len(shape) == 4 and self.layout is Format.NCHW:
            shape = shape[0], shape[3], shape[1], shape[2]
        dtype = np.dtype(wanted.dtype) if wanted.dtype else self.dtype
        if dtype.kind == "f":
            return random.uniform(wanted.low, wanted.high, shape).astype(dtype)
        if dtype.kind == "b":
            return random.integers(0, 2, shape).astype(dtype)
        low = max(int(wanted.low * 3), np.iinfo(dtype).min)
        return random.integers(low, int(wanted.high * 3), shape).astype(dtype)


def ints(*values: Any, dtype: str = "i8") -> AnyArray:
    """A constant operand of indices."""
    return np.array(values, dtype)


RELU = {"activation_type": ActivationType.RELU}
RELU6 = {"activation_type": ActivationType.RELU6}
SAME = {"pad_mode": PadMode.SAME}
VALID = {"pad_mode": PadMode.VALID}
