"""Normalization over the wrong elements, or with epsilon in the wrong place."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels import normalization
from nnrt_backend_reference.kernels.activation import fused
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import function, kernel, with_attrs
from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.normalization import instance_channel_axis

BATCH, LAYER, INSTANCE = NodeType.FUSED_BATCH_NORM, NodeType.LAYER_NORM_FUSION, NodeType.INSTANCE_NORM


@kernel(BATCH)
def epsilon_outside_the_root(
    right: Kernel, call: Call, x: AnyArray, scale: AnyArray, offset: AnyArray, mean: AnyArray, variance: AnyArray
) -> Any:
    """A batch normalization divides by sqrt(variance) + epsilon."""
    outside = np.square(np.sqrt(variance) + variance.dtype.type(call.attrs.epsilon))
    return right(with_attrs(call, epsilon=0.0), x, scale, offset, mean, outside)


@kernel(BATCH, LAYER, INSTANCE)
def epsilon_of_the_library(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """epsilon is always 1e-5."""
    return right(with_attrs(call, epsilon=1e-5), *operands)


@kernel(BATCH)
def standard_deviation_for_variance(
    right: Kernel, call: Call, x: AnyArray, scale: AnyArray, offset: AnyArray, mean: AnyArray, variance: AnyArray
) -> Any:
    """The variance is taken for the standard deviation."""
    return right(call, x, scale, offset, mean, np.square(variance))


@kernel(NodeType.SOFTMAX)
def softmax_that_overflows(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A softmax doesn't subtract the maximum: large elements give NaN."""
    axis = call.attrs.axis[0] if call.attrs.axis else -1
    power = np.exp(x.astype(call.dtype))
    return np.asarray(power / power.sum(axis=axis, keepdims=True))


@kernel(NodeType.SOFTMAX)
def softmax_of_the_last_dimension(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The axis is ignored."""
    return right(with_attrs(call, axis=()), x)


@kernel(NodeType.SOFTMAX)
def softmax_of_all_from_the_axis_on(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A softmax sums over all dimensions from the axis on, as ONNX did before version 13."""
    axis = (call.attrs.axis[0] if call.attrs.axis else -1) % x.ndim
    flat = x.reshape(*x.shape[:axis], -1)
    power = np.exp(flat - flat.max(axis=-1, keepdims=True).astype(call.dtype))
    return np.asarray(power / power.sum(axis=-1, keepdims=True)).reshape(x.shape)


@kernel(NodeType.LOG_SOFTMAX)
def logarithm_of_a_softmax(right: Kernel, call: Call, x: AnyArray) -> Any:
    """LOG_SOFTMAX computes log(softmax(x)), which is minus infinity for small results."""
    y = np.exp(right(call, x))
    return np.log(y)


@kernel(LAYER)
def layer_norm_of_the_last_dimension(right: Kernel, call: Call, x: AnyArray, gamma: AnyArray, beta: AnyArray) -> Any:
    """A layer normalization normalizes the last dimension only."""
    plain = with_attrs(call, begin_norm_axis=x.ndim - 1, elementwise_affine=False)
    y = right(plain, x, gamma, beta)
    return y * gamma + beta if call.attrs.elementwise_affine else y


@kernel(LAYER)
def layer_norm_always_scaled(right: Kernel, call: Call, x: AnyArray, gamma: AnyArray, beta: AnyArray) -> Any:
    """elementwise_affine is ignored."""
    return right(with_attrs(call, elementwise_affine=True), x, gamma, beta)


@function(normalization.deviations, LAYER, INSTANCE)
def variance_of_a_sample(right: Kernel, x: AnyArray, axis: int) -> Any:
    """The variance is divided by n - 1 instead of n."""
    count = max(int(np.prod(x.shape[axis:])), 1)
    return ((part, centered, variance * count / max(count - 1, 1)) for part, centered, variance in right(x, axis))


@function(normalization.deviations, LAYER, INSTANCE)
def variance_by_difference(right: Kernel, x: AnyArray, axis: int) -> Any:
    """The variance is mean(x^2) - mean(x)^2 in FLOAT32, which is inexact far from 0."""
    axes = tuple(range(axis, x.ndim))
    single = x.astype(np.float32)
    mean = single.mean(axis=axes, keepdims=True, dtype=np.float32)
    square = np.square(single).mean(axis=axes, keepdims=True, dtype=np.float32)
    variance = np.maximum(square - mean * mean, 0)
    return ((part, centered, variance[part].reshape(wide.shape)) for part, centered, wide in right(x, axis))


@kernel(INSTANCE)
def instances_of_the_whole_batch(right: Kernel, call: Call, x: AnyArray, scale: AnyArray, bias: AnyArray) -> Any:
    """INSTANCE_NORM computes mean and variance over the whole batch."""
    channel = instance_channel_axis(call.inputs[0], len(scale)) % x.ndim
    axes = tuple(axis for axis in range(x.ndim) if axis != channel)
    each = [-1 if axis == channel else 1 for axis in range(x.ndim)]
    wide = x.astype(np.float64)
    factor = scale.reshape(each) / np.sqrt(wide.var(axis=axes, keepdims=True) + call.attrs.epsilon)
    return np.asarray((wide - wide.mean(axis=axes, keepdims=True)) * factor + bias.reshape(each))


@kernel(NodeType.L2_NORMALIZE_FUSION)
def epsilon_beside_the_norm(right: Kernel, call: Call, x: AnyArray) -> Any:
    """An L2 normalization adds epsilon to the norm instead of bounding its square."""
    axes = tuple(axis % x.ndim for axis in call.attrs.axis) or None
    norm = np.sqrt(np.square(x, dtype=np.float64).sum(axis=axes, keepdims=True))
    return fused(np.asarray(x / (norm + call.attrs.epsilon)), call.attrs.activation_type)


@kernel(NodeType.L2_NORMALIZE_FUSION)
def norm_of_the_last_dimension(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The axes of an L2 norm are ignored."""
    return right(with_attrs(call, axis=(x.ndim - 1,)), x)


@kernel(NodeType.LRN)
def alpha_divided_by_the_window(right: Kernel, call: Call, x: AnyArray) -> Any:
    """LRN divides alpha by the size of the window, as ONNX and Caffe do."""
    return right(with_attrs(call, alpha=call.attrs.alpha / (2 * call.attrs.depth_radius + 1)), x)


@kernel(NodeType.LRN)
def window_of_half_the_radius(right: Kernel, call: Call, x: AnyArray) -> Any:
    """LRN takes depth_radius for the size of the window."""
    return right(with_attrs(call, depth_radius=call.attrs.depth_radius // 2), x)
