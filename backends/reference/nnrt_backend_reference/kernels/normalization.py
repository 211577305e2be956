"""Normalization: values brought to a common scale."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnrt_backend_reference.kernels.activation import fused
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, cast_all, kernel, per_channel, require_memory
from nnrt_backend_reference.kernels.pieces import PIECE_STEPS, blocks
from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.normalization import instance_channel_axis
from nnrt_hdi.tensor import Shape

# What sums of squares are computed in: those of large FLOAT32 would be infinite.
WIDE = np.dtype(np.float64)


@kernel(NodeType.FUSED_BATCH_NORM)
def batch_norm(
    call: Call, x: AnyArray, scale: AnyArray, offset: AnyArray, mean: AnyArray, variance: AnyArray
) -> AnyArray:
    """y = scale (x - mean) / sqrt(variance + epsilon) + offset, each per channel."""
    x, *vectors = cast_all(call.dtype, x, scale, offset, mean, variance)
    scale, offset, mean, variance = (per_channel(call, vector) for vector in vectors)
    y: AnyArray = (x - mean) * (scale / np.sqrt(variance + call.attrs.epsilon)) + offset
    return y


@kernel(NodeType.SOFTMAX)
def softmax(call: Call, x: AnyArray) -> AnyArray:
    """y = exp(x) / sum(exp(x)); the maximum is taken off first, so that nothing overflows."""
    (x,) = cast_all(call.dtype, x)
    axis = call.attrs.axis[0] if call.attrs.axis else -1
    power = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    y: AnyArray = power / power.sum(axis=axis, keepdims=True)
    return y


@kernel(NodeType.LOG_SOFTMAX)
def log_softmax(call: Call, x: AnyArray) -> AnyArray:
    """y = x - log(sum(exp(x))); the maximum is taken off first, so that nothing overflows."""
    (x,) = cast_all(call.dtype, x)
    axis = call.attrs.axis
    x = x - x.max(axis=axis, keepdims=True)
    y: AnyArray = x - np.log(np.exp(x).sum(axis=axis, keepdims=True))
    return y


@kernel(NodeType.LAYER_NORM_FUSION)
def layer_norm(call: Call, x: AnyArray, gamma: AnyArray, beta: AnyArray) -> AnyArray:
    """Standardized over the last dimensions, then scaled and shifted there."""
    y = standardized(x, tuple(range(call.attrs.begin_norm_axis, x.ndim)), call.attrs.epsilon)
    return y * gamma + beta if call.attrs.elementwise_affine else y


@kernel(NodeType.INSTANCE_NORM)
def instance_norm(call: Call, x: AnyArray, scale: AnyArray, bias: AnyArray) -> AnyArray:
    """Standardized over all dimensions but batch and channels, then scaled and shifted per channel."""
    channel = instance_channel_axis(call.inputs[0], len(scale))
    others = tuple(axis for axis in range(1, x.ndim) if axis != channel)
    scale, bias = (vector.reshape([-1 if axis == channel else 1 for axis in range(x.ndim)]) for vector in (scale, bias))
    return standardized(x, others, call.attrs.epsilon) * scale + bias


@kernel(NodeType.L2_NORMALIZE_FUSION)
def l2_normalize(call: Call, x: AnyArray) -> AnyArray:
    """y = f(x / sqrt(max(sum(x^2), epsilon)))."""
    total = np.square(x, dtype=WIDE).sum(axis=call.attrs.axis or None, keepdims=True)
    return fused(x / np.sqrt(np.maximum(total, call.attrs.epsilon)), call.attrs.activation_type)


@kernel(NodeType.LRN)
def lrn(call: Call, x: AnyArray) -> AnyArray:
    """y = x / (bias + alpha sum(x^2))^beta, the sum taken over a window that slides along the channels."""
    attrs, axis = call.attrs, call.inputs[0].channel_axis
    radius = min(attrs.depth_radius, x.shape[axis] - 1)
    border = [(radius, radius) if at == axis else (0, 0) for at in range(x.ndim)]
    require_memory(call, tuple(size + sum(pair) for size, pair in zip(x.shape, border, strict=True)), WIDE)
    squares = np.pad(np.square(x, dtype=WIDE), border)
    windows = sliding_window_view(squares, 2 * radius + 1, axis=axis)
    total = np.empty(x.shape, WIDE)
    for part in blocks(x.shape, PIECE_STEPS // (2 * radius + 1)):
        windows[part].sum(axis=-1, out=total[part])
    y: AnyArray = x / (attrs.bias + attrs.alpha * total) ** attrs.beta
    return y


def standardized(x: AnyArray, axes: Shape, epsilon: float) -> AnyArray:
    """(x - mean) / sqrt(variance + epsilon), mean and population variance taken over these dimensions."""
    centered = x - x.mean(axis=axes, keepdims=True, dtype=WIDE)
    y: AnyArray = centered / np.sqrt(np.square(centered).mean(axis=axes, keepdims=True) + epsilon)
    return y
