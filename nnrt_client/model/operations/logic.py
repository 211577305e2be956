"""Comparisons, logical operations, and selections by a condition."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import operation
from nnrt_client.model.operations.parameter import integer
from nnrt_hdi.enums import NodeType

OPERATIONS = (
    operation(OperationType.EQUAL, NodeType.EQUAL, inputs=2, sets_quant_type=False),
    operation(OperationType.NOT_EQUAL, NodeType.NOT_EQUAL, inputs=2, sets_quant_type=False),
    operation(OperationType.GREATER, NodeType.GREATER, inputs=2, sets_quant_type=False),
    operation(OperationType.GREATER_EQUAL, NodeType.GREATER_EQUAL, inputs=2),
    operation(OperationType.LESS, NodeType.LESS, inputs=2, sets_quant_type=False),
    operation(OperationType.LESS_EQUAL, NodeType.LESS_EQUAL, inputs=2),
    operation(OperationType.LOGICAL_AND, NodeType.LOGICAL_AND, inputs=2, sets_quant_type=False),
    operation(OperationType.LOGICAL_OR, NodeType.LOGICAL_OR, inputs=2, sets_quant_type=False),
    operation(OperationType.LOGICAL_NOT, NodeType.LOGICAL_NOT, sets_quant_type=False),
    operation(OperationType.WHERE, NodeType.WHERE, inputs=3, sets_quant_type=False),
    operation(OperationType.SELECT, NodeType.SELECT, inputs=3, sets_quant_type=False),
    operation(
        OperationType.ASSERT,
        NodeType.ASSERT,
        integer("summarize", TensorType.ASSERT_SUMMARIZE),
        inputs=2,
        sets_quant_type=False,
    ),
)
