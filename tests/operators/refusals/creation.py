"""Refused operators that create tensors from a shape or a range."""

from nnrt_hdi.enums import DataType, NodeType

from .case import Case, c, t

CASES: list[Case] = [
    (NodeType.FILL, [t(2), c(3)], {}, r"value FLOAT32\[2\] has 2 elements; give one"),
    (NodeType.FILL, [t(), c(3, -1)], {}, r"shape is \[3, -1\]; use sizes of 0 or more"),
    (NodeType.FILL, [t(), c(2**31)], {}, rf"dimension 0 is {2**31}; use -1 \(unknown\) or 0\.\.2147483647"),
    (NodeType.FILL, [t(), c(2**31 - 1, 2**31 - 1, 2**31 - 1)], {}, r"overflows 2\^63 bytes"),
    (NodeType.FILL, [t(), c(0, 2**62)], {}, f"dimension 1 is {2**62}; use -1"),
    (NodeType.FILL, [t(), t(33, data_type=DataType.INT32)], {}, "shape .* has 33 elements, .* use at most 32"),
    (NodeType.FILL, [t(), t(-1, data_type=DataType.INT32)], {}, "decides the output's rank, but has an unknown length"),
    (NodeType.CONSTANT_OF_SHAPE, [c(2.5, dtype="f4")], {}, r"shape is \[2\.5\]; use whole numbers"),
    (NodeType.CONSTANT_OF_SHAPE, [c(float("inf"), dtype="f4")], {}, r"shape is \[inf\]; use whole numbers"),
    (NodeType.CONSTANT_OF_SHAPE, [c(float("nan"), dtype="f4")], {}, r"shape is \[nan\]; use whole numbers"),
    (NodeType.CONSTANT_OF_SHAPE, [c(1e30, dtype="f4")], {}, "dimension 0 is 10000000.*; use -1"),
    (NodeType.CONSTANT_OF_SHAPE, [c(-1)], {}, r"shape is \[-1\]; use sizes of 0 or more"),
    (NodeType.CONSTANT_OF_SHAPE, [c(2)], {"value": (1.0, 2.0)}, r"value is \[1\.0, 2\.0\]; give one number, or none"),
    (NodeType.CONSTANT_OF_SHAPE, [c(2)], {"data_type": 13}, r"13 names no data type; use 1 \(BOOL\) to 12"),
    (
        NodeType.CONSTANT_OF_SHAPE,
        [c(2)],
        {"data_type": 2, "value": (200.0,)},
        r"value is 200\.0; use a whole number in -128\.\.127",
    ),
    (NodeType.RANGE, [t()], {"limit": 5, "delta": 0}, "delta is 0; use 1 or more, or a negative number to count down"),
    (NodeType.RANGE, [t()], {"data_type": 43}, "data_type is 43; leave it 0, the data type of x counts"),
    (NodeType.RANGE, [t()], {"limit": 2**62}, f"dimension 0 is {2**62}; use -1"),
    (NodeType.RANGE, [t()], {"start": 2**63 - 1, "limit": -(2**63), "delta": -1}, f"dimension 0 is {2**64 - 1}"),
    (
        NodeType.RANGE,
        [t(data_type=DataType.UINT8)],
        {"start": 250, "limit": 258, "delta": 3},
        r"it goes from 250 to 256; stay in 0\.\.255 \(UINT8\)",
    ),
    (NodeType.RANGE, [t(data_type=DataType.UINT8)], {"limit": -2, "delta": -1}, "it goes from 0 to -1; stay in 0"),
    (NodeType.RANGE, [t(data_type=DataType.BOOL)], {}, "x is BOOL; use one of"),
]
