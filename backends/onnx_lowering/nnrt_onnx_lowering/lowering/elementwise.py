"""Functions of one operand, element by element."""

import numpy as np

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.ops.elementwise import integer_bounds
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.lowering import Call, Function, lowering
from nnrt_onnx_lowering.value import Value

# Node types that are one ONNX operator.
OPERATORS = {
    NodeType.SQRT: "Sqrt",
    NodeType.ERF: "Erf",
    NodeType.LOG: "Log",
    NodeType.SIN: "Sin",
    NodeType.COS: "Cos",
    NodeType.CEIL: "Ceil",
    NodeType.FLOOR: "Floor",
    NodeType.ABS: "Abs",
    NodeType.RECIPROCAL: "Reciprocal",
}


def _lowering_of(op_type: str) -> Function:
    def lower(op: Onnx, _: Call, x: Value) -> Value:
        result: Value = getattr(op, op_type)(x)
        return result

    return lower


for _node_type, _op_type in OPERATORS.items():
    lowering(_node_type)(_lowering_of(_op_type))


@lowering(NodeType.RSQRT)
def rsqrt(op: Onnx, _: Call, x: Value) -> Value:
    return op.Reciprocal(op.Sqrt(x))


@lowering(NodeType.SQUARE)
def square(_: Onnx, __: Call, x: Value) -> Value:
    return x * x


@lowering(NodeType.NEG)
def negative(op: Onnx, _: Call, x: Value) -> Value:
    """Compute -x; unsigned integers are subtracted from 0, because ONNX's Neg doesn't take them."""
    return op.scalar(0, x.dtype) - x if x.dtype.kind == "u" else -x


@lowering(NodeType.ROUND)
def round_(op: Onnx, _: Call, x: Value) -> Value:
    return op.Round(x) if x.dtype.kind == "f" else x


@lowering(NodeType.EXPFUSION)
def exp(op: Onnx, call: Call, x: Value) -> Value:
    """Compute y = base^(shift + scale x)."""
    attrs = call.attrs
    exponent = x if (attrs.scale, attrs.shift) == (1, 0) else x * attrs.scale + attrs.shift
    return op.Exp(exponent) if attrs.base == -1 else op.Pow(op.scalar(attrs.base, x.dtype), exponent)


@lowering(NodeType.CLIP)
def clip(op: Onnx, call: Call, x: Value) -> Value:
    """Compute y = min(max(x, min), max).

    With only one bound ONNX's Clip replaces infinite elements by the largest finite ones, so Max and Min are used
    instead.
    """
    low, high = call.attrs.min, call.attrs.max
    if x.dtype.kind == "f" and low is not None and high is not None:
        return op.Clip(x, op.scalar(low, x.dtype), op.scalar(high, x.dtype))
    if x.dtype.kind != "f":
        low, high = integer_bounds(call.inputs[0].data_type, low, high)
    for op_type, bound in (("Max", low), ("Min", high)):
        x = x if bound is None else getattr(op, op_type)(x, op.constant(np.array(bound, x.dtype)))
    return x


@lowering(NodeType.CAST, moves=True)
def cast(_: Onnx, call: Call, x: Value, __: Value) -> Value:
    """Cast x to the type of the output.

    FLOAT16 that the engine computed in FLOAT32 is rounded to FLOAT16 before it becomes an integer.
    """
    is_cut = call.inputs[0].data_type is DataType.FLOAT16 and call.dtype.kind != "f"
    return (x.cast(call.inputs[0].numpy_dtype) if is_cut else x).cast(call.dtype)
