"""Tensors of an ONNX model under construction, and the operators that make them."""

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
from nnrt_onnx_lowering.memory_order import axis_in_memory, permuted_layout

AnyArray = NDArray[Any]

BOOL, INT64, FLOAT32 = np.dtype(np.bool_), np.dtype(np.int64), np.dtype(np.float32)

# The elements of an INT64 vector: each is a known number, or a vector with one element that the run computes.
Parts = tuple["int | Value", ...]


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """Tensor of the model under construction.

    `layout` is the order of its dimensions in memory: layout[n] is the n-th there; empty means the logical order.
    `data` are the elements of a constant in that order, or None for other tensors. `parts` are the elements of a small
    vector or number one by one, where they are known (see `vectors`), else empty.

    Besides data type and rank, lowerings read two attributes. `shape` is the shape of a node's operand or result as far
    as inference knows it, or empty. `elements` are the elements of a small constant, in logical order.
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
        """Convert the elements to another data type."""
        if dtype == self.dtype:
            return self
        if self.data is not None:
            with np.errstate(all="ignore"):
                return replace(self, dtype=dtype, data=self.data.astype(dtype), elements=None)
        return replace(self.op.Cast(self, to=element_type(dtype)), shape=self.shape)

    def with_inferred(self, rank: int, shape: Shape) -> "Value":
        """Return the tensor with the rank and the shape that inference found; all nodes' results pass through here."""
        return Value(self.op, self.dtype, rank, self.name, self.data, self.layout, shape, self.elements, self.parts)

    def transposed(self, permutation: Sequence[int]) -> "Value":
        """Return the tensor with dimension permutation[n] as its n-th. Only the layout changes, not the memory."""
        shape = tuple(self.shape[axis] for axis in permutation) if self.shape else ()
        layout = permuted_layout(self.layout, permutation)
        return replace(self, rank=len(permutation), layout=layout, shape=shape, elements=None, parts=())


Given = Value | int | float | AnyArray


class Operators(ABC):
    """ONNX's operators, as methods with a capital letter, and helpers built on them, as methods without.

    They add nodes to the model under construction, unless the result is constant, and return the results.
    """

    engine: Engine

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        if not op_type[:1].isupper():
            raise AttributeError(op_type)
        return partial(self._add_single, op_type)

    def Max(self, a: Value, b: Given) -> Value:
        """Return the larger elements.

        INT64 is compared with Less instead of ONNX's Max: where the upper halves of two numbers are equal, ONNX
        Runtime's Max compares the lower halves as signed numbers.
        """
        return self.Where(self.Less(a, b), b, a) if a.dtype == INT64 else self._add_single("Max", a, b)

    def Min(self, a: Value, b: Given) -> Value:
        """Return the smaller elements. INT64 is compared with Less, for the reason that `Max` gives."""
        return self.Where(self.Less(b, a), b, a) if a.dtype == INT64 else self._add_single("Min", a, b)

    @abstractmethod
    def _add_single(self, op_type: str, *inputs: Given | None, domain: str = "", **attrs: Any) -> Value:
        """Add an operator with one output. Numbers become constants of the data type of the first tensor."""

    @abstractmethod
    def multi_output(self, op_type: str, outputs: int, *inputs: Given | None, **attrs: Any) -> tuple[Value, ...]:
        """Add an operator with several outputs. Numbers become constants as in `_add_single`."""

    @abstractmethod
    def in_layout(self, x: Value, layout: Shape) -> Value:
        """Return x with dimension layout[n] as the n-th in memory; adds a Transpose if the layout differs."""

    @abstractmethod
    def has_layout(self, x: Value, layout: Shape) -> bool:
        """Return whether `in_layout` adds no Transpose."""

    def constant(self, data: AnyArray, elements: AnyArray | None = None) -> Value:
        """Return a constant with the elements of `data`. Lowerings that need to know them read `elements`, if given."""
        return Value(self, data.dtype, data.ndim, data=data, shape=data.shape, elements=elements)

    def scalar(self, number: float, dtype: AnyDType) -> Value:
        """Return a constant without dimensions."""
        with np.errstate(all="ignore"):
            return self.constant(np.array(number).astype(dtype))

    def ints(self, numbers: Sequence[int]) -> Value:
        """Return a constant INT64 vector, the form of axes and sizes in ONNX."""
        return self.constant(np.array(numbers, INT64))

    def size(self, x: Value, axis: int) -> "int | Value":
        """Return the length of a dimension: a known number, or a vector with one element that the run computes."""
        if x.shape and x.shape[axis] != UNKNOWN_DIM:
            return x.shape[axis]
        at = axis_in_memory(x.layout, axis)
        return replace(self.Shape(replace(x, layout=()), start=at, end=at + 1), rank=1)

    def sizes(self, x: Value) -> Value:
        """Return the lengths of all dimensions of x as a vector."""
        assert x.rank is not None
        return self.vector([self.size(x, axis) for axis in range(x.rank)])

    def vector(self, parts: "Sequence[int | Value]") -> Value:
        """Join numbers and INT64 vectors into one vector, in order."""
        if all(isinstance(part, int) for part in parts):
            return self.ints([part for part in parts if isinstance(part, int)])
        if len(parts) == 1 and isinstance(parts[0], Value):
            return parts[0]
        vectors_of_one = [self.ints([part]) if isinstance(part, int) else part for part in parts]
        (joined,) = self.multi_output("Concat", 1, *vectors_of_one, axis=0)
        return replace(joined, rank=1, parts=tuple(parts))

    def element(self, part: "int | Value") -> Value:
        """Return a tensor without dimensions, made of a number or of the only element of an INT64 vector."""
        if isinstance(part, int):
            return self.constant(np.array(part, INT64))
        (number,) = self.multi_output("Squeeze", 1, part, self.ints([0]))
        return replace(number, rank=0, parts=(part,))

    def range(self, start: int, limit: "int | Value", delta: int) -> Value:
        """Return the numbers from start to below limit, in steps of delta.

        They have the data type of limit if that is a tensor, else INT64.
        """
        dtype = limit.dtype if isinstance(limit, Value) else INT64
        numbers = (self._value(number, dtype) for number in (start, limit, delta))
        return replace(self.Range(*numbers), rank=1)

    def reshape(self, x: Value, shape: "Sequence[int | Value]") -> Value:
        """Return x in another shape, in which one dimension may be -1: it is computed from the others."""
        x, wanted = self.plain(x), self.vector(shape)
        if x.data is not None and wanted.data is not None:
            return self.constant(x.data.reshape(wanted.data.tolist()), x.elements)
        # Without `allowzero`, 0 means in ONNX that the dimension keeps its length.
        may_hold_zero = -1 not in shape if wanted.data is None else 0 in wanted.data
        return replace(self.Reshape(x, wanted, **({"allowzero": 1} if may_hold_zero else {})), rank=len(shape))

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Return x with more dimensions of length 1; `axes` are their indices in the result."""
        if not axes:
            return x
        assert x.rank is not None
        return replace(self.Unsqueeze(x, self.ints(axes)), rank=x.rank + len(axes))

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Return x without these dimensions of length 1."""
        if not axes:
            return x
        assert x.rank is not None
        return replace(self.Squeeze(x, self.ints(axes)), rank=x.rank - len(axes))

    def plain(self, x: Value) -> Value:
        """Return x with its dimensions in logical order in memory."""
        return self.in_layout(x, ())

    def _value(self, given: Given, dtype: AnyDType) -> Value:
        """Return a tensor as it is, an array as a constant, and a number as a constant of this data type."""
        if isinstance(given, Value):
            return given
        return self.constant(given) if isinstance(given, np.ndarray) else self.scalar(given, dtype)


@cache
def element_type(dtype: AnyDType) -> int:
    """Return ONNX's number of a data type."""
    return int(helper.np_dtype_to_tensor_dtype(dtype))
