"""Rows (see `cases.row`) of activations."""

from collections.abc import Iterator

from nnrt_client.conformance.cases.row import BOTH, FLOATS, HALF, SIGNED, SINGLE, Attrs, Fixed, Row
from nnrt_hdi.enums import ActivationType, NodeType


def rows() -> Iterator[Row]:
    plain = {
        ActivationType.NO_ACTIVATION,
        ActivationType.RELU,
        ActivationType.RELU6,
        ActivationType.RELU1,
        ActivationType.ABS,
    }
    attrs: dict[ActivationType, Attrs] = {
        ActivationType.ELU: {"alpha": 0.75},
        ActivationType.LEAKY_RELU: {"alpha": 0.125},
        ActivationType.THRESHOLDRELU: {"alpha": 1.5},
        ActivationType.HARD_TANH: {"min_val": -1.5, "max_val": 0.5},
    }
    for kind in ActivationType:
        if kind is not ActivationType.UNKNOWN:
            # No oracle computes the error function in double precision: see test_special.py.
            dtypes = FLOATS + SIGNED if kind in plain else (HALF, SINGLE) if kind is ActivationType.GELU else FLOATS
            yield Row(
                NodeType.ACTIVATION,
                [Fixed((2, 3, 17), low=-9, high=9)],
                {"activation_type": kind, **attrs.get(kind, {})},
                dtypes,
            )
    yield Row(NodeType.ACTIVATION, [(2, 3, 17)], {"activation_type": ActivationType.GELU, "approximate": True})
    yield Row(NodeType.ACTIVATION, [()], {"activation_type": ActivationType.SIGMOID})
    yield Row(NodeType.ACTIVATION, [(0, 3)], {"activation_type": ActivationType.TANH})
    yield Row(NodeType.LEAKY_RELU, [(2, 3, 17)], {"negative_slope": 0.125})
    yield Row(NodeType.LEAKY_RELU, [()], {"negative_slope": 0.125}, (SINGLE,))
    yield Row(NodeType.LEAKY_RELU, [(0, 3)], {}, (SINGLE,))
    yield Row(NodeType.PRELU_FUSION, [(2, 3, 17), (17,)])
    yield Row(NodeType.PRELU_FUSION, [(2, 3, 5, 4), (4,)], {}, FLOATS, BOTH)
    yield Row(NodeType.PRELU_FUSION, [(2, 3, 5, 4), (1,)], {"channel_shared": True}, (SINGLE,), BOTH)
    yield Row(NodeType.PRELU_FUSION, [(5,), (1,)], {}, (SINGLE,))
    yield Row(NodeType.PRELU_FUSION, [(0, 3), (3,)], {}, (SINGLE,))
    for kind in (ActivationType.RELU, ActivationType.SIGMOID, ActivationType.GELU, ActivationType.HSWISH):
        for shape in ((1,), (257,), (2, 1, 3, 1, 5), (2, 3, 1, 2, 1, 2)):
            yield Row(NodeType.ACTIVATION, [shape], {"activation_type": kind}, (HALF, SINGLE))
        yield Row(NodeType.ACTIVATION, [(2, 5, 3, 7)], {"activation_type": kind}, (SINGLE,), BOTH)
    yield Row(NodeType.ACTIVATION, [(4097,)], {"activation_type": ActivationType.SIGMOID}, (SINGLE,))
    yield Row(NodeType.ACTIVATION, [(65537,)], {"activation_type": ActivationType.RELU}, SIGNED[:1])
    yield Row(NodeType.LEAKY_RELU, [(3, 131)], {"negative_slope": -0.5}, (SINGLE,))
    yield Row(NodeType.PRELU_FUSION, [(2, 3, 7), (7,)])
    yield Row(NodeType.PRELU_FUSION, [(2, 2, 3, 2, 5), (5,)], {}, (SINGLE,))
