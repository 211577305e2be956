"""Arithmetic on two operands."""

from collections.abc import Iterator

import numpy as np

from nnrt_hdi.enums import NodeType

from .row import ANY, BOTH, DOUBLE, FLOATS, NUMBERS, RELU, RELU6, SIGNED, SINGLE, Fixed, Row

NONZERO = Fixed((3, 4), low=1, high=9)


def rows() -> Iterator[Row]:
    for node_type in (NodeType.ADD_FUSION, NodeType.SUB_FUSION, NodeType.MUL_FUSION):
        logical = NUMBERS if node_type is NodeType.SUB_FUSION else ANY
        yield Row(node_type, [(2, 3, 4), (2, 3, 4)], {}, logical)
        yield Row(node_type, [(2, 1, 4), (3, 1)], RELU, NUMBERS)
        yield Row(node_type, [(), (5,)], RELU6, NUMBERS)
        yield Row(node_type, [(2, 3, 3, 2), (2,)], {}, FLOATS, BOTH[:1])
        yield Row(node_type, [(0, 3), (1, 3)], {}, (SINGLE,))
        yield Row(node_type, [Fixed((2, 3), "i4"), Fixed((2, 3), "f8")], {}, (DOUBLE,))
        yield Row(node_type, [Fixed((2, 3), "?"), Fixed((3,), "i2")], {}, (np.dtype("i2"),))
    yield Row(NodeType.DIV_FUSION, [(3, 4), NONZERO], {}, NUMBERS)
    yield Row(NodeType.DIV_FUSION, [(2, 3, 4), Fixed((1, 4), low=-7, high=-1)], RELU6, FLOATS + SIGNED)
    yield Row(NodeType.DIV_FUSION, [(0, 4), NONZERO.shape[1:]], {}, (SINGLE,))
    yield Row(NodeType.BIAS_ADD, [(3, 5), (5,)], {}, FLOATS + SIGNED[2:])
    yield Row(NodeType.BIAS_ADD, [(2, 3, 5, 4), (4,)], {}, FLOATS, BOTH)
    yield Row(NodeType.BIAS_ADD, [(0, 3, 5, 4), (4,)], {}, (SINGLE,), BOTH)
