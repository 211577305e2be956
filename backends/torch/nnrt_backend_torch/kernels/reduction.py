"""Reductions of many elements to one."""

import math
from collections.abc import Callable

import torch

from nnrt_backend_torch.kernels.arithmetic import quotient_uint64
from nnrt_backend_torch.kernels.kernel import (
    Call,
    computable,
    in_order,
    kernel,
    numbers,
    out_of_order,
)
from nnrt_hdi.enums import NodeType, ReduceMode
from nnrt_hdi.ops.reduction import reduced_axes, reduction_factor
from nnrt_hdi.tensor import Shape

Fold = Callable[[torch.Tensor, Shape], torch.Tensor]


@kernel(NodeType.REDUCE_FUSION, on_host=(1,))
def reduce(call: Call, x: torch.Tensor, axis: torch.Tensor) -> torch.Tensor:
    """Reduce x over the dimensions in axis."""
    attrs = call.attrs
    axes = reduced_axes(numbers(axis), x.ndim, attrs.reduce_to_end)
    y = FOLDS[attrs.mode](x, axes)
    factor = reduction_factor(attrs.reduce_to_end, attrs.coeff)
    return (y if factor == 1 else y * factor).reshape(call.outputs[0].shape)


@kernel(NodeType.ALL, on_host=(1,))
def all_of(call: Call, x: torch.Tensor, axis: torch.Tensor) -> torch.Tensor:
    """Return whether all elements along the dimensions in axis differ from 0."""
    axes = reduced_axes(numbers(axis), x.ndim, reduce_to_end=False)
    return every(x, axes).reshape(call.outputs[0].shape)


def total(x: torch.Tensor, axes: Shape) -> torch.Tensor:
    """Compute the sum in the widest type, which keeps it exact for longer. Integers wrap around only at the end."""
    return torch.sum(summable(x), axes, dtype=accumulator(x))


def mean(x: torch.Tensor, axes: Shape) -> torch.Tensor:
    """Compute the mean; integers are rounded towards zero."""
    if x.dtype.is_floating_point:
        return torch.mean(x, axes, dtype=accumulator(x))
    y, count = total(x, axes), math.prod([x.shape[axis] for axis in axes])
    if count == 0:
        return y
    return quotient_uint64(y, count) if x.dtype is torch.uint64 else torch.div(y, count, rounding_mode="trunc")


def largest(x: torch.Tensor, axes: Shape) -> torch.Tensor:
    """Compute the maximum; that of no elements is the lowest number."""
    return _extreme(torch.amax, x, axes, -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min)


def smallest(x: torch.Tensor, axes: Shape) -> torch.Tensor:
    """Compute the minimum; that of no elements is the highest number."""
    return _extreme(torch.amin, x, axes, math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).max)


def product(x: torch.Tensor, axes: Shape) -> torch.Tensor:
    """Compute the product in the widest type. torch multiplies along one dimension at a time."""
    y, dtype = summable(x).to(accumulator(x)), accumulator(x)
    for axis in sorted(axes, reverse=True):
        y = torch.prod(y, axis, dtype=dtype)
    return y


def sum_square(x: torch.Tensor, axes: Shape, *, keepdim: bool = False) -> torch.Tensor:
    """Compute the sum of squares in the widest type. torch's own norm is slow on CPUs, except along rows."""
    return torch.sum(summable(x).to(accumulator(x)).square(), axes, keepdim)


def sum_absolute(x: torch.Tensor, axes: Shape) -> torch.Tensor:
    """Compute the sum of absolute values."""
    return total(x.abs() if x.dtype.is_signed else x, axes)


def every(x: torch.Tensor, axes: Shape) -> torch.Tensor:
    """Return whether all elements differ from 0."""
    return torch.all(summable(x), axes)


def accumulator(x: torch.Tensor) -> torch.dtype:
    """Return the widest type for sums of a tensor's elements: INT64, FLOAT64, or FLOAT32 where there is none."""
    if not x.dtype.is_floating_point:
        return torch.int64
    return torch.float32 if x.device.type == "mps" else torch.float64


def summable(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in a type that torch adds and multiplies; a UINT64 has the same bits as INT64."""
    if x.dtype is torch.uint64:
        return x.view(torch.int64)
    return x if x.dtype.is_floating_point else computable(x)


def _extreme(
    fold: Callable[[torch.Tensor, Shape], torch.Tensor], x: torch.Tensor, axes: Shape, neutral: float
) -> torch.Tensor:
    if x.numel() == 0:
        shape = [size for axis, size in enumerate(x.shape) if axis not in axes]
        return torch.full(shape, neutral, dtype=x.dtype, device=x.device)
    if x.dtype is torch.uint64:
        return out_of_order(fold(in_order(x), axes))
    return fold(summable(x), axes)


FOLDS: dict[ReduceMode, Fold] = {
    ReduceMode.MEAN: mean,
    ReduceMode.MAX: largest,
    ReduceMode.MIN: smallest,
    ReduceMode.PROD: product,
    ReduceMode.SUM: total,
    ReduceMode.SUM_SQUARE: sum_square,
    ReduceMode.ASUM: sum_absolute,
    ReduceMode.ALL: every,
    ReduceMode.L2: lambda x, axes: sum_square(x, axes).sqrt(),
}
