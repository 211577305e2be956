"""Arithmetic on two operands."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.operations.operation import operation
from nnrt_client.operations.parameter import activation
from nnrt_hdi.enums import NodeType

OPERATIONS = (
    operation(OperationType.ADD, NodeType.ADD_FUSION, activation(TensorType.ADD_ACTIVATIONTYPE), inputs=2),
    operation(OperationType.SUB, NodeType.SUB_FUSION, activation(TensorType.SUB_ACTIVATIONTYPE), inputs=2),
    operation(OperationType.MUL, NodeType.MUL_FUSION, activation(TensorType.MUL_ACTIVATION_TYPE), inputs=2),
    operation(OperationType.DIV, NodeType.DIV_FUSION, activation(TensorType.DIV_ACTIVATIONTYPE), inputs=2),
    operation(OperationType.BIAS_ADD, NodeType.BIAS_ADD, inputs=2),
)
