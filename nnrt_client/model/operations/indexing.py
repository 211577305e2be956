"""Operations that read or write elements by their index."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import operation
from nnrt_client.model.operations.parameter import boolean, integer
from nnrt_hdi.enums import DataType, NodeType

OPERATIONS = (
    operation(OperationType.GATHER, NodeType.GATHER, inputs=3),
    operation(OperationType.GATHER_ND, NodeType.GATHER_ND, inputs=2, node_name="GatherND"),
    operation(OperationType.SCATTER_ND, NodeType.SCATTER_ND, inputs=3, node_name="ScatterND", sets_quant_type=False),
    operation(OperationType.SPARSE_TO_DENSE, NodeType.SPARSE_TO_DENSE, inputs=3, sets_quant_type=False),
    operation(
        OperationType.ONE_HOT,
        NodeType.ONE_HOT,
        integer("axis", TensorType.ONE_HOT_AXIS),
        inputs=4,
        node_name="Onehot",
        sets_quant_type=False,
    ),
    operation(
        OperationType.TOP_K,
        NodeType.TOPK_FUSION,
        boolean("sorted", TensorType.TOP_K_SORTED),
        integer("axis", TensorType.TOP_K_AXIS, DataType.INT32),
        inputs=2,
        outputs=2,
        sets_quant_type=False,
    ),
    operation(
        OperationType.ARG_MAX,
        NodeType.ARGMAX_FUSION,
        integer("axis", TensorType.ARG_MAX_AXIS),
        boolean("keep_dims", TensorType.ARG_MAX_KEEPDIMS),
        integer("top_k", TensorType.ARG_MAX_TOP_K),
        boolean("out_max_value", TensorType.ARG_MAX_OUT_MAX_VALUE),
    ),
)
