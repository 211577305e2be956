"""Rows: nodes, each with the types and layouts to try it with, from which the cases of one node are made.

An operand that is a tuple is a shape, filled with numbers of the type under test that look random; `Fixed` is a shape
of a type or range of its own; an array is what it is, and a constant of the model. Shapes of rank 4 are NHWC, and are
turned for NCHW. Attributes are numbers that FLOAT32 holds, as they travel so.
"""

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
# One of each size, for operators that move elements, whatever they are.
SIZES = (SINGLE, *(np.dtype(code) for code in ("i1", "i2", "i8")))
# Whole numbers that fill each of them.
FULL: Mapping[str, Any] = {"low": -9e8, "high": 9e8}
ANY = (*NUMBERS, BOOL)
BOTH = (Format.NHWC, Format.NCHW)
PLAIN = (Format.NONE,)


@dataclass(frozen=True)
class Fixed:
    """Numbers of one type that look random, between bounds."""

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


def ints(*values: Any, dtype: str = "i8") -> AnyArray:
    """A constant operand of indices."""
    return np.array(values, dtype)


RELU = {"activation_type": ActivationType.RELU}
RELU6 = {"activation_type": ActivationType.RELU6}
SAME = {"pad_mode": PadMode.SAME}
VALID = {"pad_mode": PadMode.VALID}
