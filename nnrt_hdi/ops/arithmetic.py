"""Arithmetic on two operands, with broadcasting."""

from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.ops.activation import require_fusable
from nnrt_hdi.ops.operands import (
    Logical,
    Number,
    broadcast_spec,
    higher_precision,
    normalized_axis,
    require_channels,
    same_data_type,
)
from nnrt_hdi.ops.operator import Operand, operator, refuse
from nnrt_hdi.tensor import TensorSpec


def _fused(a: Operand, b: Operand, activation_type: ActivationType) -> TensorSpec:
    """A broadcast result in the higher-precision type of the two, with a fused activation."""
    data_type = higher_precision(a, b)
    require_fusable(activation_type, data_type)
    return broadcast_spec(a, b, data_type=data_type)


@operator(NodeType.ADD_FUSION)
def add(a: Logical, b: Logical, *, activation_type: ActivationType = ActivationType.NO_ACTIVATION) -> TensorSpec:
    """y = f(a + b), f the fused activation; integers wrap around, of two BOOL it is "or"."""
    return _fused(a, b, activation_type)


@operator(NodeType.SUB_FUSION)
def sub(a: Logical, b: Logical, *, activation_type: ActivationType = ActivationType.NO_ACTIVATION) -> TensorSpec:
    """y = f(a - b), f the fused activation; integers wrap around."""
    return _fused_number(a, b, activation_type, "difference")


@operator(NodeType.MUL_FUSION)
def mul(a: Logical, b: Logical, *, activation_type: ActivationType = ActivationType.NO_ACTIVATION) -> TensorSpec:
    """y = f(a b), f the fused activation; integers wrap around, of two BOOL it is "and"."""
    return _fused(a, b, activation_type)


@operator(NodeType.DIV_FUSION)
def div(a: Logical, b: Logical, *, activation_type: ActivationType = ActivationType.NO_ACTIVATION) -> TensorSpec:
    """y = f(a / b), f the fused activation; integers round towards zero (TensorFlow Lite, MindSpore Lite), and an
    integer divided by zero is 0."""
    return _fused_number(a, b, activation_type, "quotient")


@operator(NodeType.BIAS_ADD)
def bias_add(x: Number, bias: Number) -> TensorSpec:
    """y = x + bias, one bias for each channel: the last dimension, of an NCHW tensor dimension 1."""
    if not 2 <= x.rank <= 5:
        refuse(f"{x} has rank {x.rank}; use rank 2..5")
    if bias.rank != 1:
        refuse(f"{bias} has rank {bias.rank}; use rank 1")
    same_data_type(x, bias)
    require_channels(x.shape[normalized_axis(x.spec.channel_axis, x.rank)], bias)
    return x.spec


def _fused_number(a: Operand, b: Operand, activation_type: ActivationType, result: str) -> TensorSpec:
    if a.data_type == b.data_type == DataType.BOOL:
        refuse(f"the {result} of two BOOL is not defined; cast one to a number")
    return _fused(a, b, activation_type)
