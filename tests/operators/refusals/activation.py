"""Activations."""

from nnrt_hdi.enums import ActivationType, DataType, NodeType

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
]
