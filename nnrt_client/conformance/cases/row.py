"""Rows: nodes with the types and layouts to test, from which the cases of one node are made.

A tuple as operand is a shape, filled with pseudorandom numbers of the type under test. `Fixed` is a shape with a type
or range of its own. An array is a constant of the model. Shapes of rank 4 are NHWC and are transposed for NCHW.
Attributes are numbers that FLOAT32 represents exactly, because they travel as FLOAT32.
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
# One data type of each size, for operators that only move elements.
SIZES = (SINGLE, *(np.dtype(code) for code in ("i1", "i2", "i8")))
# Range of integers that needs every byte of these types.
FULL: Mapping[str, Any] = {"low": -9e8, "high": 9e8}
ANY = (*NUMBERS, BOOL)
BOTH = (Format.NHWC, Format.NCHW)
PLAIN = (Format.NONE,)


@dataclass(frozen=True)
class Fixed:
    """Pseudorandom numbers of one type within bounds."""

    shape: tuple[int, ...]
    dtype: str = ""
    low: float = -4
    high: float = 4


Given = tuple[int, ...] | Fixed | AnyArray


@dataclass(frozen=True, eq=False)
class Row:
    """Node, and the data types and layouts with which to test it."""

    node_type: NodeType
    operands: Sequence[Given]
    attrs: Attrs = field(default_factory=dict)
    dtypes: DTypes = FLOATS
    layouts: Sequence[Format] = PLAIN


def ints(*values: Any, dtype: str = "i8") -> AnyArray:
    """Return a constant operand of indices."""
    return np.array(values, dtype)


RELU = {"activation_type": ActivationType.RELU}
RELU6 = {"activation_type": ActivationType.RELU6}
SAME = {"pad_mode": PadMode.SAME}
VALID = {"pad_mode": PadMode.VALID}
