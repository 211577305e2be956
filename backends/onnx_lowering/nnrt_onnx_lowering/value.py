"""Tensors of a model of ONNX under construction, and what can be done with them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from nnrt_hdi.tensor import UNKNOWN_DIM, Shape
from nnrt_onnx_lowering.engine import AnyDType, Engine
from nnrt_onnx_lowering.memory_order import after, axis_in_memory

AnyArray = NDArray[Any]

BOOL, INT64, FLOAT32 = np.dtype(np.bool_), np.dtype(np.int64), np.dtype(np.float32)

# The elements of a vector: numbers, and vectors of one that the run makes.
Parts = tuple["int | Value", ...]


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """A tensor of the model under construction.

    In memory its dimension layout[n] is the n-th; an empty layout is that of its own dimensions. A constant has its
    elements `data` as they lie in memory. `shape` is what is known of a node's operand or result, and `elements` are
    those of a small constant: all that a lowering may decide by. `parts` are the elements of a vector, or the one of a
    number, where each is known or can be had by itself (see `vectors`).
    """

    op: "Operators"
    dtype: AnyDType
    rank: int | None
    name: str = ""
    data: AnyArray | None = None
    layout: Shape = ()
    shape: Shape = ()
    elements: AnyArray | None = None
    parts: Parts = ()

    def __add__(self, other: "Given") -> "Value":
        return self.op.Add(self, other)

    def __sub__(self, other: "Given") -> "Value":
        return self.op.Sub(self, other)

    def __mul__(self, other: "Given") -> "Value":
        return self.op.Mul(self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: "Given") -> "Value":
        return self.op.Div(self, other)

    def __neg__(self) -> "Value":
        return self.op.Neg(self)

    def cast(self, dtype: AnyDType) -> "Value":
        """The elements in another data type."""
        if dtype == self.dtype:
            return self
        if self.data is not None:
            with np.errstate(all="ignore"):
                return replace(self, dtype=dtype, data=self.data.astype(dtype), elements=None)
        return replace(self.op.Cast(self, to=element_type(dtype)), shape=self.shape)

    def known(self, rank: int, shape: Shape) -> "Value":
        """Give the same, of which so much is known. Every node has its results come this way."""
        return Value(self.op, self.dtype, rank, self.name, self.data, self.layout, shape, self.elements, self.parts)

    def transposed(self, permutation: Sequence[int]) -> "Value":
        """With dimension permutation[n] as the n-th: only read so."""
        shape = tuple(self.shape[axis] for axis in permutation) if self.shape else ()
        layout = after(self.layout, permutation)
        return replace(self, rank=len(permutation), layout=layout, shape=shape, elements=None, parts=())


Given = Value | int | float | AnyArray


class Operators(ABC):
    """The operators of ONNX, which are the methods that begin with a capital, and what is said with them."""

    engine: Engine

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        return partial(self._one, op_type)

    def Max(self, a: Value, b: Given) -> Value:
        """The larger ones. ONNX Runtime takes the lower half of INT64 for signed where the upper ones are equal."""
        return self.Where(self.Less(a, b), b, a) if a.dtype == INT64 else self._one("Max", a, b)

    def Min(self, a: Value, b: Given) -> Value:
        """The lesser ones; as `Max`."""
        return self.Where(self.Less(b, a), b, a) if a.dtype == INT64 else self._one("Min", a, b)

    @abstractmethod
    def _one(self, op_type: str, *inputs: Given | None, domain: str = "", **attrs: Any) -> Value:
        """An operator with one output. Numbers become constants of the data type of the first tensor."""

    @abstractmethod
    def several(self, op_type: str, outputs: int, *inputs: Given | None, **attrs: Any) -> tuple[Value, ...]:
        """An operator with several outputs, as `_one`."""

    @abstractmethod
    def in_layout(self, x: Value, layout: Shape) -> Value:
        """x in memory with dimension layout[n] as the n-th."""

    @abstractmethod
    def lies_in(self, x: Value, layout: Shape) -> bool:
        """x can be had in this layout without another transpose in the model."""

    def constant(self, data: AnyArray, elements: AnyArray | None = None) -> Value:
        return Value(self, data.dtype, data.ndim, data=data, shape=data.shape, elements=elements)

    def scalar(self, number: float, dtype: AnyDType) -> Value:
        with np.errstate(all="ignore"):
            return self.constant(np.array(number).astype(dtype))

    def ints(self, numbers: Sequence[int]) -> Value:
        """A vector of INT64, as ONNX takes axes and sizes."""
        return self.constant(np.array(numbers, INT64))

    def size(self, x: Value, axis: int) -> "int | Value":
        """The length of a dimension: a number if it is known, else a vector of one that the run makes."""
        if x.shape and x.shape[axis] != UNKNOWN_DIM:
            return x.shape[axis]
        at = axis_in_memory(x.layout, axis)
        return replace(self.Shape(replace(x, layout=()), start=at, end=at + 1), rank=1)

    def sizes(self, x: Value) -> Value:
        """All dimensions of x, as a vector."""
        assert x.rank is not None
        return self.vector([self.size(x, axis) for axis in range(x.rank)])

    def vector(self, parts: "Sequence[int | Value]") -> Value:
        """Numbers and vectors of INT64 behind each other."""
        if all(isinstance(part, int) for part in parts):
            return self.ints([part for part in parts if isinstance(part, int)])
        if len(parts) == 1 and isinstance(parts[0], Value):
            return parts[0]
        vectors_of_one = [self.ints([part]) if isinstance(part, int) else part for part in parts]
        (joined,) = self.several("Concat", 1, *vectors_of_one, axis=0)
        return replace(joined, rank=1, parts=tuple(parts))

    def element(self, part: "int | Value") -> Value:
        """A number of INT64, which may stand in a vector of one."""
        if isinstance(part, int):
            return self.constant(np.array(part, INT64))
        (number,) = self.several("Squeeze", 1, part, self.ints([0]))
        return replace(number, rank=0, parts=(part,))

    def range(self, start: int, limit: "int | Value", delta: int) -> Value:
        """Numbers from start to limit, which says their data type; INT64 if it is none."""
        dtype = limit.dtype if isinstance(limit, Value) else INT64
        numbers = (self._value(number, dtype) for number in (start, limit, delta))
        return replace(self.Range(*numbers), rank=1)

    def reshape(self, x: Value, shape: "Sequence[int | Value]") -> Value:
        """x in another shape; a single dimension that nothing is known of takes the rest."""
        x, wanted = self.plain(x), self.vector(shape)
        if x.data is not None and wanted.data is not None:
            return self.constant(x.data.reshape(wanted.data.tolist()), x.elements)
        # Without it a 0 copies a dimension of x.
        may_hold_zero = -1 not in shape if wanted.data is None else 0 in wanted.data
        return replace(self.Reshape(x, wanted, **({"allowzero": 1} if may_hold_zero else {})), rank=len(shape))

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """x with dimensions of length 1 at these places of the result."""
        if not axes:
            return x
        assert x.rank is not None
        return replace(self.Unsqueeze(x, self.ints(axes)), rank=x.rank + len(axes))

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """x without these dimensions of length 1."""
        if not axes:
            return x
        assert x.rank is not None
        return replace(self.Squeeze(x, self.ints(axes)), rank=x.rank - len(axes))

    def plain(self, x: Value) -> Value:
        """x in memory as it is."""
        return self.in_layout(x, ())

    def _value(self, given: Given, dtype: AnyDType) -> Value:
        if isinstance(given, Value):
            return given
        return self.constant(given) if isinstance(given, np.ndarray) else self.scalar(given, dtype)


@cache
def element_type(dtype: AnyDType) -> int:
    """ONNX's number of a data type."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))
