"""Refused operators that read or write elements by index."""

from nnrt_hdi.enums import DataType, NodeType

from .case import Case, c, t

I32 = DataType.INT32

CASES: list[Case] = [
    (NodeType.GATHER, [t(), c(0), c(0)], {}, "x has rank 0 .* use rank 1 or more"),
    (NodeType.GATHER, [t(2, 3), c(0), c(2)], {}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.GATHER, [t(2, 3), c(0), c(0, 1)], {}, r"axis INT64\[2\] has 2 elements; give one"),
    (NodeType.GATHER, [t(2, 3), t(2), c(0)], {}, "indices is FLOAT32; use one of INT32, INT64"),
    (NodeType.GATHER, [t(2, 3), t(2, data_type=DataType.INT8), c(0)], {}, "indices is INT8; use one of INT32, INT64"),
    (NodeType.GATHER_ND, [t(2, 3), t(4, 3, data_type=I32)], {}, r"holds indices of 3 positions for 2 .* use 1\.\.2"),
    (NodeType.GATHER_ND, [t(2, 3), t(4, 0, data_type=I32)], {}, "holds indices of 0 positions for 2 dimensions"),
    (NodeType.GATHER_ND, [t(2, 3), t(4, -1, data_type=I32)], {}, "last dimension .* is not known; fix it"),
    (NodeType.SCATTER_ND, [t(4, data_type=I32), t(), c(3)], {}, "indices has rank 1 .* use rank 2 or more"),
    (
        NodeType.SCATTER_ND,
        [t(4, 1, data_type=I32), t(4, 2), c(3)],
        {},
        r"updates FLOAT32\[4, 2\] are no updates for indices INT32\[4, 1\]; give them shape \[4\]",
    ),
    (NodeType.SCATTER_ND, [t(4, 2, data_type=I32), t(4), c(3)], {}, r"2 positions for 1 dimensions; use 1\.\.1"),
    (NodeType.SCATTER_ND, [t(4, 1, data_type=I32), t(4), c(-3)], {}, r"shape is \[-3\]; use sizes of 0 or more"),
    (NodeType.SCATTER_ND, [t(4, 1, data_type=I32), t(4), c(2**40)], {}, f"dimension 0 is {2**40}; use -1"),
    (
        NodeType.SPARSE_TO_DENSE,
        [t(4, 3, data_type=I32), t(4), c(2, 2)],
        {},
        r"INT32\[4, 3\] is not a row and a column .*\[4, 2\]",
    ),
    (
        NodeType.SPARSE_TO_DENSE,
        [t(4, 2, data_type=I32), t(5), c(2, 2)],
        {},
        r"for each of values .* give it shape \[5, 2\]",
    ),
    (
        NodeType.SPARSE_TO_DENSE,
        [t(4, 2, data_type=I32), t(4), c(2)],
        {},
        "sparse_shape .* 1 elements; give one for each of",
    ),
    (
        NodeType.SPARSE_TO_DENSE,
        [t(4, 2, data_type=I32), t(4), c(2, -2)],
        {},
        r"sparse_shape is \[2, -2\]; use sizes of",
    ),
    (NodeType.ONE_HOT, [t(2, data_type=I32), c(0), t(), t()], {}, "depth is 0; use 1 or more"),
    (NodeType.ONE_HOT, [t(2, data_type=I32), c(2**31), t(), t()], {}, f"dimension 1 is {2**31}; use -1"),
    (NodeType.ONE_HOT, [t(2, data_type=I32), c(3), t(2), t()], {}, r"on_value FLOAT32\[2\] has 2 elements; give one"),
    (NodeType.ONE_HOT, [t(2, data_type=I32), c(3), t(), c(0)], {}, "on_value is FLOAT32 but off_value is INT64"),
    (NodeType.ONE_HOT, [t(2, data_type=I32), c(3), t(), t()], {"axis": 2}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.TOPK_FUSION, [t(2, 3), c(4)], {}, r"k is 4, of what dimension 1 \(axis\) of x .* holds; use 0\.\.3"),
    (NodeType.TOPK_FUSION, [t(2, -1), c(-1)], {}, "k is -1, .* use 0 or more"),
    (NodeType.TOPK_FUSION, [t(2, 3), c(1)], {"axis": 2}, "axis is 2 but the rank is 2"),
    (NodeType.ARGMAX_FUSION, [t()], {}, "x has rank 0 .* use rank 1 or more"),
    (NodeType.ARGMAX_FUSION, [t(2, 3)], {"top_k": 0}, r"top_k is 0, of what dimension 1 .* use 1\.\.3"),
    (NodeType.ARGMAX_FUSION, [t(2, 3)], {"top_k": 3, "axis": 0}, r"top_k is 3, of what dimension 0 .* use 1\.\.2"),
]
