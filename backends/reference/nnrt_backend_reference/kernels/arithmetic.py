"""Arithmetic on two operands, with broadcasting."""

import numpy as np

from nnrt_backend_reference.kernels.activation import fused
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, cast_all, kernel
from nnrt_hdi.enums import NodeType


@kernel(NodeType.ADD_FUSION)
def add(call: Call, a: AnyArray, b: AnyArray) -> AnyArray:
    """y = f(a + b); numpy's sum of two BOOL is "or"."""
    return fused(np.add(*cast_all(call.dtype, a, b)), call.attrs.activation_type)


@kernel(NodeType.SUB_FUSION)
def sub(call: Call, a: AnyArray, b: AnyArray) -> AnyArray:
    """y = f(a - b)."""
    return fused(np.subtract(*cast_all(call.dtype, a, b)), call.attrs.activation_type)


@kernel(NodeType.MUL_FUSION)
def mul(call: Call, a: AnyArray, b: AnyArray) -> AnyArray:
    """y = f(a b); numpy's product of two BOOL is "and"."""
    return fused(np.multiply(*cast_all(call.dtype, a, b)), call.attrs.activation_type)


@kernel(NodeType.DIV_FUSION)
def div(call: Call, a: AnyArray, b: AnyArray) -> AnyArray:
    """y = f(a / b)."""
    return fused(quotient(*cast_all(call.dtype, a, b)), call.attrs.activation_type)


@kernel(NodeType.BIAS_ADD)
def bias_add(call: Call, x: AnyArray, bias: AnyArray) -> AnyArray:
    """y = x + bias, one bias for each channel."""
    x, bias = cast_all(call.dtype, x, bias)
    return x + per_channel(call, bias)


def per_channel(call: Call, vector: AnyArray) -> AnyArray:
    """A vector with one element per channel of the first operand, shaped to be broadcast with it."""
    spec = call.inputs[0]
    return vector.reshape([-1 if axis == spec.channel_axis else 1 for axis in range(spec.rank)])


def quotient(a: AnyArray, b: AnyArray) -> AnyArray:
    """a / b; of integers rounded towards zero, 0 where b is 0, and wrapped around for the lowest by -1."""
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    divisor = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a.dtype.type(0), (a - np.fmod(a, divisor)) // divisor)
