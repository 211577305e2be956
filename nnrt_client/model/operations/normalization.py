"""Normalizations, and softmax."""

from enum import IntEnum

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import operation
from nnrt_client.model.operations.parameter import activation, boolean, choice, integer, ints, number
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.ops.normalization import ACROSS_CHANNELS


class NormRegion(IntEnum):
    """Region over which LRN sums, given by its number in NNRt and by its name in HDI."""

    ACROSS_CHANNELS = 0


OPERATIONS = (
    operation(
        OperationType.BATCH_NORM,
        NodeType.FUSED_BATCH_NORM,
        number("epsilon", TensorType.BATCH_NORM_EPSILON),
        inputs=5,
    ),
    # HDI has a list of axes here, NNRt one axis.
    operation(OperationType.SOFTMAX, NodeType.SOFTMAX, ints("axis", TensorType.SOFTMAX_AXIS, 1)),
    operation(
        OperationType.LOG_SOFTMAX,
        NodeType.LOG_SOFTMAX,
        integer("axis", TensorType.LOG_SOFTMAX_AXIS),
        sets_quant_type=False,
    ),
    operation(
        OperationType.LAYER_NORM,
        NodeType.LAYER_NORM_FUSION,
        integer("begin_norm_axis", TensorType.LAYER_NORM_BEGIN_NORM_AXIS, DataType.INT32),
        number("epsilon", TensorType.LAYER_NORM_EPSILON),
        boolean("elementwise_affine", TensorType.LAYER_NORM_ELEMENTWISE_AFFINE),
        integer("begin_params_axis", TensorType.LAYER_NORM_BEGIN_PARAM_AXIS),
        inputs=3,
    ),
    operation(
        OperationType.INSTANCE_NORM,
        NodeType.INSTANCE_NORM,
        number("epsilon", TensorType.INSTANCE_NORM_EPSILON),
        inputs=3,
        sets_quant_type=False,
    ),
    operation(
        OperationType.L2_NORMALIZE,
        NodeType.L2_NORMALIZE_FUSION,
        ints("axis", TensorType.L2_NORMALIZE_AXIS),
        number("epsilon", TensorType.L2_NORMALIZE_EPSILON),
        activation(TensorType.L2_NORMALIZE_ACTIVATION_TYPE),
        sets_quant_type=False,
    ),
    operation(
        OperationType.LRN,
        NodeType.LRN,
        integer("depth_radius", TensorType.LRN_DEPTH_RADIUS),
        number("bias", TensorType.LRN_BIAS),
        number("alpha", TensorType.LRN_ALPHA),
        number("beta", TensorType.LRN_BETA),
        choice(
            "norm_region",
            TensorType.LRN_NORM_REGION,
            NormRegion,
            DataType.INT32,
            table={NormRegion.ACROSS_CHANNELS: ACROSS_CHANNELS},
        ),
        sets_quant_type=False,
        node_name="LRN",
    ),
)
