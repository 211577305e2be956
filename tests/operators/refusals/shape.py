"""Refused data movement."""

from nnrt_hdi.enums import DataType, NodeType, PaddingMode

from .case import Case, c, t

I32 = DataType.INT32

SPLITS: list[Case] = [
    (NodeType.SPLIT, [t()], {"output_num": 1}, "x has rank 0 .* use rank 1 or more"),
    (NodeType.SPLIT, [t(4)], {}, "it would have 0 outputs; use 1 to 200"),
    (NodeType.SPLIT, [t(4)], {"output_num": -1}, "it would have -1 outputs; use 1 to 200"),
    (NodeType.SPLIT, [t(4)], {"output_num": 2**40}, "it would have 1099511627776 outputs; use 1 to 200"),
    (NodeType.SPLIT, [t(4)], {"output_num": 3}, r"3 equal lengths do not make up the 4 of dimension 0 \(axis\) of x"),
    (
        NodeType.SPLIT,
        [t(4)],
        {"size_splits": (1, 2)},
        r"lengths \[1, 2\] do not make up the 4 .* give size_splits that",
    ),
    (NodeType.SPLIT, [t(4)], {"size_splits": (5, -1)}, r"size_splits is \[5, -1\]; use 0 or more"),
    (
        NodeType.SPLIT,
        [t(4)],
        {"size_splits": (1, 3), "output_num": 3},
        r"size_splits is \[1, 3\] but output_num is 3; give a length for each",
    ),
    (NodeType.UNSTACK, [t(0, 3)], {}, "it would have 0 outputs; use 1 to 200"),
    (NodeType.UNSTACK, [t(2**31 - 1)], {}, "it would have 2147483647 outputs"),
    (NodeType.UNSTACK, [t(2)], {"axis": -2}, r"axis is -2 but the rank is 1; use -1\.\.0"),
    (NodeType.UNSTACK, [t(-1)], {}, r"dimension 0 \(axis\) of x .* is the number of outputs, but is not known"),
]

SLICES: list[Case] = [
    (NodeType.SLICE_FUSION, [t(4), c(1), c(4)], {}, r"dimension 0 of \[4\] is cut from 1 to 5; stay inside it"),
    (NodeType.SLICE_FUSION, [t(4), c(-1), c(1)], {}, r"dimension 0 of \[4\] is cut from -1 to 0; stay inside it"),
    (NodeType.SLICE_FUSION, [t(4), t(1, data_type=I32), c(5)], {}, "cut from 0 to 5"),
    (NodeType.SLICE_FUSION, [t(4), c(5), t(1, data_type=I32)], {}, "cut from 5 to 5"),
    (NodeType.SLICE_FUSION, [t(4), c(0), c(-1)], {}, r"size is \[-1\]; use sizes of 0 or more"),
    (NodeType.SLICE_FUSION, [t(4, 5), c(0), c(1)], {}, r"begin INT64\[1\] has 1 elements; give one for each of the 2"),
    (
        NodeType.SLICE_FUSION,
        [t(4, 5), c(0), c(1, 1)],
        {"axes": (1,)},
        "size .* has 2 elements; give one for each of the 1",
    ),
    (NodeType.SLICE_FUSION, [t(4), c(0), c(1)], {"axes": (1,)}, r"axes is 1 but the rank is 1; use -1\.\.0"),
    (
        NodeType.SLICE_FUSION,
        [t(4), c(0.0, dtype="f4"), c(1)],
        {},
        "begin is FLOAT32; use one of INT16, INT32, INT64",
    ),
    (NodeType.CROP, [t(4, 5), c(4, 3)], {"axis": 1, "offset": (3,)}, r"dimension 1 of \[4, 5\] is cut from 3 to 6"),
    (NodeType.CROP, [t(4, 5), c(4, 3)], {"axis": 1, "offset": (0, -1)}, "cut from -1 to 2"),
    (
        NodeType.CROP,
        [t(4, 5), c(3)],
        {"axis": 1},
        "shape .* has 1 elements; give one for each of the 2 dimensions of x",
    ),
    (
        NodeType.CROP,
        [t(4, 5, 6), c(4, 3, 2)],
        {"axis": 2, "offset": (0, 0)},
        r"offset is \[0, 0\]; give no value, 1, 1 \(from dimension 2 on\) or 3",
    ),
    (NodeType.STRIDED_SLICE, [t(4), c(0), c(1), c(0)], {}, r"strides\[0\] is 0; use 1 or more, or a negative number"),
    (NodeType.STRIDED_SLICE, [t(4), c(0), c(1), c(0)], {"shrink_axis_mask": 1}, r"strides\[0\] is 0"),
    (
        NodeType.STRIDED_SLICE,
        [t(4), c(0), c(1, 2), c(1)],
        {},
        "end .* 2 elements; give one for each of the 1 entries of",
    ),
    (NodeType.STRIDED_SLICE, [t(4), *[c(0, 0)] * 3], {}, "begin cuts 2 dimensions but x has 1; give at most one entry"),
    (
        NodeType.STRIDED_SLICE,
        [t(4), *[c(1, 1, 1)] * 3],
        {"ellipsis_mask": 6},
        r"ellipsis_mask is 6, which sets the bits \[1, 2\]; set at most one",
    ),
    (
        NodeType.STRIDED_SLICE,
        [t(4, 5), *[c(1, 4, 1)] * 3],
        {"shrink_axis_mask": 2, "new_axis_mask": 1, "ellipsis_mask": 4},
        r"begin\[1\] is 4 but dimension 0 of x has 4",
    ),
    (
        NodeType.STRIDED_SLICE,
        [t(4), *[t(33, data_type=I32)] * 3],
        {},
        "begin .* has 33 elements, .* use at most 32",
    ),
]

REPEATED: list[Case] = [
    (NodeType.TILE_FUSION, [t(2, 3), c(2)], {}, r"multiples .* has 1 elements; give one for each of the 2 dimensions"),
    (NodeType.TILE_FUSION, [t(2, 3), c(2, -1)], {}, r"multiples is \[2, -1\]; use sizes of 0 or more"),
    (NodeType.TILE_FUSION, [t(2, 3), c(2, 2)], {"dims": (1, -1)}, r"dims is \[1, -1\], which names a dimension twice"),
    (NodeType.TILE_FUSION, [t(2, 3), c(2)], {"dims": (2,)}, r"dims is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.TILE_FUSION, [t(2), c(2**62)], {}, rf"dimension 0 is {2**63}; use -1 \(unknown\) or 0\.\.2147483647"),
    (NodeType.BROADCAST_TO, [t(3)], {"shape": (2, 4)}, r"whose dimension 1 x FLOAT32\[3\] does not fill; use 3, or -1"),
    (NodeType.BROADCAST_TO, [t(3)], {"shape": (-1, 3)}, r"shape is \[-1, 3\], whose dimension 0 .* use 0 or more"),
    (NodeType.BROADCAST_TO, [t(1)], {"shape": (-2,)}, r"shape is \[-2\], whose dimension 0"),
    (NodeType.BROADCAST_TO, [t(2, 3)], {"shape": (3,)}, r"shape is \[3\] but x .* has rank 2; give at least as many"),
    (NodeType.BROADCAST_TO, [t(1)], {"shape": (2**31,)}, f"dimension 0 is {2**31}; use -1"),
    (NodeType.BROADCAST_TO, [t(1)], {"shape": (2**31 - 1,) * 3}, r"overflows 2\^63 bytes"),
]

CASES: list[Case] = [
    (NodeType.RESHAPE, [t(2, 3), c(4, -1)], {}, r"shape is \[4, -1\], which x FLOAT32\[2, 3\] does not fill evenly"),
    (NodeType.RESHAPE, [t(2, 3), c(7)], {}, r"shape is \[7\], .* keep the number of elements"),
    (NodeType.RESHAPE, [t(2, 3), c(-1, -1)], {}, "use at most one -1"),
    (NodeType.RESHAPE, [t(2, 3), c(2, 3, 0)], {}, "whose 0 copies dimension 2, but .* has rank 2"),
    (NodeType.RESHAPE, [t(2, 3), t(2)], {}, "shape is FLOAT32; use one of INT16, INT32, INT64"),
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
    (NodeType.SQUEEZE, [t(1, -1)], {}, r"dimension 1 of x FLOAT32\[1, \?\] goes only if it is 1, which is not known"),
    (NodeType.SQUEEZE, [t(1, 1)], {"axis": (2,)}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.UNSQUEEZE, [t(1)], {}, "axis is empty; name the place of at least one"),
    (NodeType.UNSQUEEZE, [t(1)], {"axis": (0, -3)}, r"axis is \[0, -3\], which names a dimension twice"),
    (NodeType.RESHAPE, [t(1), t(33, data_type=DataType.INT32)], {}, "has 33 elements, .* use at most 32"),
    (NodeType.EXPAND_DIMS, [t(2), c(3)], {}, r"axis is 3 but the rank is 2; use -2\.\.1"),
    (NodeType.EXPAND_DIMS, [t(2), c(0, 1)], {}, r"axis INT64\[2\] has 2 elements; give one"),
    (NodeType.FLATTEN, [t(2, 3)], {"axis": 3}, r"axis is 3 but the rank is 2; use -2\.\.2"),
    (NodeType.FLATTEN, [t(2**20, 2**20, 1)], {"axis": 2}, rf"dimension 0 is {2**40}; use -1 \(unknown\) or 0\.\."),
    (NodeType.STACK, [t(2)], {}, "it has 1 input; give 2 or more"),
    (NodeType.STACK, [t(2), t(3)], {}, r"parts\[0\] \[2\] and parts\[1\] \[3\] differ; give them one shape"),
    (NodeType.STACK, [t(2), t(2, 2)], {}, "differ in rank; give them one rank"),
    (NodeType.STACK, [t(2), t(2)], {"axis": 2}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.STACK, [t(2), t(2, data_type=DataType.INT8)], {}, r"parts\[0\] is FLOAT32 but parts\[1\] is INT8"),
    *SPLITS,
    *SLICES,
    *REPEATED,
]
