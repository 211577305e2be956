"""Refused comparisons, logic and selections."""

from nnrt_hdi.enums import DataType, Format, NodeType

from .case import Case, t

CONDITION = DataType.BOOL
IMAGE = (1, 2, 3, 4)

CASES: list[Case] = [
    (NodeType.EQUAL, [t(2, 3), t(4)], {}, r"a \[2, 3\] and b \[4\] do not broadcast in dimension -1"),
    (NodeType.LOGICAL_NOT, [t(2), t(2)], {}, r"it has 2 inputs; give 1 \(x\)"),
    (NodeType.WHERE, [t(2, data_type=CONDITION), t(2)], {}, r"it has 2 inputs; give 3 \(condition, a, b\)"),
    (NodeType.WHERE, [t(2), t(2), t(2, data_type=DataType.INT8)], {}, "a is FLOAT32 but b is INT8; give both the same"),
    (NodeType.WHERE, [t(2), t(2, 3), t(2, 3)], {}, r"condition \[2\] do not broadcast in dimension -1"),
    (NodeType.SELECT, [t(2, 3), t(2, 3), t(2, 4)], {}, r"a \[2, 3\] and b \[2, 4\] differ; give them one shape"),
    (NodeType.SELECT, [t(), t(2), t(2, data_type=DataType.INT8)], {}, "a is FLOAT32 but b is INT8"),
    (NodeType.SELECT, [t(2, 1), t(2, 3), t(2, 3)], {}, r"condition \[2, 1\] and a \[2, 3\] .* differ"),
    (
        NodeType.SELECT,
        [t(3), t(2, 3), t(2, 3)],
        {},
        r"\[3\] picks no rows of a \[2, 3\]; give it that shape, or one for",
    ),
    (NodeType.SELECT, [t(3), t(), t()], {}, r"picks no rows of a \[\]; give it that shape"),
    (
        NodeType.SELECT,
        [t(), t(*IMAGE, layout=Format.NHWC), t(*IMAGE, layout=Format.NCHW)],
        {},
        "a is NHWC and b is NCHW; transpose",
    ),
    (NodeType.ASSERT, [t(2, data_type=CONDITION), t(2)], {"summarize": -1}, "summarize is -1; use 0 or more"),
]
