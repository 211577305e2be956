"""Arithmetic on two operands."""

from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType

from .case import Case, t

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
    (NodeType.SUB_FUSION, [t(2, data_type=DataType.BOOL)] * 2, {}, "difference of two BOOL .* cast one"),
    (NodeType.BIAS_ADD, [t(2, 4), t(3)], {}, "bias has 3 elements; give one for each of the 4 channels"),
    (NodeType.BIAS_ADD, [t(2, 3, 4, 5, layout=Format.NCHW), t(5)], {}, "each of the 3 channels"),
]
