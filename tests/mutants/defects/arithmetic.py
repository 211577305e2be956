"""Arithmetic on two operands with wrong broadcasting or rounding."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import kernel, with_attrs
from mutants.defects.arrays import aligned_left
from nnrt_hdi.enums import ActivationType, EltwiseMode, Format, NodeType


@kernel(NodeType.ADD_FUSION, NodeType.SUB_FUSION, NodeType.MUL_FUSION, NodeType.DIV_FUSION)
def activation_left_out(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """Arithmetic ignores the fused activation."""
    return right(with_attrs(call, activation_type=ActivationType.NO_ACTIVATION), a, b)


@kernel(NodeType.SUB_FUSION, NodeType.DIV_FUSION)
def larger_operand_first(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """The smaller operand always comes second, also if the order matters."""
    return right(call, b, a) if a.size < b.size else right(call, a, b)


@kernel(NodeType.ADD_FUSION, NodeType.MUL_FUSION)
def broadcast_from_the_left(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """A vector is broadcast along the first dimension if it has that length."""
    if b.ndim == 1 < a.ndim and a.shape[0] == b.shape[0]:
        b = aligned_left(b, a.ndim)
    return right(call, a, b)


@kernel(NodeType.MAXIMUM)
def maximum_of_a_number_and_none(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """The maximum of a number and NaN is the number."""
    return np.asarray(np.fmax(a, b) if call.dtype.kind == "f" else right(call, a, b))


@kernel(NodeType.MINIMUM)
def minimum_by_comparison(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """A minimum computes a < b ? a : b, which is b if a is NaN."""
    return np.where(a < b, a, b) if call.dtype.kind == "f" else right(call, a, b)


@kernel(NodeType.MOD)
def remainder_with_the_sign_of_b(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """The remainder has the sign of b, as in Python, not that of a, as in C."""
    return np.mod(a.astype(call.dtype), b.astype(call.dtype))


@kernel(NodeType.DIV_FUSION, NodeType.REAL_DIV)
def integers_divided_down(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """Quotients of integers are rounded down instead of towards 0."""
    if call.dtype.kind != "i" or getattr(call.attrs, "activation_type", False):
        return right(call, a, b)
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


@kernel(NodeType.POW_FUSION)
def power_by_logarithm(right: Kernel, call: Call, x: AnyArray, y: AnyArray) -> Any:
    """A power computes exp(y log(x)), which is NaN for x < 0."""
    if call.dtype.kind != "f":
        return right(call, x, y)
    base = call.attrs.scale * x.astype(call.dtype) + call.attrs.shift
    return np.exp(y * np.log(base))


@kernel(NodeType.POW_FUSION)
def power_without_scale_and_shift(right: Kernel, call: Call, x: AnyArray, y: AnyArray) -> Any:
    """The attributes scale and shift are ignored."""
    return right(with_attrs(call, scale=1.0, shift=0.0), x, y)


@kernel(NodeType.POW_FUSION)
def integer_powers_through_float64(right: Kernel, call: Call, x: AnyArray, y: AnyArray) -> Any:
    """Powers of integers are computed in FLOAT64, which is inexact above 2^53."""
    if call.dtype.kind not in "iu":
        return right(call, x, y)
    return np.power(x.astype(np.float64) * call.attrs.scale + call.attrs.shift, y).astype(call.dtype)


@kernel(NodeType.ELTWISE)
def maximum_is_a_sum(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """ELTWISE has two modes only: its maximum is a sum."""
    mode = EltwiseMode.PROD if call.attrs.mode is EltwiseMode.PROD else EltwiseMode.SUM
    return right(with_attrs(call, mode=mode), a, b)


@kernel(NodeType.SCALE_FUSION)
def scale_of_the_last_dimensions(right: Kernel, call: Call, x: AnyArray, scale: AnyArray, bias: AnyArray) -> Any:
    """SCALE ignores the axis if the scales fit the last dimensions."""
    last = x.ndim - scale.ndim
    return right(with_attrs(call, axis=last) if x.shape[last:] == scale.shape else call, x, scale, bias)


@kernel(NodeType.SCALE_FUSION)
def scale_of_the_shifted(right: Kernel, call: Call, x: AnyArray, scale: AnyArray, bias: AnyArray) -> Any:
    """SCALE computes (x + bias) * scale."""
    behind = (1,) * (x.ndim - call.attrs.axis % x.ndim - scale.ndim)
    shifted = x + bias.reshape(bias.shape + behind)
    return right(call, shifted.astype(x.dtype), scale, np.zeros_like(bias))


@kernel(NodeType.BIAS_ADD)
def bias_of_the_last_dimension(right: Kernel, call: Call, x: AnyArray, bias: AnyArray) -> Any:
    """In NCHW the bias is added along the width, if the width equals the number of channels."""
    fits = call.inputs[0].format is Format.NCHW and x.shape[-1] == len(bias)
    return np.asarray(x + bias if fits else right(call, x, bias))


@kernel(NodeType.SQUARED_DIFFERENCE)
def difference_not_squared(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """For integers a squared difference is |a - b|."""
    return right(call, a, b) if call.dtype.kind != "i" else np.abs(np.subtract(a, b, dtype=call.dtype))


@kernel(
    NodeType.DIV_FUSION,
    NodeType.REAL_DIV,
    left_open="it is rounded twice, which the tolerance has room for; denormal divisors, for which it differs more, may"
    " be taken for 0",
)
def quotient_by_the_reciprocal(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """A quotient is a * (1 / b), and 1 / b is infinite for the smallest numbers."""
    if call.dtype.kind != "f" or a.dtype != b.dtype or a.dtype == np.float16:
        return right(call, a, b)
    return right(call, a * (1 / b), np.ones_like(b))
