"""Arithmetic on two operands, with broadcasting."""

from typing import Annotated

from nnrt_hdi.enums import ActivationType, DataType, EltwiseMode, NodeType
from nnrt_hdi.ops.activation import require_fusable
from nnrt_hdi.ops.operands import (
    NUMBERS,
    Logical,
    Number,
    broadcast_spec,
    common_format,
    common_shape,
    higher_precision,
    normalized_axis,
    require_channels,
    require_holds,
    same_data_type,
)
from nnrt_hdi.ops.operator import Accepts, Operand, operator, refuse
from nnrt_hdi.tensor import TensorSpec


@operator(NodeType.ADD_FUSION, quantized=True)
def add(a: Logical, b: Logical, *, activation_type: ActivationType = ActivationType.NO_ACTIVATION) -> TensorSpec:
    """y = f(a + b), where f is the fused activation; integers wrap around; for two BOOL, + is "or"."""
    return _fused(a, b, activation_type)


@operator(NodeType.SUB_FUSION, quantized=True)
def sub(a: Logical, b: Logical, *, activation_type: ActivationType = ActivationType.NO_ACTIVATION) -> TensorSpec:
    """y = f(a - b), where f is the fused activation; integers wrap around."""
    return _fused_number(a, b, activation_type)


@operator(NodeType.MUL_FUSION, quantized=True)
def mul(a: Logical, b: Logical, *, activation_type: ActivationType = ActivationType.NO_ACTIVATION) -> TensorSpec:
    """y = f(a b), where f is the fused activation; integers wrap around; for two BOOL, the product is "and"."""
    return _fused(a, b, activation_type)


@operator(NodeType.DIV_FUSION, quantized=True)
def div(a: Logical, b: Logical, *, activation_type: ActivationType = ActivationType.NO_ACTIVATION) -> TensorSpec:
    """y = f(a / b), where f is the fused activation.

    Integers are rounded towards zero, as in TensorFlow Lite and MindSpore Lite. An integer divided by zero is 0.
    """
    return _fused_number(a, b, activation_type)


@operator(NodeType.MAXIMUM, "y = the larger of a and b; NaN if either is NaN.", quantized=True)
@operator(NodeType.MINIMUM, "y = the smaller of a and b; NaN if either is NaN.", quantized=True)
@operator(
    NodeType.MOD,
    "y = the remainder of a / b, with the sign of a (C's %, fmod); 0 for an integer divided by 0.",
    quantized=True,
)
@operator(NodeType.REAL_DIV, "y = a / b; for integers as in DIV_FUSION.", quantized=True)
def binary_number(a: Logical, b: Logical) -> TensorSpec:
    _refuse_two_bool(a, b)
    return broadcast_spec(a, b, data_type=higher_precision(a, b))


@operator(NodeType.SQUARED_DIFFERENCE, quantized=True)
def squared_difference(a: Logical, b: Logical) -> TensorSpec:
    """y = (a - b)^2; integers wrap around; for two BOOL, y is "exclusive or"."""
    return broadcast_spec(a, b, data_type=higher_precision(a, b))


@operator(NodeType.POW_FUSION, quantized=True)
def power(x: Logical, y: Logical, *, scale: float = 1.0, shift: float = 0.0) -> TensorSpec:
    """y = (scale x + shift)^y; integers wrap around, and are rounded towards zero for negative powers.

    For integers, 0 to a negative power is 0. Where the result is an integer, scale and shift must be integers too.
    """
    _refuse_two_bool(x, y)
    data_type = higher_precision(x, y)
    require_holds(data_type, scale, "scale")
    require_holds(data_type, shift, "shift")
    return broadcast_spec(x, y, data_type=data_type)


@operator(NodeType.ELTWISE, quantized=True)
def eltwise(a: Number, b: Number, *, mode: EltwiseMode = EltwiseMode.PROD) -> TensorSpec:
    """y = a and b combined by mode: PROD a b; SUM a + b; MAXIMUM the larger of both.

    a and b have one shape and data type.
    """
    if mode is EltwiseMode.UNKNOWN:
        refuse("mode is UNKNOWN; use PROD, SUM or MAXIMUM")
    return TensorSpec(same_data_type(a, b), common_shape(a, b), common_format(a, b))


@operator(NodeType.SCALE_FUSION, quantized=True)
def scale(
    x: Annotated[Operand, Accepts(NUMBERS, min_rank=1)],
    scale: Number,
    bias: Number,
    *,
    axis: int,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
) -> TensorSpec:
    """y = f(x scale + bias), where f is the fused activation; integers wrap around.

    scale and bias have the dimensions of x from axis on, or the first of these, and repeat over the others.
    """
    require_fusable(activation_type, same_data_type(x, scale, bias))
    start = normalized_axis(axis, x.rank)
    end = start + scale.rank
    covered = Operand(f"{x.name} from axis {axis} on", x.spec.with_shape(x.shape[start:end]))
    return x.spec.with_shape((*x.shape[:start], *common_shape(covered, scale, bias), *x.shape[end:]))


@operator(NodeType.BIAS_ADD, quantized=True)
def bias_add(x: Number, bias: Number) -> TensorSpec:
    """y = x + bias, with one bias for each channel: the last dimension, or dimension 1 of an NCHW tensor."""
    if not 2 <= x.rank <= 5:
        refuse(f"{x} has rank {x.rank}; use rank 2..5")
    if bias.rank != 1:
        refuse(f"{bias} has rank {bias.rank}; use rank 1")
    same_data_type(x, bias)
    require_channels(x.shape[normalized_axis(x.spec.channel_axis, x.rank)], bias)
    return x.spec


def _fused(a: Operand, b: Operand, activation_type: ActivationType) -> TensorSpec:
    """Return the spec of a broadcast result with a fused activation, in the higher-precision type of the operands."""
    data_type = higher_precision(a, b)
    require_fusable(activation_type, data_type)
    return broadcast_spec(a, b, data_type=data_type)


def _fused_number(a: Operand, b: Operand, activation_type: ActivationType) -> TensorSpec:
    _refuse_two_bool(a, b)
    return _fused(a, b, activation_type)


def _refuse_two_bool(a: Operand, b: Operand) -> None:
    if a.data_type == b.data_type == DataType.BOOL:
        refuse(f"{a.name} and {b.name} are both BOOL; cast one to a number")
