"""Functions of one element."""

from nnrt_hdi.enums import DataType, NodeType

from .case import Case, c, t

CASES: list[Case] = [
    (NodeType.CAST, [t(2), c(0)], {}, r"0 names no data type; use 1 \(BOOL\) to 12 \(FLOAT64\)"),
    (NodeType.CAST, [t(2), c(1, 2)], {}, r"type INT64\[2\] has 2 elements; give one data type"),
    (NodeType.CAST, [t(2), t(1, data_type=DataType.INT32)], {}, "type must be a constant"),
]
