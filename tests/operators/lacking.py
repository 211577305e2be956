"""Operators that ONNX Runtime's CPU provider has no kernel for, and that the lowering can't express otherwise."""

from nnrt_client.conformance import Case, Level
from nnrt_hdi.enums import DataType, NodeType

NO_KERNEL: dict[DataType, set[NodeType]] = {
    DataType.FLOAT64: {
        NodeType.AVGPOOL_FUSION,
        NodeType.CONV2D_FUSION,
        NodeType.CONV2D_TRANSPOSE_FUSION,
        NodeType.LSTM,
    },
    DataType.UINT64: {
        NodeType.REDUCE_FUSION,
    },
}

# Cases of the level "values" only: no oracle computes such large integers, an LSTM with zoneout, or ERF in double
# precision.
OF_VALUES = {
    DataType.FLOAT64: {NodeType.ERF, NodeType.ACTIVATION, NodeType.MAX_POOL_FUSION},
    DataType.FLOAT32: {NodeType.LSTM, NodeType.MAX_POOL_FUSION},
}


def lacks_kernel(case: Case) -> bool:
    """Return whether the backend may refuse a case."""
    if case.level is Level.VALUES and not OF_VALUES.get(case.data_type, set()).isdisjoint(case.node_types):
        return True
    return not NO_KERNEL.get(case.data_type, set()).isdisjoint(case.node_types)
