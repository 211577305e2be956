"""Reductions: many elements folded into one."""

import math
from collections.abc import Callable

import numpy as np

from nnrt_backend_reference.kernels.arithmetic import quotient
from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, kernel
from nnrt_hdi.enums import NodeType, ReduceMode
from nnrt_hdi.ops.reduction import reduced_axes, reduction_factor
from nnrt_hdi.tensor import Shape


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
    return np.asarray(np.sum(x, axis=axes, dtype=accumulator(x.dtype)))


def mean(x: AnyArray, axes: Shape) -> AnyArray:
    y = total(x, axes)
    return quotient(y, np.asarray(math.prod(x.shape[axis] for axis in axes), y.dtype))


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
    ReduceMode.MAX: lambda x, axes: np.asarray(np.max(x, axis=axes, initial=lowest(x.dtype))),
    ReduceMode.MIN: lambda x, axes: np.asarray(np.min(x, axis=axes, initial=highest(x.dtype))),
    ReduceMode.PROD: lambda x, axes: np.asarray(np.prod(x, axis=axes, dtype=accumulator(x.dtype))),
    ReduceMode.SUM: total,
    ReduceMode.SUM_SQUARE: lambda x, axes: total(np.square(x, dtype=accumulator(x.dtype)), axes),
    ReduceMode.ASUM: lambda x, axes: total(np.abs(x), axes),
    ReduceMode.ALL: lambda x, axes: np.asarray(np.all(x, axis=axes)),
    ReduceMode.L2: lambda x, axes: np.sqrt(total(np.square(x, dtype=accumulator(x.dtype)), axes)),
}
