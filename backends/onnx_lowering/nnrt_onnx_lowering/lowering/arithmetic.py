"""Arithmetic on two operands, with broadcasting."""

from collections.abc import Callable

import numpy as np

from nnrt_hdi.enums import ActivationType, EltwiseMode, NodeType
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.activation import fused
from nnrt_onnx_lowering.lowering.lowering import Call, lowering, per_channel
from nnrt_onnx_lowering.lowering.lowering import Function as Lowering
from nnrt_onnx_lowering.value import Value

Function = Callable[[Onnx, Value, Value], Value]
BOOL = np.dtype(np.bool_)


def quotient(op: Onnx, a: Value, b: Value) -> Value:
    """a / b; of integers rounded towards zero, 0 where b is 0, and wrapped around for the lowest by -1.

    The processor would end the process for the last two.
    """
    if a.dtype.kind == "f":
        return a / b
    y = op.Where(op.Equal(b, 0), 0, a / _harmless(op, b))
    return y if a.dtype.kind == "u" else op.Where(op.Equal(b, -1), -a, y)


def remainder(op: Onnx, a: Value, b: Value) -> Value:
    """With the sign of a; of integers by 0 it is 0, as by 1. ONNX Runtime computes that of integers in FLOAT64."""
    if a.dtype.kind == "f":
        return op.Mod(a, b, fmod=1)
    b = _harmless(op, b)
    return a - a / b * b


def _harmless(op: Onnx, divisor: Value) -> Value:
    """Integers with 1 in the place of those that a processor may not divide by: 0 and -1."""
    is_bad = op.Equal(divisor, 0)
    if divisor.dtype.kind == "i":
        is_bad = op.Or(is_bad, op.Equal(divisor, -1))
    return op.Where(is_bad, 1, divisor)


def squared_difference(op: Onnx, a: Value, b: Value) -> Value:
    """(a - b)^2; of two BOOL "exclusive or"."""
    if a.dtype == BOOL:
        return op.Xor(a, b)
    difference = a - b
    return difference * difference


FUNCTIONS: dict[NodeType, Function] = {
    NodeType.ADD_FUSION: lambda op, a, b: op.Or(a, b) if a.dtype == BOOL else a + b,
    NodeType.SUB_FUSION: lambda op, a, b: a - b,
    NodeType.MUL_FUSION: lambda op, a, b: op.And(a, b) if a.dtype == BOOL else a * b,
    NodeType.DIV_FUSION: quotient,
    NodeType.REAL_DIV: quotient,
    NodeType.MAXIMUM: lambda op, a, b: op.Max(a, b),
    NodeType.MINIMUM: lambda op, a, b: op.Min(a, b),
    NodeType.MOD: remainder,
    NodeType.SQUARED_DIFFERENCE: squared_difference,
}
COMBINATIONS: dict[EltwiseMode, Function] = {
    EltwiseMode.PROD: lambda op, a, b: a * b,
    EltwiseMode.SUM: lambda op, a, b: a + b,
    EltwiseMode.MAXIMUM: lambda op, a, b: op.Max(a, b),
}


def _lowering_of(function: Function) -> Lowering:
    """The function in the type of the result, with the fused activation of the operators that have one."""

    def lower(op: Onnx, call: Call, a: Value, b: Value) -> Value:
        activation_type = getattr(call.attrs, "activation_type", ActivationType.NO_ACTIVATION)
        return fused(op, function(op, a.cast(call.dtype), b.cast(call.dtype)), activation_type)

    return lower


for _node_type, _function in FUNCTIONS.items():
    lowering(_node_type)(_lowering_of(_function))


@lowering(NodeType.ELTWISE)
def eltwise(op: Onnx, call: Call, a: Value, b: Value) -> Value:
    """y = a and b, combined as mode says."""
    return COMBINATIONS[call.attrs.mode](op, a, b)


@lowering(NodeType.POW_FUSION)
def power(op: Onnx, call: Call, x: Value, y: Value) -> Value:
    """(scale x + shift)^y."""
    exponents = y.elements
    x, y = x.cast(call.dtype), y.cast(call.dtype)
    scale, shift = call.attrs.scale, call.attrs.shift
    base = x if (scale, shift) == (1, 0) else x * scale + shift
    if base.dtype.kind == "f":
        return op.Pow(base, y)
    bits = np.iinfo(call.dtype).bits - (call.dtype.kind == "i")
    if exponents is not None:
        bits = min(bits, max(1, int(exponents.max(initial=1)).bit_length()))
    return integer_power(op, base, y, bits)


def integer_power(op: Onnx, base: Value, exponent: Value, bits: int) -> Value:
    """By repeated squaring, for ONNX Runtime computes powers of integers in FLOAT64, where they don't wrap around.

    To a negative power only 1 and -1 leave something: what parity says.
    """
    if base.dtype.kind == "i":
        is_negative = op.Less(exponent, 0)
        parity = op.Where(is_negative, op.BitwiseAnd(exponent, 1), exponent)
        y = natural_power(op, base, parity, bits)
        return op.Where(op.And(is_negative, op.Not(op.Equal(op.Abs(base), 1))), 0, y)
    return natural_power(op, base, exponent, bits)


def natural_power(op: Onnx, base: Value, exponent: Value, bits: int) -> Value:
    """base^exponent, of which so many bits may be set."""
    y: Value | None = None
    for bit in range(bits):
        is_unset = op.Equal(op.BitwiseAnd(exponent, op.scalar(1 << bit, base.dtype)), 0)
        y = op.Where(is_unset, 1, base) if y is None else op.Where(is_unset, y, y * base)
        base = base * base
    assert y is not None
    return y


@lowering(NodeType.SCALE_FUSION)
def scale(op: Onnx, call: Call, x: Value, scale: Value, bias: Value) -> Value:
    """y = f(x scale + bias), scale and bias repeated over the dimensions of x behind them."""
    spec = call.inputs[0]

    def spread(vector: Value, rank: int) -> Value:
        behind = spec.rank - call.attrs.axis % spec.rank - rank
        return op.unsqueeze(vector, range(rank, rank + behind))

    y = x * spread(scale, call.inputs[1].rank) + spread(bias, call.inputs[2].rank)
    return fused(op, y, call.attrs.activation_type)


@lowering(NodeType.BIAS_ADD)
def bias_add(op: Onnx, call: Call, x: Value, bias: Value) -> Value:
    """y = x + bias, one bias for each channel."""
    return x + per_channel(op, call, bias)
