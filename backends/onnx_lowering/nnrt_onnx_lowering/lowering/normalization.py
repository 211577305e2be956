"""Normalization: values brought to a common scale.

ONNX's operators have epsilon as FLOAT32. For FLOAT64 they are built from simpler operators.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.ops.normalization import instance_channel_axis
from nnrt_hdi.ops.operands import named_axes
from nnrt_hdi.tensor import UNKNOWN_DIM
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.activation import fused
from nnrt_onnx_lowering.lowering.lowering import Call, channels_first, in_format, lowering, per_channel, product
from nnrt_onnx_lowering.value import FLOAT32, Value

HALF = np.dtype(np.float16)
# The largest radius of LRN if only a run knows the number of channels: ONNX Runtime allocates the whole window.
MOST_RADIUS = 128
# The most channels for which windows are written as a matrix, where ONNX Runtime has no LRN.
MOST_CHANNELS = 1024


@lowering(NodeType.FUSED_BATCH_NORM)
def batch_norm(op: Onnx, call: Call, x: Value, *vectors: Value) -> Value:
    """Compute y = scale (x - mean) / sqrt(variance + epsilon) + offset, each per channel."""
    if x.dtype == FLOAT32:
        image = channels_first(x, call.inputs[0])
        return in_format(op.BatchNormalization(image, *vectors, epsilon=call.attrs.epsilon), call.inputs[0])
    scale, offset, mean, variance = (per_channel(op, call, vector) for vector in vectors)
    return (x - mean) * (scale / op.Sqrt(variance + call.attrs.epsilon)) + offset


@lowering(NodeType.SOFTMAX)
def softmax(op: Onnx, call: Call, x: Value) -> Value:
    axis = call.attrs.axis[0] if call.attrs.axis else -1
    return op.Softmax(x, axis=axis % call.inputs[0].rank)


@lowering(NodeType.LOG_SOFTMAX)
def log_softmax(op: Onnx, call: Call, x: Value) -> Value:
    return op.LogSoftmax(x, axis=call.attrs.axis % call.inputs[0].rank)


@lowering(NodeType.LAYER_NORM_FUSION)
def layer_norm(op: Onnx, call: Call, x: Value, gamma: Value, beta: Value) -> Value:
    """Standardize x over its last dimensions, then scale and shift it there."""
    begin, epsilon = call.attrs.begin_norm_axis, call.attrs.epsilon
    if not call.attrs.elementwise_affine:
        return standardized(op, x, range(begin, call.inputs[0].rank), epsilon)
    if x.dtype in (FLOAT32, HALF):
        return op.LayerNormalization(x, gamma, beta, axis=begin, epsilon=epsilon)
    return standardized(op, x, range(begin, call.inputs[0].rank), epsilon) * gamma + beta


@lowering(NodeType.INSTANCE_NORM)
def instance_norm(op: Onnx, call: Call, x: Value, scale: Value, bias: Value) -> Value:
    """Standardize x over all dimensions but batch and channels, then scale and shift each channel."""
    spec = call.inputs[0]
    channel = instance_channel_axis(spec, call.inputs[1].shape[0])
    if UNKNOWN_DIM in (spec.shape[channel], call.inputs[1].shape[0]):
        raise Unsupported(
            "the number of channels is known only when the model runs; fix it, for it says where they are"
        )
    others = [axis for axis in range(1, spec.rank) if axis != channel]
    if x.dtype == FLOAT32:
        front = [0, channel, *others]
        planes = x.transposed(front)
        sizes = [op.size(planes, axis) for axis in range(spec.rank)]
        may_be_empty = any(isinstance(size, Value) or not size for size in sizes[2:])
        if may_be_empty:  # ONNX Runtime reads the first pixel of any image, even of an empty one.
            area = product(sizes[2:])
            planes = op.reshape(planes, [*sizes[:2], op.Max(area, 1) if isinstance(area, Value) else 1])
        y = op.InstanceNormalization(planes, scale, bias, epsilon=call.attrs.epsilon)
        y = op.reshape(y, sizes) if may_be_empty else y
        return y.transposed([front.index(axis) for axis in range(spec.rank)])
    scale, bias = (op.unsqueeze(vector, range(1, spec.rank - channel)) for vector in (scale, bias))
    return standardized(op, x, others, call.attrs.epsilon) * scale + bias


@lowering(NodeType.L2_NORMALIZE_FUSION)
def l2_normalize(op: Onnx, call: Call, x: Value) -> Value:
    """Compute y = f(x / sqrt(max(sum(x^2), epsilon)))."""
    rank, wide = call.inputs[0].rank, _wide(x)
    axes = named_axes(call.attrs.axis, rank) or range(rank)
    total = op.ReduceSumSquare(wide, op.ints(axes), keepdims=1) if rank else wide * wide
    y = wide / op.Sqrt(op.Max(total, call.attrs.epsilon))
    return fused(op, y, call.attrs.activation_type).cast(x.dtype)


@lowering(NodeType.LRN)
def lrn(op: Onnx, call: Call, x: Value) -> Value:
    """Compute y = x / (bias + alpha sum(x^2))^beta; ONNX divides alpha by the size of the window."""
    attrs, spec = call.attrs, call.inputs[0]
    if x.dtype == HALF:
        return lrn(op, call, _wide(x)).cast(HALF)
    channels, image = spec.shape[spec.channel_axis], channels_first(x, spec)
    radius = attrs.depth_radius if channels == UNKNOWN_DIM else min(attrs.depth_radius, channels)
    if x.dtype == FLOAT32 and attrs.alpha > 0 and attrs.beta > 0:
        if channels == UNKNOWN_DIM and radius > MOST_RADIUS:
            raise Unsupported(
                f"depth_radius is {radius} of channels whose number is not known; fix it, or use {MOST_RADIUS}"
            )
        size = 2 * radius + 1
        return in_format(op.LRN(image, size=size, bias=attrs.bias, alpha=attrs.alpha * size, beta=attrs.beta), spec)
    if not 0 <= channels <= MOST_CHANNELS:
        raise Unsupported(f"{spec} has no ONNX operator; use FLOAT32, alpha and beta above 0")
    last = image.transposed([0, 2, 3, 1])
    is_near = np.abs(np.subtract.outer(np.arange(channels), np.arange(channels))) <= radius
    total = replace(op.MatMul(last * last, is_near.astype(x.dtype)), rank=4)
    return in_format((last / op.Pow(total * attrs.alpha + attrs.bias, attrs.beta)).transposed([0, 3, 1, 2]), spec)


def standardized(op: Onnx, x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """Compute (x - mean) / sqrt(variance + epsilon), with mean and population variance over these dimensions."""
    wide = _wide(x)
    centered = wide - op.ReduceMean(wide, op.ints(axes), keepdims=1)
    variance = op.ReduceMean(centered * centered, op.ints(axes), keepdims=1)
    return (centered / op.Sqrt(variance + epsilon)).cast(x.dtype)


def _wide(x: Value) -> Value:
    """Return FLOAT16 as FLOAT32: in FLOAT16 squares soon overflow and epsilon soon becomes 0."""
    return x.cast(FLOAT32) if x.dtype == HALF else x
