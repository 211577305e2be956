"""Comparisons, logic, and selection by a condition."""

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.value import Value

_BINARY = {
    "Equal": OperationType.EQUAL,
    "Greater": OperationType.GREATER,
    "GreaterOrEqual": OperationType.GREATER_EQUAL,
    "Less": OperationType.LESS,
    "LessOrEqual": OperationType.LESS_EQUAL,
    "And": OperationType.LOGICAL_AND,
    "Or": OperationType.LOGICAL_OR,
    "Xor": OperationType.NOT_EQUAL,
}


@onnx_operator(*_BINARY, doc={name: f"{kind.name}." for name, kind in _BINARY.items()})
def apply_binary(op: NodeBuilder, a: Value, b: Value) -> Value:
    return op.apply(_BINARY[op.type], a, b)


@onnx_operator("Not")
def logical_not(op: NodeBuilder, x: Value) -> Value:
    """LOGICAL_NOT."""
    return op.apply(OperationType.LOGICAL_NOT, x)


@onnx_operator("Where", since=9)
def where(op: NodeBuilder, condition: Value, a: Value, b: Value) -> Value:
    """WHERE."""
    return op.apply(OperationType.WHERE, condition, a, b)
