"""Data moved, not changed: new shapes, orders, joins and borders."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.operations.operation import MANY, operation
from nnrt_client.operations.parameter import choice, integer, ints, number
from nnrt_hdi.enums import DataType, NodeType, PaddingMode

OPERATIONS = (
    operation(OperationType.RESHAPE, NodeType.RESHAPE, inputs=2),
    operation(OperationType.TRANSPOSE, NodeType.TRANSPOSE, inputs=2, sets_quant_type=False),
    operation(OperationType.CONCAT, NodeType.CONCAT, integer("axis", TensorType.CONCAT_AXIS), inputs=(2, MANY)),
    # The attribute `paddings` stays empty: they are the second input.
    operation(
        OperationType.PAD,
        NodeType.PAD_FUSION,
        number("constant_value", TensorType.PAD_CONSTANT_VALUE, or_like_input=True),
        choice("padding_mode", TensorType.PAD_PADDING_MODE, PaddingMode, DataType.INT32),
        inputs=2,
    ),
    operation(OperationType.SQUEEZE, NodeType.SQUEEZE, ints("axis", TensorType.SQUEEZE_AXIS)),
    operation(OperationType.UNSQUEEZE, NodeType.UNSQUEEZE, ints("axis", TensorType.UNSQUEEZE_AXIS)),
    operation(OperationType.SHAPE, NodeType.SHAPE, sets_quant_type=False),
)
