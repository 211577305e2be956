"""Arithmetic on two or more operands."""

from typing import Any

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value

_PLAIN = {"Add": OperationType.ADD, "Sub": OperationType.SUB, "Mul": OperationType.MUL, "Div": OperationType.DIV}
_FOLDED = {"Sum": OperationType.ADD, "Max": OperationType.MAXIMUM, "Min": OperationType.MINIMUM}


@onnx_operator(
    *_PLAIN,
    doc={name: f"{kind.name} with the Relu or Clip(0, 6) that follows." for name, kind in _PLAIN.items()},
    is_quantizable=True,
    fuses=True,
)
def apply_plain(op: NodeBuilder, a: Value, b: Value) -> Value:
    return op.apply(_PLAIN[op.type], a, b, activation=op.activation(), quant=op.quant)


@onnx_operator(*_FOLDED, doc={name: f"{kind.name} of the inputs, one after another." for name, kind in _FOLDED.items()})
def fold(op: NodeBuilder, *parts: Value) -> Value:
    return _fold(op, _FOLDED[op.type], parts)


@onnx_operator("Mean")
def mean(op: NodeBuilder, *parts: Value) -> Value:
    """ADD of the inputs, one after another, and DIV by their number."""
    total = _fold(op, OperationType.ADD, parts)
    return total if len(parts) == 1 else op.apply(OperationType.DIV, total, op.number(len(parts), total.dtype))


def _fold(op: NodeBuilder, type: OperationType, parts: tuple[Value, ...]) -> Value:
    if not parts:
        refuse("it has no inputs; give it one")
    result = parts[0]
    for at, part in enumerate(parts[1:], 2):
        is_last_sum = type is OperationType.ADD and at == len(parts) and op.type == "Sum"
        fused: dict[str, Any] = {"activation": op.activation()} if is_last_sum else {}
        result = op.apply(type, result, part, **fused)
    return result


@onnx_operator("Pow")
def power(op: NodeBuilder, x: Value, y: Value) -> Value:
    """POW, with the exponent cast to the data type of the base."""
    if x.dtype.kind != "f" and y.dtype.kind == "f":
        wide = np.dtype(np.float64)
        return op.cast(op.apply(OperationType.POW, op.cast(x, wide), op.cast(y, wide)), x.dtype)
    return op.apply(OperationType.POW, x, op.cast(y, x.dtype))


@onnx_operator("Mod", since=10)
def mod(op: NodeBuilder, a: Value, b: Value, *, fmod: int = 0) -> Value:
    """MOD; without fmod, ADD of b and WHERE give the result the sign of b."""
    rest = op.apply(OperationType.MOD, a, b)
    if fmod or a.dtype.kind == "u":
        return rest
    zero = op.number(0, a.dtype)
    signs = [op.apply(OperationType.LESS, part, zero) for part in (rest, b)]
    is_other = op.apply(OperationType.NOT_EQUAL, *signs)
    is_wrong = op.apply(OperationType.LOGICAL_AND, is_other, op.apply(OperationType.NOT_EQUAL, rest, zero))
    return op.apply(OperationType.WHERE, is_wrong, op.apply(OperationType.ADD, rest, b), rest)


@onnx_operator("BitShift", since=11)
def bit_shift(op: NodeBuilder, x: Value, y: Value, *, direction: str) -> Value:
    """MUL by a POW of 2 to the left, DIV by it to the right; signed integers are first rounded down by MOD and SUB."""
    if direction not in ("LEFT", "RIGHT"):
        refuse(f"its direction is {direction!r}; use 'LEFT' or 'RIGHT'")
    if x.dtype.kind == "u" or direction == "LEFT":
        factor = op.apply(OperationType.POW, op.number(2, x.dtype), y)
        return op.apply(OperationType.MUL if direction == "LEFT" else OperationType.DIV, x, factor)
    wide = np.dtype(np.int64)
    if x.dtype == wide:
        refuse(f"it shifts {x} to the right; use a shorter integer")
    # A shift beyond the last bit equals a shift to the last bit. A negative count is treated as such a shift.
    last = op.number(8 * x.dtype.itemsize - 1, wide)
    count = op.cast(y, wide)
    is_far = op.apply(OperationType.LESS, count, op.number(0, wide))
    count = op.apply(OperationType.WHERE, is_far, last, op.apply(OperationType.MINIMUM, count, last))
    # ONNX's Mod of a positive divisor is never negative, so the quotient is rounded down.
    number, factor = op.cast(x, wide), op.apply(OperationType.POW, op.number(2, wide), count)
    whole = op.apply(OperationType.SUB, number, mod(op, number, factor))
    return op.cast(op.apply(OperationType.DIV, whole, factor), x.dtype)
