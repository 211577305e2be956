"""Reductions: many elements folded into one."""

import math
from collections.abc import Callable

import numpy as np

from nnrt_backend_reference.kernels.arithmetic import quotient
from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, kernel
from nnrt_backend_reference.kernels.pieces import blocks_before
from nnrt_hdi.enums import NodeType, ReduceMode
from nnrt_hdi.ops.reduction import reduced_axes, reduction_factor
from nnrt_hdi.tensor import Shape

# Most elements whose sum in their own type is as exact however they are added.
SHORT = 1 << 10
# Longest rows, and fewest elements of all of them, that are folded quicker all together than each for itself.
SHORT_ROW, MANY = 32, 1 << 12


@kernel(NodeType.REDUCE_FUSION)
def reduce(call: Call, x: AnyArray, axis: AnyArray) -> AnyArray:
    """y = x folded over the dimensions in axis."""
    attrs = call.attrs
    axes = reduced_axes(axis.reshape(-1).tolist(), x.ndim, attrs.reduce_to_end)
    y = FOLDS[attrs.mode](x, axes)
    factor = reduction_factor(attrs.reduce_to_end, attrs.coeff)
    return (y if factor == 1 else y * factor).reshape(call.outputs[0].shape)


@kernel(NodeType.ALL)
def all_of(call: Call, x: AnyArray, axis: AnyArray) -> AnyArray:
    """No element is 0 over the dimensions in axis."""
    axes = reduced_axes(axis.reshape(-1).tolist(), x.ndim, reduce_to_end=False)
    return np.asarray(np.all(x, axis=axes)).reshape(call.outputs[0].shape)


def total(x: AnyArray, axes: Shape) -> AnyArray:
    """Sum in a type that keeps it exact for longer: FLOAT64; integers wrap around in the end."""
    return summed(x, axes, accumulator(x.dtype))


def summed(x: AnyArray, axes: Shape, dtype: AnyDType) -> AnyArray:
    """Sum in a type over these dimensions, which stay with size 1.

    Of short rows einsum makes it sooner than np.add, which for long ones loses less.
    """
    first = x.ndim - len(axes)
    if x.dtype.kind == "f" and axes == tuple(range(first, x.ndim)):
        length = math.prod(x.shape[first:])
        if x.dtype != dtype or length <= SHORT:
            y = np.einsum("...i->...", x.reshape(*x.shape[:first], length), dtype=dtype)
            return np.reshape(y, x.shape[:first] + (1,) * len(axes))
    return np.asarray(np.add.reduce(x, axis=axes, dtype=dtype, keepdims=True))


def mean(x: AnyArray, axes: Shape) -> AnyArray:
    y = total(x, axes)
    return quotient(y, np.asarray(math.prod(x.shape[axis] for axis in axes), y.dtype))


def folded_in_blocks(fold: np.ufunc, x: AnyArray, axes: Shape, identity: float) -> AnyArray:
    y = np.empty(folded_shape(x, axes), x.dtype)
    for part in blocks_before(min(axes, default=0), x.shape):
        y[part] = folded(fold, x[part], axes, identity)
    return y


def folded(fold: np.ufunc, x: AnyArray, axes: Shape, identity: float) -> AnyArray:
    """x folded, by what may see an element twice, over these dimensions, which stay with size 1; nothing gives the
    identity."""
    first = x.ndim - len(axes)
    length = math.prod(x.shape[first:])
    if length and axes == tuple(range(first, x.ndim)):
        return folded_rows(fold, x.reshape(-1), length).reshape(x.shape[:first] + (1,) * len(axes))
    return np.asarray(fold.reduce(x, axis=axes, keepdims=True, initial=identity))


def folded_rows(fold: np.ufunc, x: AnyArray, length: int) -> AnyArray:
    """Fold each so many elements of a vector.

    numpy prepares something for each row, reduceat less than reduce. Where rows are short and many it is quicker to
    fold what begins at each element, twice as much with each step, whatever row it belongs to.
    """
    if not (1 < length <= SHORT_ROW and x.size >= MANY):
        y: AnyArray = fold.reduceat(x, np.arange(0, x.size, length))
        return y
    run = 1
    while 2 * run < length:
        x = fold(x[:-run], x[run:])
        run *= 2
    return np.asarray(fold(x[::length], x[length - run :: length]))


def folded_shape(x: AnyArray, axes: Shape) -> Shape:
    return tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))


def accumulator(dtype: AnyDType) -> AnyDType:
    """The widest type of a kind: FLOAT64, INT64, UINT64."""
    return np.dtype(dtype.kind + "8")


def lowest(dtype: AnyDType) -> float | int:
    """The lowest number of a data type."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def highest(dtype: AnyDType) -> float | int:
    """The highest number of a data type."""
    return np.inf if dtype.kind == "f" else int(np.iinfo(dtype).max)


Fold = Callable[[AnyArray, Shape], AnyArray]
FOLDS: dict[ReduceMode, Fold] = {
    ReduceMode.MEAN: mean,
    ReduceMode.MAX: lambda x, axes: folded_in_blocks(np.maximum, x, axes, lowest(x.dtype)),
    ReduceMode.MIN: lambda x, axes: folded_in_blocks(np.minimum, x, axes, highest(x.dtype)),
    ReduceMode.PROD: lambda x, axes: np.asarray(np.prod(x, axis=axes, dtype=accumulator(x.dtype))),
    ReduceMode.SUM: total,
    ReduceMode.SUM_SQUARE: lambda x, axes: total(np.square(x, dtype=accumulator(x.dtype)), axes),
    ReduceMode.ASUM: lambda x, axes: total(np.abs(x), axes),
    ReduceMode.ALL: lambda x, axes: np.asarray(np.all(x, axis=axes)),
    ReduceMode.L2: lambda x, axes: np.sqrt(total(np.square(x, dtype=accumulator(x.dtype)), axes)),
}
