"""Refused convolutions and pooling."""

from nnrt_hdi.enums import DataType, NodeType

from .case import Case, t

IMAGE = t(1, 8, 8, 4)
CONV = [IMAGE, t(6, 3, 3, 4), t(6)]

CASES: list[Case] = [
    (NodeType.CONV2D_FUSION, [t(8, 8, 4), *CONV[1:]], {}, r"x has rank 3 \(shape \[8, 8, 4\]\); use rank 4"),
    (NodeType.CONV2D_FUSION, CONV, {"stride": (1, 2, 3)}, r"stride is \[1, 2, 3\]; use 2 values of 1 or more"),
    (NodeType.CONV2D_FUSION, CONV, {"stride": (0, 1)}, r"stride is \[0, 1\]; use 2 values of 1 or more"),
    (
        NodeType.CONV2D_FUSION,
        CONV,
        {"pad_list": (1, 1, 1, -1)},
        r"pad_list is \[1, 1, 1, -1\]; use 4 values of 0 or more",
    ),
    (NodeType.CONV2D_FUSION, CONV, {"group": 3}, "x has 4 channels, which 3 groups do not divide"),
    (NodeType.CONV2D_FUSION, CONV, {"group": 2}, "weight takes 4 channels in 2 groups but x has 4"),
    (NodeType.CONV2D_FUSION, CONV, {"dilation": (4, 1)}, "the window covers a height of 9 but the padded input has 8"),
    (
        NodeType.CONV2D_FUSION,
        [IMAGE, t(6, 3, 3, 4), t(6, data_type=DataType.FLOAT16)],
        {},
        "x is FLOAT32 but bias is FLOAT16",
    ),
    (NodeType.CONV2D_FUSION, CONV[:2], {}, r"it has 2 inputs; give 3 \(x, weight, bias\)"),
    (
        NodeType.CONV2D_TRANSPOSE_FUSION,
        CONV,
        {"output_paddings": (1,)},
        r"output_paddings is \[1, 1\]; each must be below",
    ),
    (NodeType.MAX_POOL_FUSION, [IMAGE], {}, r"kernel_size is empty; give \[height, width\], or set global"),
    (NodeType.MAX_POOL_FUSION, [IMAGE], {"kernel_size": (2, 2), "pad": (2, 0, 0, 0)}, "pad less"),
]
