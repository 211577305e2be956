"""Rows (see `cases.row`) of functions of one element."""

from collections.abc import Iterator

import numpy as np

from nnrt_client.conformance.cases.row import ANY, BOTH, FLOATS, HALF, NUMBERS, SIGNED, SINGLE, DTypes, Fixed, Row, ints
from nnrt_hdi.enums import NodeType

# Intervals and types of the inputs. No oracle computes the error function in double precision.
DOMAINS: dict[NodeType, tuple[float, float, DTypes]] = {
    NodeType.SQRT: (0, 9, FLOATS),
    NodeType.RSQRT: (0.1, 9, FLOATS),
    NodeType.LOG: (0.1, 9, FLOATS),
    NodeType.RECIPROCAL: (0.1, 9, FLOATS),
    NodeType.SIN: (-9, 9, FLOATS),
    NodeType.COS: (-9, 9, FLOATS),
    NodeType.CEIL: (-9, 9, FLOATS),
    NodeType.FLOOR: (-9, 9, FLOATS),
    NodeType.ERF: (-4, 4, (HALF, SINGLE)),
    NodeType.SQUARE: (-9, 9, NUMBERS),
    NodeType.NEG: (-9, 9, NUMBERS),
    NodeType.ABS: (-9, 9, NUMBERS),
    NodeType.ROUND: (-9, 9, NUMBERS),
}


def rows() -> Iterator[Row]:
    for number in range(1, 13):
        yield Row(NodeType.CAST, [Fixed((2, 3), low=0, high=30), ints(number, dtype="i4")], {}, ANY)
    yield Row(NodeType.CAST, [(0, 3), ints(4)], {}, (SINGLE,))
    yield Row(NodeType.CAST, [(), np.array(4)], {}, (SINGLE,))
    for node_type, (low, high, dtypes) in DOMAINS.items():
        yield Row(node_type, [Fixed((2, 3, 17), low=low, high=high)], {}, dtypes)
        yield Row(node_type, [Fixed((), low=low, high=high)], {}, (SINGLE,))
        yield Row(node_type, [(0, 3)], {}, (HALF,))
    for attrs in ({}, {"base": 2.0}, {"base": 0.5, "scale": 1.5, "shift": -0.25}, {"scale": -0.5}):
        yield Row(NodeType.EXPFUSION, [(2, 3, 17)], attrs)
    yield Row(NodeType.EXPFUSION, [()], {}, (SINGLE,))
    yield Row(NodeType.EXPFUSION, [(0, 3)], {}, (SINGLE,))
    for bounds in ({"min": 2.0, "max": 5.0}, {"max": 3.0}, {"min": 3.0}, {}, {"min": 4.0, "max": 2.0}):
        yield Row(NodeType.CLIP, [Fixed((2, 3, 17), low=0, high=9)], bounds, NUMBERS)
    yield Row(NodeType.CLIP, [()], {"max": -0.25}, FLOATS)
    yield Row(NodeType.CLIP, [(0, 3)], {"min": 0.0}, (SINGLE,))
    for node_type, (low, high, _) in DOMAINS.items():
        for shape in ((1,), (261,), (2, 1, 3, 2, 1), (2, 5, 4, 3)):
            yield Row(node_type, [Fixed(shape, low=low, high=high)], {}, (HALF, SINGLE))
        yield Row(node_type, [Fixed((2, 5, 4, 3), low=low, high=high)], {}, (SINGLE,), BOTH)
    for count in (4097, 65537, 100_003):
        for node_type in (NodeType.SQUARE, NodeType.NEG, NodeType.ABS):
            yield Row(node_type, [Fixed((count,), low=-0.5, high=0.5)], {}, SIGNED[:1])
