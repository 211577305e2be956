"""Normalization: values brought to a common scale."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnrt_backend_reference.kernels.activation import fused
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, cast_all, kernel, per_channel
from nnrt_backend_reference.kernels.pieces import PIECE_STEPS, blocks, blocks_before
from nnrt_backend_reference.kernels.reduction import folded, summed
from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.normalization import instance_channel_axis
from nnrt_hdi.ops.operands import named_axes

# The type for sums of squares. In FLOAT32 those of large numbers would be infinite.
WIDE = np.dtype(np.float64)
# Below this sum of exponentials, FLOAT32 may represent one of them less exactly than its share of the sum.
LEAST_POWERS = float(np.finfo(np.float32).eps)


@kernel(NodeType.FUSED_BATCH_NORM)
def batch_norm(
    call: Call, x: AnyArray, scale: AnyArray, offset: AnyArray, mean: AnyArray, variance: AnyArray
) -> AnyArray:
    """Compute y = scale (x - mean) / sqrt(variance + epsilon) + offset, each per channel."""
    x, *vectors = cast_all(call.dtype, x, scale, offset, mean, variance)
    scale, offset, mean, variance = (per_channel(call, vector) for vector in vectors)
    y: AnyArray = x - mean
    y *= scale / np.sqrt(variance + call.attrs.epsilon)
    y += offset
    return y


@kernel(NodeType.SOFTMAX)
def softmax(call: Call, x: AnyArray) -> AnyArray:
    """Compute y = exp(x) / sum(exp(x)); the maximum is subtracted first where powers overflow or lose digits."""
    (x,) = cast_all(call.dtype, x)
    axis = (call.attrs.axis[0] if call.attrs.axis else -1) % x.ndim
    y = np.empty_like(x)
    for part in blocks_before(axis, x.shape):
        power = np.exp(x[part], out=y[part])
        total = summed(power, (axis,), power.dtype)
        power /= total
        if not (total.min() >= LEAST_POWERS and total.max() < np.inf):
            lost = ~((total >= LEAST_POWERS) & (total < np.inf)).squeeze(axis)
            np.moveaxis(power, axis, -1)[lost] = softmax_of_rows(np.moveaxis(x[part], axis, -1)[lost])
    return y


def softmax_of_rows(x: AnyArray) -> AnyArray:
    """Compute the softmax of each row after subtracting its maximum."""
    power = np.exp(below_maximum(x, 1, out=np.empty_like(x)))
    power /= power.sum(axis=1, keepdims=True)
    return power


@kernel(NodeType.LOG_SOFTMAX)
def log_softmax(call: Call, x: AnyArray) -> AnyArray:
    """Compute y = x - log(sum(exp(x))); the maximum is subtracted first, so that nothing overflows."""
    (x,) = cast_all(call.dtype, x)
    axis = call.attrs.axis % x.ndim
    y = np.empty_like(x)
    for part in blocks_before(axis, x.shape):
        below = below_maximum(x[part], axis, out=y[part])
        below -= np.log(summed(np.exp(below), (axis,), below.dtype))
    return y


@kernel(NodeType.LAYER_NORM_FUSION)
def layer_norm(call: Call, x: AnyArray, gamma: AnyArray, beta: AnyArray) -> AnyArray:
    """Standardize x over its last dimensions, then scale and shift it there."""
    y = np.empty(x.shape, call.dtype)
    for part, centered, variance in deviations(x, call.attrs.begin_norm_axis):
        np.multiply(centered, 1 / np.sqrt(variance + call.attrs.epsilon), out=y[part], casting="same_kind")
        if call.attrs.elementwise_affine:
            y[part] *= gamma
            y[part] += beta
    return y


@kernel(NodeType.INSTANCE_NORM)
def instance_norm(call: Call, x: AnyArray, scale: AnyArray, bias: AnyArray) -> AnyArray:
    """Standardize x over all dimensions but batch and channels, then scale and shift each channel."""
    channel = instance_channel_axis(call.inputs[0], len(scale))
    x = np.moveaxis(x, channel, 1)
    each = (*x.shape[:2], *[1] * (x.ndim - 2))
    scale, bias = (np.broadcast_to(vector, x.shape[:2]).reshape(each) for vector in (scale, bias))
    y = np.empty(x.shape, call.dtype)
    for part, centered, variance in deviations(x, 2):
        factor = scale[part] / np.sqrt(variance + call.attrs.epsilon)
        np.multiply(centered, factor, out=y[part], casting="same_kind")
        y[part] += bias[part]
    return np.moveaxis(y, 1, channel)


@kernel(NodeType.L2_NORMALIZE_FUSION)
def l2_normalize(call: Call, x: AnyArray) -> AnyArray:
    """Compute y = f(x / sqrt(max(sum(x^2), epsilon)))."""
    total = np.square(x, dtype=WIDE).sum(axis=named_axes(call.attrs.axis, x.ndim) or None, keepdims=True)
    return fused(x / np.sqrt(np.maximum(total, call.attrs.epsilon)), call.attrs.activation_type)


@kernel(NodeType.LRN)
def lrn(call: Call, x: AnyArray) -> AnyArray:
    """Compute y = x / (bias + alpha sum(x^2))^beta, with the sum over a window that slides along the channels."""
    attrs, axis = call.attrs, call.inputs[0].channel_axis
    radius = min(attrs.depth_radius, x.shape[axis] - 1)
    border = [(radius, radius) if at == axis else (0, 0) for at in range(x.ndim)]
    call.require_memory(tuple(size + sum(pair) for size, pair in zip(x.shape, border, strict=True)), WIDE)
    squares = np.pad(np.square(x, dtype=WIDE), border)
    windows = sliding_window_view(squares, 2 * radius + 1, axis=axis)
    total = np.empty(x.shape, WIDE)
    for part in blocks(x.shape, PIECE_STEPS // (2 * radius + 1)):
        windows[part].sum(axis=-1, out=total[part])
    y: AnyArray = x / (attrs.bias + attrs.alpha * total) ** attrs.beta
    return y


def below_maximum(x: AnyArray, axis: int, out: AnyArray) -> AnyArray:
    """Compute x - max(x) along an axis."""
    # fmax ignores NaN. numpy computes it faster than max, and x - fmax(x) is NaN where x is NaN all the same.
    return np.subtract(x, folded(np.fmax, x, (axis,), -np.inf), out=out)


def deviations(x: AnyArray, axis: int) -> Iterator[tuple[tuple[slice, ...], AnyArray, AnyArray]]:
    """Yield parts of x: their indices, x - mean, and population variance, both over the dimensions from axis on."""
    length = math.prod(x.shape[axis:])
    ones = np.ones((length, 1), WIDE)
    for part in blocks_before(axis, x.shape):
        wide = np.array(x[part], WIDE, order="C")
        rows = wide.reshape(-1, 1, length)
        rows -= rows @ ones / length
        variance = rows @ rows.swapaxes(1, 2) / length
        yield part, wide, variance.reshape(wide.shape[:axis] + (1,) * (x.ndim - axis))
