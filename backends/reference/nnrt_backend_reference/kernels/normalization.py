"""Normalization: values brought to a common scale."""

import numpy as np

from nnrt_backend_reference.kernels.arithmetic import per_channel
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, cast_all, kernel
from nnrt_hdi.enums import NodeType


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
