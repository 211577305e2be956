"""Operations that create a tensor from a shape or a range."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import operation
from nnrt_client.model.operations.parameter import integer, numbers
from nnrt_hdi.enums import NodeType

OPERATIONS = (
    operation(OperationType.FILL, NodeType.FILL, inputs=2),
    operation(
        OperationType.CONSTANT_OF_SHAPE,
        NodeType.CONSTANT_OF_SHAPE,
        integer("data_type", TensorType.CONSTANT_OF_SHAPE_DATA_TYPE),
        # HDI has a list of one number here.
        numbers("value", TensorType.CONSTANT_OF_SHAPE_VALUE, 1),
        sets_quant_type=False,
    ),
    operation(
        OperationType.RANGE,
        NodeType.RANGE,
        integer("start", TensorType.RANGE_START),
        integer("limit", TensorType.RANGE_LIMIT),
        integer("delta", TensorType.RANGE_DELTA),
        fixed={"data_type": 0},
        sets_quant_type=False,
    ),
)
