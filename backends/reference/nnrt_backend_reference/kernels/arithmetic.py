"""Arithmetic on two operands, with broadcasting."""

from collections.abc import Callable

import numpy as np

from nnrt_backend_reference.kernels.activation import fused
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel, cast_all, kernel, per_channel
from nnrt_hdi.enums import ActivationType, EltwiseMode, NodeType

Function = Callable[[AnyArray, AnyArray], AnyArray]


def quotient(a: AnyArray, b: AnyArray) -> AnyArray:
    """Compute a / b; integers are rounded towards zero.

    Integer division by 0 gives 0, and the lowest integer divided by -1 wraps around.
    """
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    divisor = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a.dtype.type(0), (a - np.fmod(a, divisor)) // divisor)


def squared_difference(a: AnyArray, b: AnyArray) -> AnyArray:
    """Compute (a - b)^2, which is "exclusive or" for BOOL."""
    return np.logical_xor(a, b) if a.dtype.kind == "b" else np.square(a - b)


def power(a: AnyArray, b: AnyArray) -> AnyArray:
    """Compute a^b.

    numpy refuses negative powers of integers. These are 0, except those of 1 and -1, which depend on the exponent's
    parity.
    """
    if a.dtype.kind != "i":
        return np.power(a, b)
    is_lost = (b < 0) & (a != 1) & (a != -1)
    return np.where(is_lost, a.dtype.type(0), np.power(a, np.where(b < 0, b & 1, b)))


# In numpy the sum of BOOL is "or" and the product "and". The remainder of an integer by 0 is 0.
FUNCTIONS: dict[NodeType, Function] = {
    NodeType.ADD_FUSION: np.add,
    NodeType.SUB_FUSION: np.subtract,
    NodeType.MUL_FUSION: np.multiply,
    NodeType.DIV_FUSION: quotient,
    NodeType.REAL_DIV: quotient,
    NodeType.MAXIMUM: np.maximum,
    NodeType.MINIMUM: np.minimum,
    NodeType.MOD: np.fmod,
    NodeType.SQUARED_DIFFERENCE: squared_difference,
}
COMBINATIONS: dict[EltwiseMode, Function] = {
    EltwiseMode.PROD: np.multiply,
    EltwiseMode.SUM: np.add,
    EltwiseMode.MAXIMUM: np.maximum,
}


def _kernel_of(function: Function) -> Kernel:
    """Return the kernel that casts the operands to the result's type and applies a fused activation, if any."""

    def compute(call: Call, a: AnyArray, b: AnyArray) -> AnyArray:
        activation_type = getattr(call.attrs, "activation_type", ActivationType.NO_ACTIVATION)
        return fused(function(*cast_all(call.dtype, a, b)), activation_type)

    return compute


for _node_type, _function in FUNCTIONS.items():
    kernel(_node_type)(_kernel_of(_function))


@kernel(NodeType.ELTWISE)
def eltwise(call: Call, a: AnyArray, b: AnyArray) -> AnyArray:
    """Compute a and b combined as mode says."""
    return COMBINATIONS[call.attrs.mode](*cast_all(call.dtype, a, b))


@kernel(NodeType.POW_FUSION)
def pow_fusion(call: Call, x: AnyArray, y: AnyArray) -> AnyArray:
    """Compute (scale x + shift)^y; a zero keeps its sign if there is no scale and shift."""
    x, y = cast_all(call.dtype, x, y)
    scale, shift = call.attrs.scale, call.attrs.shift
    base = x if (scale, shift) == (1, 0) else x.dtype.type(scale) * x + x.dtype.type(shift)
    return power(base, y)


@kernel(NodeType.SCALE_FUSION)
def scale(call: Call, x: AnyArray, scale: AnyArray, bias: AnyArray) -> AnyArray:
    """Compute y = f(x scale + bias); scale and bias are repeated over the later dimensions of x."""
    x, scale, bias = cast_all(call.dtype, x, scale, bias)
    behind = (1,) * (x.ndim - call.attrs.axis % x.ndim - scale.ndim)
    y = x * scale.reshape(scale.shape + behind) + bias.reshape(bias.shape + behind)
    return fused(y, call.attrs.activation_type)


@kernel(NodeType.BIAS_ADD)
def bias_add(call: Call, x: AnyArray, bias: AnyArray) -> AnyArray:
    """Compute y = x + bias, with one bias for each channel."""
    x, bias = cast_all(call.dtype, x, bias)
    return x + per_channel(call, bias)
