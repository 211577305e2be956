"""Refused normalizations."""

from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType

from .case import Case, t

CASES: list[Case] = [
    (
        NodeType.FUSED_BATCH_NORM,
        [t(2, 4), t(4), t(4), t(3), t(4)],
        {},
        "mean has 3 elements; give one for each of the 4",
    ),
    (NodeType.FUSED_BATCH_NORM, [t(2, 4), *[t(4)] * 4], {"epsilon": -1.0}, "epsilon is -1.0; use 0 or more"),
    (NodeType.SOFTMAX, [t(2, 3)], {"axis": (2,)}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (NodeType.SOFTMAX, [t(2, 3)], {"axis": (0, 1)}, r"axis is \[0, 1\]; use one dimension"),
    (NodeType.SOFTMAX, [t(2, 3, data_type=DataType.INT8)], {}, "x is INT8; use one of FLOAT16"),
    (NodeType.LOG_SOFTMAX, [t(2, 3)], {"axis": -3}, r"axis is -3 but the rank is 2; use -2\.\.1"),
    (NodeType.LOG_SOFTMAX, [t()], {}, "x has rank 0 .* use rank 1 or more"),
    (
        NodeType.LAYER_NORM_FUSION,
        [t(2, 3, 4), t(4), t(4)],
        {},
        r"gamma FLOAT32\[4\] does not fit x FLOAT32\[2, 3, 4\] from dimension 1 on; give it \[3, 4\]",
    ),
    (NodeType.LAYER_NORM_FUSION, [t(2, 3), t(3), t(1)], {}, r"beta FLOAT32\[1\] does not fit .* give it \[3\]"),
    (NodeType.LAYER_NORM_FUSION, [t(2, 3), t(3), t(3)], {"begin_norm_axis": 2}, r"axis is 2 .* use 1\.\.1"),
    (NodeType.LAYER_NORM_FUSION, [t(2, 3), t(3), t(3)], {"begin_norm_axis": -1}, r"axis is -1 .* use 1\.\.1"),
    (
        NodeType.LAYER_NORM_FUSION,
        [t(2, 3), t(3), t(3)],
        {"begin_params_axis": 0},
        "begin_params_axis is 0 but begin_norm_axis 1; make them equal",
    ),
    (NodeType.LAYER_NORM_FUSION, [t(2, 3), t(3), t(3)], {"epsilon": -0.5}, "epsilon is -0.5; use 0 or more"),
    (NodeType.INSTANCE_NORM, [t(1, 3, 5, 4), t(5), t(5)], {}, "scale has 5 elements; .* each of the 4 channels"),
    (
        NodeType.INSTANCE_NORM,
        [t(1, 3, 5, 4, layout=Format.NCHW), t(5), t(5)],
        {},
        "scale has 5 elements; .* each of the 3 channels",
    ),
    (NodeType.INSTANCE_NORM, [t(1, 3, 5, 4), t(4), t(3)], {}, "bias has 3 elements; .* each of the 4 channels"),
    (NodeType.L2_NORMALIZE_FUSION, [t(2, 3)], {"axis": (0, -3)}, r"axis is -3 but the rank is 2; use -2\.\.1"),
    (
        NodeType.L2_NORMALIZE_FUSION,
        [t(2, 3)],
        {"activation_type": ActivationType.TANH},
        "TANH; only RELU and RELU6 can be fused",
    ),
    (NodeType.LRN, [t(1, 2, 3, 4)], {"depth_radius": -1}, "depth_radius is -1; use 0 or more"),
    (NodeType.LRN, [t(1, 2, 3, 4)], {"norm_region": "WITHIN_CHANNEL"}, "'WITHIN_CHANNEL'; use 'ACROSS_CHANNELS'"),
]
