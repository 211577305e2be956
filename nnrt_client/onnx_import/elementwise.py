"""Functions of one operand, element by element."""

import math
from typing import Any

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.operator import onnx_operator, refuse
from nnrt_client.onnx_import.value import Value

_PLAIN = {
    "Sqrt": OperationType.SQRT,
    "Log": OperationType.LOG,
    "Sin": OperationType.SIN,
    "Cos": OperationType.COS,
    "Ceil": OperationType.CEIL,
    "Floor": OperationType.FLOOR,
    "Reciprocal": OperationType.RECIPROCAL,
    "Erf": OperationType.ERF,
    "Neg": OperationType.NEG,
    "Exp": OperationType.EXP,
    "Round": OperationType.ROUND,
}


@onnx_operator(*_PLAIN, doc={name: f"{kind.name}." for name, kind in _PLAIN.items()}, is_quantizable=True)
def plain(call: Call, x: Value) -> Value:
    return call.apply(_PLAIN[call.type], x, quant=call.quant)


@onnx_operator("Abs", is_quantizable=True)
def absolute(call: Call, x: Value) -> Value:
    """ABS; nothing for unsigned integers."""
    return x if x.dtype.kind == "u" and call.quant is None else call.apply(OperationType.ABS, x, quant=call.quant)


@onnx_operator("Identity")
def identity(call: Call, x: Value) -> Value:
    """Nothing; BROADCAST_TO where an input is an output."""
    return x


@onnx_operator("Dropout", until=11)
def dropout_with_ratio(call: Call, x: Value, *, ratio: float = 0.5) -> tuple[Value, ...]:
    """Nothing: it drops only in training."""
    return _dropped(call, x)


@onnx_operator("Dropout", since=12)
def dropout(
    call: Call, x: Value, ratio: Value | None = None, training_mode: Value | None = None, *, seed: int = 0
) -> tuple[Value, ...]:
    """Nothing: it drops only in training."""
    if training_mode is not None and (training_mode.array is None or training_mode.array.any()):
        refuse("it is in training mode, where what it drops is random")
    return _dropped(call, x)


def _dropped(call: Call, x: Value) -> tuple[Value, ...]:
    """What is left, and if somebody asks where that is: everywhere."""
    if not any(call.outputs[1:]):
        return (x,)
    # Two numbers of which one is not a number are equal nowhere, so one test alone would not do.
    same = call.apply(OperationType.EQUAL, x, x)
    return x, call.apply(OperationType.LOGICAL_OR, same, call.apply(OperationType.LOGICAL_NOT, same))


@onnx_operator("Cast")
def cast(call: Call, x: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    """CAST."""
    return call.cast(x, call.dtype(to))


@onnx_operator("CastLike", since=15)
def cast_like(call: Call, x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    """CAST."""
    return call.cast(x, like.dtype)


@onnx_operator("Clip", until=10, is_quantizable=True)
def clip_by_attributes(
    call: Call, x: Value, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> Value:
    """CLIP; RELU or RELU6 where the operation before it takes it in."""
    return call.apply(OperationType.CLIP, x, min=min, max=max, quant=call.quant)


@onnx_operator("Clip", since=11, is_quantizable=True)
def clip(call: Call, x: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """CLIP for constant bounds, RELU or RELU6 where the operation before it takes it in; else MAXIMUM and MINIMUM."""
    given = {"min": min, "max": max}
    bounds = {name: _exact(bound) for name, bound in given.items() if bound is not None}
    if None not in bounds.values():
        finite: dict[str, Any] = {name: bound for name, bound in bounds.items() if not math.isinf(bound or 0)}
        return call.apply(OperationType.CLIP, x, **finite, quant=call.quant)
    if call.quant is not None:
        refuse("it is quantized, but its bounds are not constant")
    if min is not None:
        x = call.apply(OperationType.MAXIMUM, x, min)
    return x if max is None else call.apply(OperationType.MINIMUM, x, max)


def _exact(bound: Value) -> float | None:
    """A bound as a parameter carries it; None where FLOAT32 can't be it, or it is known only in a run."""
    if bound.array is None or bound.array.size != 1:
        return None
    number = bound.array.reshape(-1)[0].item()
    with np.errstate(all="ignore"):
        return float(number) if float(np.float32(number)) == number and int(float(number)) == int(number) else None


@onnx_operator("Sign")
def sign(call: Call, x: Value) -> Value:
    """(x > 0) - (x < 0), of GREATER, LESS, CAST and SUB."""
    zero = call.number(0, x.dtype)
    above, below = call.apply(OperationType.GREATER, x, zero), call.apply(OperationType.LESS, x, zero)
    return call.apply(OperationType.SUB, call.cast(above, x.dtype), call.cast(below, x.dtype))


@onnx_operator("IsNaN")
def is_nan(call: Call, x: Value) -> Value:
    """NOT_EQUAL to itself."""
    return call.apply(OperationType.NOT_EQUAL, x, x)


@onnx_operator("IsInf")
def is_inf(call: Call, x: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """EQUAL to infinity, with ABS for both signs."""
    if not (detect_negative or detect_positive):
        return call.apply(OperationType.LESS, call.apply(OperationType.ABS, x), call.number(0, x.dtype))
    if detect_negative and detect_positive:
        x = call.apply(OperationType.ABS, x)
    return call.apply(OperationType.EQUAL, x, call.number(math.inf if detect_positive else -math.inf, x.dtype))


@onnx_operator("Tan")
def tan(call: Call, x: Value) -> Value:
    """SIN / COS."""
    return call.apply(OperationType.DIV, call.apply(OperationType.SIN, x), call.apply(OperationType.COS, x))


@onnx_operator(
    "Sinh",
    "Cosh",
    since=9,
    doc={
        "Sinh": "(exp(x) - exp(-x)) / 2, of EXP, SUB and MUL.",
        "Cosh": "(exp(x) + exp(-x)) / 2, of EXP, ADD and MUL.",
    },
)
def hyperbolic(call: Call, x: Value) -> Value:
    combine = OperationType.SUB if call.type == "Sinh" else OperationType.ADD
    both = call.apply(combine, call.apply(OperationType.EXP, x), call.apply(OperationType.EXP, x, scale=-1.0))
    return call.apply(OperationType.MUL, both, call.number(0.5, x.dtype))


@onnx_operator("Asinh", since=9)
def asinh(call: Call, x: Value) -> Value:
    """sign(x) log(|x| + sqrt(x^2 + 1)), of ABS, SQUARE, SQRT, LOG and others."""
    size = call.apply(OperationType.ABS, x)
    root = call.apply(OperationType.SQRT, _plus_one(call, call.apply(OperationType.SQUARE, x)))
    logarithm = call.apply(OperationType.LOG, call.apply(OperationType.ADD, size, root))
    return call.apply(OperationType.MUL, sign(call, x), logarithm)


@onnx_operator("Acosh", since=9)
def acosh(call: Call, x: Value) -> Value:
    """log(x + sqrt(x^2 - 1)), of SQUARE, SUB, SQRT, ADD and LOG."""
    square = call.apply(OperationType.SQUARE, x)
    root = call.apply(OperationType.SQRT, call.apply(OperationType.SUB, square, call.number(1, x.dtype)))
    return call.apply(OperationType.LOG, call.apply(OperationType.ADD, x, root))


@onnx_operator("Atanh", since=9)
def atanh(call: Call, x: Value) -> Value:
    """log((1 + x) / (1 - x)) / 2, of ADD, SUB, DIV, LOG and MUL."""
    below = call.apply(OperationType.SUB, call.number(1, x.dtype), x)
    logarithm = call.apply(OperationType.LOG, call.apply(OperationType.DIV, _plus_one(call, x), below))
    return call.apply(OperationType.MUL, logarithm, call.number(0.5, x.dtype))


@onnx_operator("BitwiseNot", since=18)
def bitwise_not(call: Call, x: Value) -> Value:
    """-x - 1, which wraps around, of NEG and SUB."""
    return call.apply(OperationType.SUB, call.apply(OperationType.NEG, x), call.number(1, x.dtype))


def _plus_one(call: Call, x: Value) -> Value:
    return call.apply(OperationType.ADD, x, call.number(1, x.dtype))
