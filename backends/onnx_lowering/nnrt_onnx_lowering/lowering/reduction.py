"""Reductions of many elements to one."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from nnrt_hdi.enums import NodeType, ReduceMode
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.ops.reduction import reduced_axes, reduction_factor
from nnrt_hdi.tensor import UNKNOWN_DIM
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.engine import AnyDType
from nnrt_onnx_lowering.lowering.arithmetic import quotient
from nnrt_onnx_lowering.lowering.lowering import Call, known_values, lowering
from nnrt_onnx_lowering.value import BOOL, INT64, Value

UINT32, UINT64 = np.dtype(np.uint32), np.dtype(np.uint64)

# Reduces the dimensions in the third operand, and keeps them with length 1 or removes them.
Fold = Callable[[Onnx, Value, Value, int], Value]


@lowering(NodeType.REDUCE_FUSION)
def reduce(op: Onnx, call: Call, x: Value, axis: Value) -> Value:
    """Reduce x over the dimensions in axis."""
    attrs = call.attrs
    if axis.elements is None and not attrs.reduce_to_end:
        return _folded_in_a_run(op, x, axis, attrs.mode, int(attrs.keep_dims))
    axes = reduced_axes(known_values(axis, "axis"), call.inputs[0].rank, attrs.reduce_to_end)
    y = folded(op, call, x, axes, attrs.mode, attrs.keep_dims)
    factor = reduction_factor(attrs.reduce_to_end, attrs.coeff)
    return y if factor == 1 else y * factor


@lowering(NodeType.ALL, moves=True)
def all_of(op: Onnx, call: Call, x: Value, axis: Value) -> Value:
    """Return whether all elements along the dimensions in axis differ from 0."""
    if axis.elements is None:
        return _folded_in_a_run(op, x, axis, ReduceMode.ALL, int(call.attrs.keep_dims != 0)).cast(BOOL)
    axes = reduced_axes(known_values(axis, "axis"), call.inputs[0].rank, reduce_to_end=False)
    return folded(op, call, x, axes, ReduceMode.ALL, call.attrs.keep_dims != 0).cast(BOOL)


def _folded_in_a_run(op: Onnx, x: Value, axis: Value, mode: ReduceMode, keep_dims: int) -> Value:
    """Reduce x over dimensions that only the run knows."""
    return FOLDS[mode](op, x, op.reshape(axis.cast(INT64), [-1]), keep_dims)


def folded(op: Onnx, call: Call, x: Value, axes: tuple[int, ...], mode: ReduceMode, keep_dims: bool) -> Value:
    """Reduce x over these dimensions, and keep them with length 1 or remove them."""
    shape = call.inputs[0].shape
    if any(shape[axis] == 0 for axis in axes):  # Some kernels can't reduce zero elements.
        neutral = op.constant(np.asarray(NEUTRAL[mode](x.dtype), x.dtype))
        sizes = [1 if axis in axes else op.size(x, axis) for axis in range(len(shape))]
        return op.Expand(neutral, op.vector([size for at, size in enumerate(sizes) if keep_dims or at not in axes]))
    if not shape:
        x, axes, keep_dims = op.unsqueeze(x, [0]), (0,), False
    elif not axes:
        return FOLDS[mode](op, op.unsqueeze(x, [0]), op.ints([0]), 0)
    return FOLDS[mode](op, x, op.ints(axes), int(keep_dims))


def total(op: Onnx, x: Value, axes: Value, keep_dims: int) -> Value:
    """Compute the sum.

    Integers are summed by a matrix product. ONNX Runtime's sum adds them in FLOAT64, where they don't wrap around.
    """
    if x.dtype.kind == "f":
        return op.ReduceSum(x, axes, keepdims=keep_dims)
    rows, kept = _rows(op, x, axes)
    ones = op.Expand(op.scalar(1, x.dtype), op.reshape(_count(op, x, axes), [1]))
    return _with_dims(op, replace(op.MatMul(rows, ones), rank=kept), axes, keep_dims)


def product(op: Onnx, x: Value, axes: Value, keep_dims: int) -> Value:
    """Compute the product.

    Integers are multiplied pairwise, one half with the other, until one is left: ONNX Runtime's product of integers
    doesn't wrap around.
    """
    if x.dtype.kind == "f":
        return op.ReduceProd(x, axes, keepdims=keep_dims)
    sizes = [op.size(x, axis) for axis in _numbers(axes)]
    count = math.prod(size for size in sizes if isinstance(size, int))
    if any(isinstance(size, Value) for size in sizes):
        raise Unsupported(f"the number of {x.dtype.name} to be multiplied is known only when the model runs; fix it")
    rows, kept = _rows(op, x, axes)

    def part(start: int, end: int) -> Value:
        return replace(op.Slice(rows, op.ints([start]), op.ints([end]), op.ints([kept])), rank=kept + 1)

    while count > 1:
        half = count // 2
        pairs, rest = part(0, half) * part(half, 2 * half), part(2 * half, count)
        rows, count = replace(op.Concat(pairs, rest, axis=kept), rank=kept + 1), count - half
    return _with_dims(op, op.squeeze(rows, [kept]), axes, keep_dims)


def extreme(op: Onnx, x: Value, axes: Value, keep_dims: int, op_type: str) -> Value:
    """Compute the maximum or minimum.

    INT64 is sorted, because ONNX Runtime's reductions have the error that `Operators.Max` describes.
    """
    if x.dtype not in (INT64, UINT32):  # UINT32 has no kernel, and would be cast to INT64.
        result: Value = getattr(op, op_type)(x, axes, keepdims=keep_dims)
        return result
    rows, kept = _rows(op, x, axes)
    best, _ = op.multi_output("TopK", 2, rows, op.ints([1]), axis=kept, largest=int(op_type == "ReduceMax"))
    return _with_dims(op, op.squeeze(best, [kept]), axes, keep_dims)


def _rows(op: Onnx, x: Value, axes: Value) -> tuple[Value, int]:
    """Return x with the reduced dimensions flattened as the last one, and the number of dimensions before it."""
    assert x.rank is not None
    folded_axes = _numbers(axes)
    kept = [axis for axis in range(x.rank) if axis not in folded_axes]
    return op.reshape(x.transposed([*kept, *folded_axes]), [*(op.size(x, axis) for axis in kept), -1]), len(kept)


def _numbers(axes: Value) -> list[int]:
    """Return the axes as numbers, for nodes whose construction depends on them."""
    return known_values(axes, "axis") if axes.data is None else [int(axis) for axis in axes.data]


def _with_dims(op: Onnx, y: Value, axes: Value, keep_dims: int) -> Value:
    return op.unsqueeze(y, sorted(_numbers(axes))) if keep_dims else y


def _count(op: Onnx, x: Value, axes: Value) -> Value:
    """Return how many elements are reduced to each result."""
    sizes = [op.size(x, axis) for axis in _numbers(axes)]
    number = op.constant(np.array(math.prod(size for size in sizes if isinstance(size, int)), INT64))
    for size in sizes:
        if isinstance(size, Value):
            number = number * op.squeeze(replace(size, rank=1), [0])
    return number


def mean(op: Onnx, x: Value, axes: Value, keep_dims: int) -> Value:
    """Compute the mean; for integers the exact sum is divided and rounded towards zero."""
    if x.dtype.kind == "f":
        return op.ReduceMean(x, axes, keepdims=keep_dims)
    wide = replace(x.cast(x.dtype if x.dtype == UINT64 else INT64), shape=x.shape)
    return quotient(op, total(op, wide, axes, keep_dims), _count(op, x, axes).cast(wide.dtype)).cast(x.dtype)


def sum_of_squares(op: Onnx, x: Value, axes: Value, keep_dims: int) -> Value:
    if x.dtype.kind == "f":
        return op.ReduceSumSquare(x, axes, keepdims=keep_dims)
    return total(op, replace(x * x, shape=x.shape), axes, keep_dims)


def truth(op: Onnx, x: Value, axes: Value, keep_dims: int) -> Value:
    """Compute 1 if all elements differ from 0, else 0.

    Over a dimension that may be empty, ONNX Runtime supports only products.
    """
    if x.shape and UNKNOWN_DIM not in x.shape:
        return op.ReduceMin(x.cast(BOOL), axes, keepdims=keep_dims).cast(x.dtype)
    return op.ReduceProd(x.cast(BOOL).cast(np.dtype(np.int32)), axes, keepdims=keep_dims).cast(x.dtype)


FOLDS: dict[ReduceMode, Fold] = {
    ReduceMode.MEAN: mean,
    ReduceMode.MAX: lambda op, x, axes, keep: extreme(op, x, axes, keep, "ReduceMax"),
    ReduceMode.MIN: lambda op, x, axes, keep: extreme(op, x, axes, keep, "ReduceMin"),
    ReduceMode.PROD: product,
    ReduceMode.SUM: total,
    ReduceMode.SUM_SQUARE: sum_of_squares,
    ReduceMode.ASUM: lambda op, x, axes, keep: total(op, replace(op.Abs(x), shape=x.shape), axes, keep),
    ReduceMode.ALL: truth,
    ReduceMode.L2: lambda op, x, axes, keep: op.ReduceL2(x, axes, keepdims=keep),
}


def _lowest(dtype: AnyDType) -> float:
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def _highest(dtype: AnyDType) -> float:
    return np.inf if dtype.kind == "f" else int(np.iinfo(dtype).max)


# The results of reducing no elements.
NEUTRAL: dict[ReduceMode, Callable[[AnyDType], float]] = {
    ReduceMode.MEAN: lambda dtype: np.nan if dtype.kind == "f" else 0,
    ReduceMode.MAX: _lowest,
    ReduceMode.MIN: _highest,
    ReduceMode.PROD: lambda _: 1,
    ReduceMode.SUM: lambda _: 0,
    ReduceMode.SUM_SQUARE: lambda _: 0,
    ReduceMode.ASUM: lambda _: 0,
    ReduceMode.ALL: lambda _: 1,
    ReduceMode.L2: lambda _: 0,
}
