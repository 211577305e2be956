"""Refused arithmetic on two operands."""

from nnrt_hdi.enums import ActivationType, DataType, EltwiseMode, Format, NodeType

from .case import Case, t

INT8 = t(2, data_type=DataType.INT8)

CASES: list[Case] = [
    (
        NodeType.ADD_FUSION,
        [t(2, 3), t(4)],
        {},
        r"a \[2, 3\] and b \[4\] do not broadcast in dimension -1; make them equal",
    ),
    (
        NodeType.ADD_FUSION,
        [t(2), t(2)],
        {"activation_type": ActivationType.TANH},
        "TANH; only RELU and RELU6 can be fused",
    ),
    *(
        (node_type, [t(2, data_type=DataType.BOOL)] * 2, {}, "are both BOOL; cast one to a number")
        for node_type in (
            NodeType.SUB_FUSION,
            NodeType.DIV_FUSION,
            NodeType.REAL_DIV,
            NodeType.MAXIMUM,
            NodeType.MINIMUM,
            NodeType.MOD,
            NodeType.POW_FUSION,
        )
    ),
    (NodeType.BIAS_ADD, [t(2, 4), t(3)], {}, "bias has 3 elements; give one for each of the 4 channels"),
    (NodeType.BIAS_ADD, [t(2, 3, 4, 5, layout=Format.NCHW), t(5)], {}, "each of the 3 channels"),
    (NodeType.POW_FUSION, [INT8, INT8], {"scale": 0.5}, r"scale is 0.5; use a whole number in -128\.\.127 \(INT8\)"),
    (NodeType.POW_FUSION, [INT8, INT8], {"shift": 200.0}, "shift is 200.0; use a whole number"),
    (NodeType.ELTWISE, [t(2, 3), t(3)], {}, r"a \[2, 3\] and b \[3\] differ; give them one shape"),
    (NodeType.ELTWISE, [t(2), INT8], {}, "a is FLOAT32 but b is INT8; give both the same"),
    (NodeType.ELTWISE, [t(2), t(2)], {"mode": EltwiseMode.UNKNOWN}, "UNKNOWN; use PROD, SUM or MAXIMUM"),
    (NodeType.SCALE_FUSION, [t(2, 3), t(3), t(3)], {}, "axis is missing; give an integer"),
    (NodeType.SCALE_FUSION, [t(2, 3), t(3), t(3)], {"axis": 2}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (
        NodeType.SCALE_FUSION,
        [t(2, 3), t(3), t(3)],
        {"axis": 0},
        r"x from axis 0 on \[2\] and scale \[3\] and bias \[3\] differ",
    ),
    (
        NodeType.SCALE_FUSION,
        [t(2, 3), t(3, 4), t(3, 4)],
        {"axis": 1},
        r"x from axis 1 on \[3\] and scale \[3, 4\] .* differ",
    ),
    (NodeType.SCALE_FUSION, [t(), t(), t()], {"axis": 0}, r"x has rank 0 .* use rank 1 or more"),
]
