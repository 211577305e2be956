"""Normalizations."""

from nnrt_hdi.enums import DataType, NodeType

from .case import Case, t

CASES: list[Case] = [
    (
        NodeType.FUSED_BATCH_NORM,
        [t(2, 4), t(4), t(4), t(3), t(4)],
        {},
        "mean has 3 elements; give one for each of the 4",
    ),
    (NodeType.FUSED_BATCH_NORM, [t(2, 4), *[t(4)] * 4], {"epsilon": -1.0}, "epsilon is -1.0; use 0 or more"),
    (NodeType.SOFTMAX, [t(2, 3)], {"axis": (2,)}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.SOFTMAX, [t(2, 3)], {"axis": (0, 1)}, r"axis is \[0, 1\]; use one dimension"),
    (NodeType.SOFTMAX, [t(2, 3, data_type=DataType.INT8)], {}, "x is INT8; use one of FLOAT16"),
]
