"""Arithmetic on two or more operands."""

from typing import Any

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.operator import onnx_operator, refuse
from nnrt_client.onnx_import.value import Value

_PLAIN = {"Add": OperationType.ADD, "Sub": OperationType.SUB, "Mul": OperationType.MUL, "Div": OperationType.DIV}
_FOLDS = {"Sum": OperationType.ADD, "Max": OperationType.MAXIMUM, "Min": OperationType.MINIMUM}


@onnx_operator(
    *_PLAIN,
    doc={name: f"{kind.name} with the Relu or Clip(0, 6) that follows." for name, kind in _PLAIN.items()},
    is_quantizable=True,
    fuses=True,
)
def plain(call: Call, a: Value, b: Value) -> Value:
    return call.apply(_PLAIN[call.type], a, b, activation=call.activation(), quant=call.quant)


@onnx_operator(*_FOLDS, doc={name: f"{kind.name}, one behind the other." for name, kind in _FOLDS.items()})
def folds(call: Call, *parts: Value) -> Value:
    return _folded(call, _FOLDS[call.type], parts)


@onnx_operator("Mean")
def mean(call: Call, *parts: Value) -> Value:
    """ADD, one behind the other, and DIV."""
    total = _folded(call, OperationType.ADD, parts)
    return total if len(parts) == 1 else call.apply(OperationType.DIV, total, call.number(len(parts), total.dtype))


def _folded(call: Call, type: OperationType, parts: tuple[Value, ...]) -> Value:
    if not parts:
        refuse("it has no inputs; give it one")
    result = parts[0]
    for at, part in enumerate(parts[1:], 2):
        is_last_sum = type is OperationType.ADD and at == len(parts) and call.type == "Sum"
        fused: dict[str, Any] = {"activation": call.activation()} if is_last_sum else {}
        result = call.apply(type, result, part, **fused)
    return result


@onnx_operator("Pow")
def power(call: Call, x: Value, y: Value) -> Value:
    """POW, the exponent cast to the data type of the base."""
    if x.dtype.kind != "f" and y.dtype.kind == "f":
        wide = np.dtype(np.float64)
        return call.cast(call.apply(OperationType.POW, call.cast(x, wide), call.cast(y, wide)), x.dtype)
    return call.apply(OperationType.POW, x, call.cast(y, x.dtype))


@onnx_operator("Mod", since=10)
def mod(call: Call, a: Value, b: Value, *, fmod: int = 0) -> Value:
    """MOD; where the result has the sign of b and not of a, b is added by WHERE."""
    rest = call.apply(OperationType.MOD, a, b)
    if fmod or a.dtype.kind == "u":
        return rest
    zero = call.number(0, a.dtype)
    signs = [call.apply(OperationType.LESS, part, zero) for part in (rest, b)]
    is_other = call.apply(OperationType.NOT_EQUAL, *signs)
    is_wrong = call.apply(OperationType.LOGICAL_AND, is_other, call.apply(OperationType.NOT_EQUAL, rest, zero))
    return call.apply(OperationType.WHERE, is_wrong, call.apply(OperationType.ADD, rest, b), rest)


@onnx_operator("BitShift", since=11)
def bit_shift(call: Call, x: Value, y: Value, *, direction: str) -> Value:
    """MUL by a POW of 2 to the left, DIV to the right, of what a MOD leaves for signed integers."""
    if direction not in ("LEFT", "RIGHT"):
        refuse(f"its direction is {direction!r}; use 'LEFT' or 'RIGHT'")
    if x.dtype.kind == "u" or direction == "LEFT":
        factor = call.apply(OperationType.POW, call.number(2, x.dtype), y)
        return call.apply(OperationType.MUL if direction == "LEFT" else OperationType.DIV, x, factor)
    wide = np.dtype(np.int64)
    if x.dtype == wide:
        refuse(f"it shifts {x} to the right; use a shorter integer")
    # Further than to the last bit is no further; what is negative counts as very far.
    last = call.number(8 * x.dtype.itemsize - 1, wide)
    count = call.cast(y, wide)
    is_far = call.apply(OperationType.LESS, count, call.number(0, wide))
    count = call.apply(OperationType.WHERE, is_far, last, call.apply(OperationType.MINIMUM, count, last))
    # The rest that is lost is never negative, so the quotient is rounded down.
    number, factor = call.cast(x, wide), call.apply(OperationType.POW, call.number(2, wide), count)
    whole = call.apply(OperationType.SUB, number, mod(call, number, factor))
    return call.cast(call.apply(OperationType.DIV, whole, factor), x.dtype)
