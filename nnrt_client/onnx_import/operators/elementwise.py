"""Functions of one operand, element by element."""

import math
from typing import Any

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.signature import refuse
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
def apply_plain(op: NodeBuilder, x: Value) -> Value:
    return op.apply(_PLAIN[op.type], x, quant=op.quant)


@onnx_operator("Abs", is_quantizable=True)
def absolute(op: NodeBuilder, x: Value) -> Value:
    """ABS; no operation for unsigned integers."""
    return x if x.dtype.kind == "u" and op.quant is None else op.apply(OperationType.ABS, x, quant=op.quant)


@onnx_operator("Identity")
def identity(op: NodeBuilder, x: Value) -> Value:
    """No operation; BROADCAST_TO if an input of the model is an output."""
    return x


@onnx_operator("Dropout", until=11)
def dropout_with_ratio(op: NodeBuilder, x: Value, *, ratio: float = 0.5) -> tuple[Value, ...]:
    """No operation: it drops elements only in training."""
    return _drop_nothing(op, x)


@onnx_operator("Dropout", since=12)
def dropout(
    op: NodeBuilder, x: Value, ratio: Value | None = None, training_mode: Value | None = None, *, seed: int = 0
) -> tuple[Value, ...]:
    """No operation: it drops elements only in training."""
    if training_mode is not None and (training_mode.array is None or training_mode.array.any()):
        refuse("it is in training mode, where what it drops is random")
    return _drop_nothing(op, x)


def _drop_nothing(op: NodeBuilder, x: Value) -> tuple[Value, ...]:
    """Return x and, if the second output is read, a mask that is true everywhere."""
    if not any(op.outputs[1:]):
        return (x,)
    # NaN is not equal to itself, so EQUAL alone would not be true everywhere.
    same = op.apply(OperationType.EQUAL, x, x)
    return x, op.apply(OperationType.LOGICAL_OR, same, op.apply(OperationType.LOGICAL_NOT, same))


@onnx_operator("Cast")
def cast(op: NodeBuilder, x: Value, *, to: int, saturate: int = 1, round_mode: str = "up") -> Value:
    """CAST."""
    return op.cast(x, op.dtype(to))


@onnx_operator("CastLike", since=15)
def cast_like(op: NodeBuilder, x: Value, like: Value, *, saturate: int = 1, round_mode: str = "up") -> Value:
    """CAST."""
    return op.cast(x, like.dtype)


@onnx_operator("Clip", until=10, is_quantizable=True)
def clip_by_attributes(
    op: NodeBuilder, x: Value, *, min: float = -3.4028234663852886e38, max: float = 3.4028234663852886e38
) -> Value:
    """CLIP; RELU or RELU6 if it is fused into the operation before it."""
    return op.apply(OperationType.CLIP, x, min=min, max=max, quant=op.quant)


@onnx_operator("Clip", since=11, is_quantizable=True)
def clip(op: NodeBuilder, x: Value, min: Value | None = None, max: Value | None = None) -> Value:
    """CLIP for constant bounds, RELU or RELU6 if it is fused into the operation before it; else MAXIMUM and MINIMUM."""
    given = {"min": min, "max": max}
    bounds = {name: _exact_number(bound) for name, bound in given.items() if bound is not None}
    if None not in bounds.values():
        finite: dict[str, Any] = {name: bound for name, bound in bounds.items() if not math.isinf(bound or 0)}
        return op.apply(OperationType.CLIP, x, **finite, quant=op.quant)
    if op.quant is not None:
        refuse("it is quantized, but its bounds are not constant")
    if min is not None:
        x = op.apply(OperationType.MAXIMUM, x, min)
    return x if max is None else op.apply(OperationType.MINIMUM, x, max)


def _exact_number(bound: Value) -> float | None:
    """Return a bound as a number, or None if FLOAT32 can't hold it exactly or it is known only in a run."""
    if bound.array is None or bound.array.size != 1:
        return None
    number = bound.array.reshape(-1)[0].item()
    with np.errstate(all="ignore"):
        return float(number) if float(np.float32(number)) == number and int(float(number)) == int(number) else None


@onnx_operator("Sign")
def sign(op: NodeBuilder, x: Value) -> Value:
    """SUB of (x > 0) and (x < 0), with GREATER, LESS and CAST."""
    zero = op.number(0, x.dtype)
    above, below = op.apply(OperationType.GREATER, x, zero), op.apply(OperationType.LESS, x, zero)
    return op.apply(OperationType.SUB, op.cast(above, x.dtype), op.cast(below, x.dtype))


@onnx_operator("IsNaN")
def is_nan(op: NodeBuilder, x: Value) -> Value:
    """NOT_EQUAL of x and x."""
    return op.apply(OperationType.NOT_EQUAL, x, x)


@onnx_operator("IsInf")
def is_inf(op: NodeBuilder, x: Value, *, detect_negative: int = 1, detect_positive: int = 1) -> Value:
    """EQUAL to infinity, after ABS for both signs."""
    if not (detect_negative or detect_positive):
        return op.apply(OperationType.LESS, op.apply(OperationType.ABS, x), op.number(0, x.dtype))
    if detect_negative and detect_positive:
        x = op.apply(OperationType.ABS, x)
    return op.apply(OperationType.EQUAL, x, op.number(math.inf if detect_positive else -math.inf, x.dtype))


@onnx_operator("Tan")
def tan(op: NodeBuilder, x: Value) -> Value:
    """SIN / COS."""
    return op.apply(OperationType.DIV, op.apply(OperationType.SIN, x), op.apply(OperationType.COS, x))


@onnx_operator(
    "Sinh",
    "Cosh",
    since=9,
    doc={
        "Sinh": "(exp(x) - exp(-x)) / 2, by EXP, SUB and MUL.",
        "Cosh": "(exp(x) + exp(-x)) / 2, by EXP, ADD and MUL.",
    },
)
def hyperbolic(op: NodeBuilder, x: Value) -> Value:
    combine = OperationType.SUB if op.type == "Sinh" else OperationType.ADD
    both = op.apply(combine, op.apply(OperationType.EXP, x), op.apply(OperationType.EXP, x, scale=-1.0))
    return op.apply(OperationType.MUL, both, op.number(0.5, x.dtype))


@onnx_operator("Asinh", since=9)
def asinh(op: NodeBuilder, x: Value) -> Value:
    """Sign times log(|x| + sqrt(x^2 + 1)), by ABS, SQUARE, SQRT, LOG and others."""
    size = op.apply(OperationType.ABS, x)
    root = op.apply(OperationType.SQRT, _add_one(op, op.apply(OperationType.SQUARE, x)))
    logarithm = op.apply(OperationType.LOG, op.apply(OperationType.ADD, size, root))
    return op.apply(OperationType.MUL, sign(op, x), logarithm)


@onnx_operator("Acosh", since=9)
def acosh(op: NodeBuilder, x: Value) -> Value:
    """LOG of (x + sqrt(x^2 - 1)), with SQUARE, SUB, SQRT and ADD."""
    square = op.apply(OperationType.SQUARE, x)
    root = op.apply(OperationType.SQRT, op.apply(OperationType.SUB, square, op.number(1, x.dtype)))
    return op.apply(OperationType.LOG, op.apply(OperationType.ADD, x, root))


@onnx_operator("Atanh", since=9)
def atanh(op: NodeBuilder, x: Value) -> Value:
    """LOG of ((1 + x) / (1 - x)), halved, with ADD, SUB, DIV and MUL."""
    below = op.apply(OperationType.SUB, op.number(1, x.dtype), x)
    logarithm = op.apply(OperationType.LOG, op.apply(OperationType.DIV, _add_one(op, x), below))
    return op.apply(OperationType.MUL, logarithm, op.number(0.5, x.dtype))


@onnx_operator("BitwiseNot", since=18)
def bitwise_not(op: NodeBuilder, x: Value) -> Value:
    """-x - 1, which wraps around, by NEG and SUB."""
    return op.apply(OperationType.SUB, op.apply(OperationType.NEG, x), op.number(1, x.dtype))


def _add_one(op: NodeBuilder, x: Value) -> Value:
    return op.apply(OperationType.ADD, x, op.number(1, x.dtype))
