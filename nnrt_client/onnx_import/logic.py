"""Comparisons, logic, and choices by a condition."""

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.operator import onnx_operator
from nnrt_client.onnx_import.value import Value

_OF_TWO = {
    "Equal": OperationType.EQUAL,
    "Greater": OperationType.GREATER,
    "GreaterOrEqual": OperationType.GREATER_EQUAL,
    "Less": OperationType.LESS,
    "LessOrEqual": OperationType.LESS_EQUAL,
    "And": OperationType.LOGICAL_AND,
    "Or": OperationType.LOGICAL_OR,
    "Xor": OperationType.NOT_EQUAL,
}


@onnx_operator(*_OF_TWO, doc={name: f"{kind.name}." for name, kind in _OF_TWO.items()})
def of_two(call: Call, a: Value, b: Value) -> Value:
    return call.apply(_OF_TWO[call.type], a, b)


@onnx_operator("Not")
def logical_not(call: Call, x: Value) -> Value:
    """LOGICAL_NOT."""
    return call.apply(OperationType.LOGICAL_NOT, x)


@onnx_operator("Where", since=9)
def where(call: Call, condition: Value, a: Value, b: Value) -> Value:
    """WHERE."""
    return call.apply(OperationType.WHERE, condition, a, b)
