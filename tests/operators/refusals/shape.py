"""Data movement."""

from nnrt_hdi.enums import DataType, NodeType, PaddingMode

from .case import Case, c, quantized, t

CASES: list[Case] = [
    (NodeType.RESHAPE, [t(2, 3), c(4, -1)], {}, r"shape is \[4, -1\], which x FLOAT32\[2, 3\] does not fill evenly"),
    (NodeType.RESHAPE, [t(2, 3), c(7)], {}, r"shape is \[7\], .* keep the number of elements"),
    (NodeType.RESHAPE, [t(2, 3), c(-1, -1)], {}, "use at most one -1"),
    (NodeType.RESHAPE, [t(2, 3), c(2, 3, 0)], {}, "whose 0 copies dimension 2, but .* has rank 2"),
    (NodeType.RESHAPE, [t(2, 3), t(2)], {}, "shape is FLOAT32; use one of INT32, INT64"),
    (
        NodeType.RESHAPE,
        [t(2, 3), t(-1, data_type=DataType.INT64)],
        {},
        "decides the output's rank, but has an unknown length",
    ),
    (
        NodeType.TRANSPOSE,
        [t(2, 3), c(0)],
        {},
        r"permutation INT64\[1\] has 1 elements; give one for each of the 2 dimensions",
    ),
    (NodeType.TRANSPOSE, [t(2, 3), c(0, 0)], {}, r"permutation is \[0, 0\], which names a dimension twice"),
    (NodeType.TRANSPOSE, [t(2, 3), c(0, 2)], {}, r"permutation is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.CONCAT, [t(2, 3)], {}, "it has 1 input; give 2 or more"),
    (NodeType.CONCAT, [t(2, 3), t(2, 4)], {}, r"\[2, 3\], \[2, 4\] differ in dimension 1; only dimension 0 \(axis\)"),
    (NodeType.CONCAT, [t(2, 3), t(2)], {}, "differ in rank; give them one rank"),
    (NodeType.CONCAT, [t(2), t(2, data_type=DataType.INT8)], {}, r"parts\[0\] is FLOAT32 but parts\[1\] is INT8"),
    (NodeType.CONCAT, [quantized(2), quantized(2, scale=0.25)], {}, "are quantized differently; give them one scale"),
    (NodeType.PAD_FUSION, [t(2, 3), c((1, 1))], {}, r"paddings INT64\[1, 2\] is not a pair .* give it shape \[2, 2\]"),
    (NodeType.PAD_FUSION, [t(2), c((1, -1))], {}, r"paddings\[0\] is \[1, -1\]; use 0 or more"),
    (
        NodeType.PAD_FUSION,
        [t(2), c((2, 0))],
        {"padding_mode": PaddingMode.REFLECT},
        "REFLECT mirrors at most 1 elements",
    ),
    (NodeType.PAD_FUSION, [t(2), c((0, 0))], {"padding_mode": PaddingMode.RESERVED}, "RESERVED; use CONSTANT, REFLECT"),
    (NodeType.PAD_FUSION, [t(2), c((0, 0))], {"paddings": ((0, 0),)}, "leave it empty"),
    (
        NodeType.PAD_FUSION,
        [t(2, data_type=DataType.INT8), c((1, 0))],
        {"constant_value": 200.0},
        r"is 200.0; use .* in -128\.\.127",
    ),
    (NodeType.PAD_FUSION, [quantized(2), c((0, 0))], {}, "x is quantized, .* dequantize it first"),
    (NodeType.SQUEEZE, [t(1, -1)], {}, r"dimension 1 of x FLOAT32\[1, \?\] goes only if it is 1, which is not known"),
    (NodeType.SQUEEZE, [t(1, 1)], {"axis": (2,)}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.UNSQUEEZE, [t(1)], {}, "axis is empty; name the place of at least one"),
    (NodeType.UNSQUEEZE, [t(1)], {"axis": (0, -3)}, r"axis is \[0, -3\], which names a dimension twice"),
]
