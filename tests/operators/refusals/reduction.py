"""Refused reductions."""

from nnrt_hdi.enums import DataType, NodeType, ReduceMode

from .case import Case, c, t

CASES: list[Case] = [
    (NodeType.REDUCE_FUSION, [t(2, 3), c(2)], {}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.REDUCE_FUSION, [t(2, 3), c(1, -3)], {}, r"axis is -3 but the rank is 2; use -2\.\.1"),
    (
        NodeType.REDUCE_FUSION,
        [t(2), t(2, data_type=DataType.INT32)],
        {},
        r"axis INT32\[2\] names 2 dimensions, but x .* has 1; name each once, or keep_dims",
    ),
    (NodeType.REDUCE_FUSION, [t(2, data_type=DataType.BOOL), c(0)], {}, "MEAN of BOOL is not defined; use ALL"),
    (
        NodeType.REDUCE_FUSION,
        [t(2, data_type=DataType.INT8), c(0)],
        {"mode": ReduceMode.L2},
        "L2 of INT8 .* use a floating-point type",
    ),
    (NodeType.REDUCE_FUSION, [t(*[1] * 8), c(0)], {}, r"x has rank 8 .* use rank 0\.\.7"),
    (NodeType.REDUCE_FUSION, [t(2), t(-1, data_type=DataType.INT32)], {}, "rank depends on axis, which is not known"),
    (NodeType.ALL, [t(2, 3), c(2)], {}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.ALL, [t(2), c(0)], {"keep_dims": True}, "keep_dims is True; use an integer"),
    (NodeType.ALL, [t(2), t(-1, data_type=DataType.INT32)], {}, "rank depends on axis, which is not known"),
]
