"""Tensors made from a shape or a range."""

from nnrt_hdi.enums import NodeType
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.lowering import Call, lowering
from nnrt_onnx_lowering.value import INT64, Value


@lowering(NodeType.FILL, moves=True)
def fill(op: Onnx, call: Call, value: Value, shape: Value) -> Value:
    """Return a tensor filled with the only element of value."""
    return op.Expand(op.reshape(value, []), op.reshape(shape.cast(INT64), [call.outputs[0].rank]))


@lowering(NodeType.CONSTANT_OF_SHAPE, moves=True)
def constant_of_shape(op: Onnx, call: Call, shape: Value) -> Value:
    """Return a tensor filled with one number."""
    number = op.scalar(call.attrs.value[0] if call.attrs.value else 0, call.dtype)
    return op.Expand(number, op.reshape(shape.cast(INT64), [call.outputs[0].rank]))


@lowering(NodeType.RANGE, moves=True)
def range_(op: Onnx, call: Call, _: Value) -> Value:
    """Return numbers from start in steps of delta.

    ONNX Runtime's Range computes in FLOAT64, which is not exact for large integers, so the numbers are calculated from
    indices.
    """
    (count,) = call.outputs[0].shape
    numbers: Value = op.range(0, count, 1) * call.attrs.delta + call.attrs.start
    return numbers.cast(call.dtype)
