"""Refused functions of one element."""

from nnrt_hdi.enums import DataType, NodeType

from .case import Case, c, t

CASES: list[Case] = [
    (NodeType.CAST, [t(2), c(0)], {}, r"0 names no data type; use 1 \(BOOL\) to 12 \(FLOAT64\)"),
    (NodeType.CAST, [t(2), c(1, 2)], {}, r"type INT64\[2\] has 2 elements; give one data type"),
    (NodeType.CAST, [t(2), t(1, data_type=DataType.INT32)], {}, "type must be a constant"),
    (NodeType.SQRT, [t(2, data_type=DataType.INT8)], {}, "x is INT8; use one of FLOAT16, FLOAT32, FLOAT64"),
    (NodeType.NEG, [t(2, data_type=DataType.BOOL)], {}, "x is BOOL; use one of FLOAT16"),
    (NodeType.RSQRT, [t(*[1] * 8)], {}, r"x has rank 8 .* use rank 0\.\.7"),
    (NodeType.ERF, [t(*[1] * 8)], {}, r"x has rank 8 .* use rank 0\.\.7"),
    (NodeType.EXPFUSION, [t(2)], {"base": 0.0}, "base is 0.0; use a number above 0, or -1 for e"),
    (NodeType.EXPFUSION, [t(2)], {"base": float("nan")}, "base is nan; use a number above 0"),
    (NodeType.CLIP, [t(2)], {"max": float("nan")}, "max is not a number; use one, or none for no bound"),
    (NodeType.CLIP, [t(2)], {"min": "0"}, "min is '0'; use a number"),
    (NodeType.CLIP, [t(2, data_type=DataType.UINT8)], {"max": -1.0}, "max is -1.0, below every UINT8; use at least 0"),
    (
        NodeType.CLIP,
        [t(2, data_type=DataType.UINT8)],
        {"min": 256.0},
        "min is 256.0, above every UINT8; .* at most 255",
    ),
]
