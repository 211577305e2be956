"""Reductions of many elements to one."""

import math
from collections.abc import Callable

import numpy as np

from nnrt_backend_reference.kernels.arithmetic import quotient
from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, kernel
from nnrt_backend_reference.kernels.pieces import blocks_before
from nnrt_hdi.enums import NodeType, ReduceMode
from nnrt_hdi.ops.reduction import reduced_axes, reduction_factor
from nnrt_hdi.tensor import Shape

# The most elements whose sum in their own type is equally exact in any order.
SHORT = 1 << 10
# Rows of at most this length, if they have so many elements in all, are faster to reduce together than one by one.
SHORT_ROW, MANY = 32, 1 << 12


@kernel(NodeType.REDUCE_FUSION)
def reduce(call: Call, x: AnyArray, axis: AnyArray) -> AnyArray:
    """Reduce x over the dimensions in axis."""
    attrs = call.attrs
    axes = reduced_axes(axis.reshape(-1).tolist(), x.ndim, attrs.reduce_to_end)
    y = FOLDS[attrs.mode](x, axes)
    factor = reduction_factor(attrs.reduce_to_end, attrs.coeff)
    return (y if factor == 1 else y * factor).reshape(call.outputs[0].shape)


@kernel(NodeType.ALL)
def all_of(call: Call, x: AnyArray, axis: AnyArray) -> AnyArray:
    """Return whether all elements along the dimensions in axis differ from 0."""
    axes = reduced_axes(axis.reshape(-1).tolist(), x.ndim, reduce_to_end=False)
    return np.asarray(np.all(x, axis=axes)).reshape(call.outputs[0].shape)


def total(x: AnyArray, axes: Shape) -> AnyArray:
    """Compute the sum in the widest type, which keeps it exact for longer. Integers wrap around only at the end."""
    return summed(x, axes, accumulator(x.dtype))


def summed(x: AnyArray, axes: Shape, dtype: AnyDType) -> AnyArray:
    """Compute the sum in this type over these dimensions, which stay with length 1.

    For short rows einsum is faster than np.add, which is more exact for long ones.
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
    """Reduce x over these dimensions, which stay with length 1, by an idempotent function.

    Reducing no elements gives the identity.
    """
    first = x.ndim - len(axes)
    length = math.prod(x.shape[first:])
    if length and axes == tuple(range(first, x.ndim)):
        return folded_rows(fold, x.reshape(-1), length).reshape(x.shape[:first] + (1,) * len(axes))
    return np.asarray(fold.reduce(x, axis=axes, keepdims=True, initial=identity))


def folded_rows(fold: np.ufunc, x: AnyArray, length: int) -> AnyArray:
    """Reduce each row of `length` elements of a vector.

    numpy needs some time to prepare each row, in reduceat less than in reduce. Many short rows are therefore reduced
    together: a reduction begins at each element, whatever its row, and each step doubles the length of all reductions.
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
    """Return the widest type of a kind: FLOAT64, INT64, UINT64."""
    return np.dtype(dtype.kind + "8")


def lowest(dtype: AnyDType) -> float | int:
    """Return the lowest number of a data type."""
    return -np.inf if dtype.kind == "f" else int(np.iinfo(dtype).min)


def highest(dtype: AnyDType) -> float | int:
    """Return the highest number of a data type."""
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
