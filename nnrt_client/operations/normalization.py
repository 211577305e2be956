"""Normalization: values brought to a common scale."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.operations.operation import operation
from nnrt_client.operations.parameter import ints, number
from nnrt_hdi.enums import NodeType

OPERATIONS = (
    operation(
        OperationType.BATCH_NORM,
        NodeType.FUSED_BATCH_NORM,
        number("epsilon", TensorType.BATCH_NORM_EPSILON),
        inputs=5,
    ),
    # HDI has a list of axes here, NNRt one axis.
    operation(OperationType.SOFTMAX, NodeType.SOFTMAX, ints("axis", TensorType.SOFTMAX_AXIS, 1)),
)
