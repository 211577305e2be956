"""Arithmetic on two operands."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import operation
from nnrt_client.model.operations.parameter import activation, choice, integer, number
from nnrt_hdi.enums import DataType, EltwiseMode, NodeType

OPERATIONS = (
    operation(OperationType.ADD, NodeType.ADD_FUSION, activation(TensorType.ADD_ACTIVATIONTYPE), inputs=2),
    operation(OperationType.SUB, NodeType.SUB_FUSION, activation(TensorType.SUB_ACTIVATIONTYPE), inputs=2),
    operation(OperationType.MUL, NodeType.MUL_FUSION, activation(TensorType.MUL_ACTIVATION_TYPE), inputs=2),
    operation(OperationType.DIV, NodeType.DIV_FUSION, activation(TensorType.DIV_ACTIVATIONTYPE), inputs=2),
    operation(OperationType.BIAS_ADD, NodeType.BIAS_ADD, inputs=2),
    operation(OperationType.MAXIMUM, NodeType.MAXIMUM, inputs=2, sets_quant_type=False),
    operation(OperationType.MINIMUM, NodeType.MINIMUM, inputs=2, sets_quant_type=False),
    operation(OperationType.MOD, NodeType.MOD, inputs=2, sets_quant_type=False),
    operation(OperationType.SQUARED_DIFFERENCE, NodeType.SQUARED_DIFFERENCE, inputs=2, sets_quant_type=False),
    operation(
        OperationType.POW,
        NodeType.POW_FUSION,
        number("scale", TensorType.POW_SCALE),
        number("shift", TensorType.POW_SHIFT),
        inputs=2,
    ),
    operation(
        OperationType.ELTWISE,
        NodeType.ELTWISE,
        choice("mode", TensorType.ELTWISE_MODE, EltwiseMode, DataType.INT8),
        inputs=2,
    ),
    operation(
        OperationType.SCALE,
        NodeType.SCALE_FUSION,
        integer("axis", TensorType.SCALE_AXIS, required=True),
        activation(TensorType.SCALE_ACTIVATIONTYPE),
        inputs=3,
    ),
)
