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
    """Compute a / b; integers are rounded towards zero.

    Integer division by 0 gives 0, and the lowest integer divided by -1 wraps around. The processor would end the
    process in both cases, so the model never divides by such numbers.
    """
    if a.dtype.kind == "f":
        return a / b
    y = op.Where(op.Equal(b, 0), 0, a / _harmless(op, b))
    return y if a.dtype.kind == "u" else op.Where(op.Equal(b, -1), -a, y)


def remainder(op: Onnx, a: Value, b: Value) -> Value:
    """Compute the remainder, with the sign of a. For integers a remainder by 0 is 0.

    ONNX Runtime computes Mod of integers in FLOAT64, so their remainder is written out.
    """
    if a.dtype.kind == "f":
        return op.Mod(a, b, fmod=1)
    b = _harmless(op, b)
    return a - a / b * b


def _harmless(op: Onnx, divisor: Value) -> Value:
    """Return integers with 0 and -1 replaced by 1, because dividing by them could end the process."""
    is_bad = op.Equal(divisor, 0)
    if divisor.dtype.kind == "i":
        is_bad = op.Or(is_bad, op.Equal(divisor, -1))
    return op.Where(is_bad, 1, divisor)


def squared_difference(op: Onnx, a: Value, b: Value) -> Value:
    """Compute (a - b)^2, which is "exclusive or" for BOOL."""
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
    """Return the lowering that casts the operands to the result's type and applies a fused activation, if any."""

    def lower(op: Onnx, call: Call, a: Value, b: Value) -> Value:
        activation_type = getattr(call.attrs, "activation_type", ActivationType.NO_ACTIVATION)
        return fused(op, function(op, a.cast(call.dtype), b.cast(call.dtype)), activation_type)

    return lower


for _node_type, _function in FUNCTIONS.items():
    lowering(_node_type)(_lowering_of(_function))


@lowering(NodeType.ELTWISE)
def eltwise(op: Onnx, call: Call, a: Value, b: Value) -> Value:
    """Compute a and b combined as mode says."""
    return COMBINATIONS[call.attrs.mode](op, a, b)


@lowering(NodeType.POW_FUSION)
def power(op: Onnx, call: Call, x: Value, y: Value) -> Value:
    """Compute (scale x + shift)^y."""
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
    """Compute a power of integers by repeated squaring.

    ONNX Runtime computes such powers in FLOAT64, where they don't wrap around. Negative powers are 0, except those of 1
    and -1, which depend on the exponent's parity.
    """
    if base.dtype.kind == "i":
        is_negative = op.Less(exponent, 0)
        parity = op.Where(is_negative, op.BitwiseAnd(exponent, 1), exponent)
        y = natural_power(op, base, parity, bits)
        return op.Where(op.And(is_negative, op.Not(op.Equal(op.Abs(base), 1))), 0, y)
    return natural_power(op, base, exponent, bits)


def natural_power(op: Onnx, base: Value, exponent: Value, bits: int) -> Value:
    """Compute base^exponent for exponents >= 0 of at most `bits` bits."""
    y: Value | None = None
    for bit in range(bits):
        is_unset = op.Equal(op.BitwiseAnd(exponent, op.scalar(1 << bit, base.dtype)), 0)
        y = op.Where(is_unset, 1, base) if y is None else op.Where(is_unset, y, y * base)
        base = base * base
    assert y is not None
    return y


@lowering(NodeType.SCALE_FUSION)
def scale(op: Onnx, call: Call, x: Value, scale: Value, bias: Value) -> Value:
    """Compute y = f(x scale + bias); scale and bias are repeated over the later dimensions of x."""
    spec = call.inputs[0]

    def spread(vector: Value, rank: int) -> Value:
        behind = spec.rank - call.attrs.axis % spec.rank - rank
        return op.unsqueeze(vector, range(rank, rank + behind))

    y = x * spread(scale, call.inputs[1].rank) + spread(bias, call.inputs[2].rank)
    return fused(op, y, call.attrs.activation_type)


@lowering(NodeType.BIAS_ADD)
def bias_add(op: Onnx, call: Call, x: Value, bias: Value) -> Value:
    """Compute y = x + bias, with one bias for each channel."""
    return x + per_channel(op, call, bias)
