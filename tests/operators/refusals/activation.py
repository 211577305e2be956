"""Refused activations."""

from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType

from .case import Case, t

CASES: list[Case] = [
    (NodeType.ACTIVATION, [t(2)], {"activation_type": 99}, r"activation_type is 99; use one of 0 \(NO_ACTIVATION\)"),
    (NodeType.ACTIVATION, [t(2)], {"alpha": "x"}, "alpha is 'x'; use a number"),
    (NodeType.ACTIVATION, [t(2)], {"beta": 1.0}, "no attribute 'beta'; it has activation_type, alpha"),
    (NodeType.ACTIVATION, [t(2), t(2)], {}, r"it has 2 inputs; give 1 \(x\)"),
    (NodeType.ACTIVATION, [t(2, data_type=DataType.BOOL)], {}, "x is BOOL; use one of FLOAT16, FLOAT32"),
    (
        NodeType.ACTIVATION,
        [t(2, data_type=DataType.INT8)],
        {"activation_type": ActivationType.TANH},
        "TANH of INT8 .* use a floating",
    ),
    (NodeType.LEAKY_RELU, [t(2, data_type=DataType.INT8)], {}, "x is INT8; use one of FLOAT16, FLOAT32"),
    (NodeType.PRELU_FUSION, [t(2, 3), t(2)], {}, "weight has 2 elements; give one for each of the 3 channels"),
    (NodeType.PRELU_FUSION, [t(2, 3, 4, 5, layout=Format.NCHW), t(5)], {}, "each of the 3 channels"),
    (NodeType.PRELU_FUSION, [t(3), t(3)], {}, r"weight FLOAT32\[3\] has 3 elements but x .* has no channels; give 1"),
    (NodeType.PRELU_FUSION, [t(2, 3), t(1, 3)], {}, r"weight has rank 2 .* use rank 1"),
    (NodeType.PRELU_FUSION, [t(2, 3), t(3)], {"channel_shared": True}, "channel_shared is true but .* give 1"),
]
