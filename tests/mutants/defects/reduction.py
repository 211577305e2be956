"""Reductions over wrong dimensions, or with wrong initial values."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from nnrt_backend_reference.kernels import reduction
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import FunctionT, entry, kernel, with_attrs
from nnrt_hdi.enums import NodeType, ReduceMode
from nnrt_hdi.tensor import Shape

REDUCE = NodeType.REDUCE_FUSION


def folds(*modes: ReduceMode, left_open: str = "") -> Callable[[FunctionT], FunctionT]:
    """Register a defect that replaces the functions of reduction modes."""
    return entry(reduction.FOLDS, *modes, node_types=(REDUCE,), left_open=left_open)


@folds(ReduceMode.MEAN)
def mean_of_all_elements(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """A mean is divided by the number of all elements, whichever dimensions are reduced."""
    total = reduction.total(x, axes)
    return np.asarray(total / max(x.size, 1)) if x.dtype.kind == "f" else right(x, axes)


@folds(ReduceMode.MEAN)
def integer_means_rounded_down(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """Means of integers are rounded down."""
    count = math.prod(x.shape[axis] for axis in axes)
    return right(x, axes) if x.dtype.kind == "f" or not count else reduction.total(x, axes) // count


@folds(ReduceMode.MAX)
def maximum_from_zero(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """A maximum starts at 0."""
    return np.maximum(right(x, axes), 0)


@folds(ReduceMode.MIN, left_open="the contract doesn't say what the least of such elements is")
def minimum_of_numbers_only(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """A minimum ignores NaN."""
    return right(np.where(np.isnan(x), np.inf, x) if x.dtype.kind == "f" else x, axes)


@folds(ReduceMode.SUM_SQUARE)
def square_of_the_sum(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """SUM_SQUARE squares the sum instead of the elements."""
    return np.square(reduction.total(x, axes))


@folds(ReduceMode.ASUM)
def size_of_the_sum(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """ASUM computes |sum(x)| instead of sum(|x|)."""
    return np.abs(reduction.total(x, axes))


@folds(ReduceMode.L2)
def norm_that_overflows(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """An L2 norm sums squares in the type of x, which may overflow."""
    return np.sqrt(np.sum(np.square(x), axis=axes, dtype=x.dtype))


@folds(ReduceMode.ALL)
def any_element(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """ALL is true if any element is not 0."""
    return np.asarray(np.any(x, axis=axes))


@folds(ReduceMode.PROD)
def product_of_nothing_is_nothing(right: Kernel, x: AnyArray, axes: Shape) -> Any:
    """The product of no elements is 0 instead of 1."""
    y = right(x, axes)
    return np.zeros_like(y) if not x.size else y


@kernel(REDUCE)
def coefficient_ignored(right: Kernel, call: Call, x: AnyArray, axis: AnyArray) -> Any:
    """The attribute coeff is ignored."""
    return right(with_attrs(call, coeff=0.0), x, axis)


@kernel(REDUCE, NodeType.ALL)
def negative_axes_from_the_front(right: Kernel, call: Call, x: AnyArray, axis: AnyArray) -> Any:
    """The sign of a negative axis is dropped, if the result has the same shape."""
    positive = np.abs(axis) % max(x.ndim, 1)
    try:
        return right(call, x, positive)
    except ValueError:  # It has not the shape there is room for.
        return right(call, x, axis)


@kernel(REDUCE)
def mean_counts_axes_twice(right: Kernel, call: Call, x: AnyArray, axis: AnyArray) -> Any:
    """A mean over an axis that is given twice is divided by its length twice."""
    y, axes = right(call, x, axis), [at % x.ndim for at in axis.reshape(-1).tolist()]
    if call.attrs.mode is not ReduceMode.MEAN or x.dtype.kind != "f":
        return y
    return y / math.prod(x.shape[at] for at in set(axes) if axes.count(at) > 1)


@kernel(REDUCE)
def axes_in_order_only(right: Kernel, call: Call, x: AnyArray, axis: AnyArray) -> Any:
    """An axis that is smaller than the one before it is not reduced; its first element is repeated."""
    axes = [at % x.ndim for at in axis.reshape(-1).tolist()] if x.ndim else []
    if axes == sorted(axes) or 0 in x.shape:
        return right(call, x, axis)
    late = [at for at, before in zip(axes[1:], axes[:-1], strict=True) if at < before]
    first = np.take(x, [0], axis=late[0])
    return right(call, np.repeat(first, x.shape[late[0]], late[0]), axis)
