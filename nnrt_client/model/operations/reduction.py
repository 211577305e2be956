"""Reductions. All but ALL become a REDUCE_FUSION node, which names the function that reduces."""

from nnrt_client.enums import OperationType, TensorType
from nnrt_client.model.operations.operation import Operation, operation
from nnrt_client.model.operations.parameter import boolean, integer, number
from nnrt_hdi.enums import NodeType, ReduceMode


def _reduction(type: OperationType, mode: ReduceMode, *, sets_quant_type: bool = False) -> Operation:
    return operation(
        type,
        NodeType.REDUCE_FUSION,
        boolean("keep_dims", TensorType[f"{type.name}_KEEP_DIMS"]),
        boolean("reduce_to_end", TensorType[f"{type.name}_REDUCE_TO_END"]),
        number("coeff", TensorType[f"{type.name}_COEFF"]),
        inputs=2,
        fixed={"mode": mode},
        sets_quant_type=sets_quant_type,
    )


OPERATIONS = (
    _reduction(OperationType.REDUCE_MEAN, ReduceMode.MEAN, sets_quant_type=True),
    _reduction(OperationType.REDUCE_PROD, ReduceMode.PROD, sets_quant_type=True),
    _reduction(OperationType.REDUCE_ALL, ReduceMode.ALL),
    _reduction(OperationType.REDUCE_MAX, ReduceMode.MAX),
    _reduction(OperationType.REDUCE_MIN, ReduceMode.MIN),
    _reduction(OperationType.REDUCE_SUM, ReduceMode.SUM),
    _reduction(OperationType.REDUCE_L2, ReduceMode.L2),
    # Here keep_dims is a number, and any but 0 keeps the dimensions.
    operation(
        OperationType.ALL,
        NodeType.ALL,
        integer("keep_dims", TensorType.ALL_KEEP_DIMS),
        inputs=2,
        sets_quant_type=False,
    ),
)
