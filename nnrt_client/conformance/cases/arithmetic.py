"""Rows (see `cases.row`) of arithmetic on two operands."""

from collections.abc import Iterator

import numpy as np

from nnrt_client.conformance.cases.row import (
    ANY,
    BOTH,
    DOUBLE,
    FLOATS,
    HALF,
    NUMBERS,
    RELU,
    RELU6,
    SIGNED,
    SINGLE,
    Fixed,
    Row,
)
from nnrt_hdi.enums import EltwiseMode, NodeType

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
    yield Row(NodeType.REAL_DIV, [(3, 4), NONZERO], {}, NUMBERS)
    yield from _binary_operators()
    yield from _powers()
    yield Row(NodeType.BIAS_ADD, [(3, 5), (5,)], {}, FLOATS + SIGNED[2:])
    yield Row(NodeType.BIAS_ADD, [(2, 3, 5, 4), (4,)], {}, FLOATS, BOTH)
    yield Row(NodeType.BIAS_ADD, [(0, 3, 5, 4), (4,)], {}, (SINGLE,), BOTH)
    for attrs in ({"axis": 1}, {"axis": -2, **RELU}):
        yield Row(NodeType.SCALE_FUSION, [(2, 3, 4), (3,), (3,)], attrs, NUMBERS)
    yield Row(NodeType.SCALE_FUSION, [(2, 3, 4), (3, 4), (3, 4)], {"axis": 1, **RELU6})
    yield Row(NodeType.SCALE_FUSION, [(2, 3, 5, 4), (4,), (4,)], {"axis": 3}, FLOATS, BOTH[:1])
    yield Row(NodeType.SCALE_FUSION, [(2, 3), (), ()], {"axis": 0}, (SINGLE,))
    yield Row(NodeType.SCALE_FUSION, [(2, 0), (2,), (2,)], {"axis": 0}, (SINGLE,))
    yield from _broadcasts()


def _broadcasts() -> Iterator[Row]:
    """Yield rows of many ranks that broadcast from either side, some longer than a SIMD vector."""
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
        ((257,), (257,)),
        ((1,), (67,)),
        ((5, 1, 3), (1, 4, 1)),
        ((2, 1, 3, 1, 2), (2, 1, 4, 1)),
        ((3, 1, 2, 1, 2, 1), (1, 2, 1, 3, 1, 2)),
        ((4, 33), (4, 1)),
        ((4, 33), (33,)),
        ((4, 33), ()),
        ((), (4, 33)),
        ((0, 1), (1, 5)),
        ((2, 0, 3), (3,)),
    )
    for node_type in (
        *(NodeType.ADD_FUSION, NodeType.SUB_FUSION, NodeType.MUL_FUSION, NodeType.DIV_FUSION, NodeType.MAXIMUM),
        *(NodeType.MINIMUM, NodeType.SQUARED_DIFFERENCE),
    ):
        for a, b in shapes:
            second = Fixed(b, low=1, high=9) if node_type is NodeType.DIV_FUSION else b
            yield Row(node_type, [a, second], {}, (SINGLE, SIGNED[2]))
        if node_type in (NodeType.ADD_FUSION, NodeType.SUB_FUSION, NodeType.MUL_FUSION, NodeType.DIV_FUSION):
            for fused in (RELU, RELU6):
                yield Row(
                    node_type, [(3, 67), Fixed((67,), low=1, high=3)], fused, (HALF, SINGLE, SIGNED[0], SIGNED[3])
                )
    for low, high in (("i1", "i4"), ("i4", "f2"), ("i8", "f4"), ("?", "f4"), ("u4", "i8")):
        for node_type in (NodeType.ADD_FUSION, NodeType.MUL_FUSION, NodeType.MAXIMUM):
            yield Row(node_type, [Fixed((3, 5), low), Fixed((5,), high)], {}, (np.dtype(high),))
            yield Row(node_type, [Fixed((3, 5), high), Fixed((3, 1), low)], {}, (np.dtype(high),))
    for node_type in (NodeType.ADD_FUSION, NodeType.MUL_FUSION, NodeType.MAXIMUM):
        for count in (4097, 65537, 100_003):
            yield Row(node_type, [Fixed((count,), low=-0.5, high=0.5)] * 2, {}, SIGNED[:1])


def _binary_operators() -> Iterator[Row]:
    """Yield rows of other operators with two operands that broadcast."""
    for node_type in (NodeType.MAXIMUM, NodeType.MINIMUM, NodeType.SQUARED_DIFFERENCE, NodeType.MOD):
        second = NONZERO if node_type is NodeType.MOD else (3, 4)
        yield Row(node_type, [(2, 1, 4), second], {}, NUMBERS)
        yield Row(node_type, [(), Fixed((5,), low=-9, high=-1)], {}, FLOATS + SIGNED)
        yield Row(node_type, [(0, 3), (1, 3)], {}, (SINGLE,))
        yield Row(node_type, [Fixed((3, 4), "i4"), Fixed((3, 4), "f8", low=1)], {}, (DOUBLE,))
        yield Row(node_type, [Fixed((3, 4), "?"), Fixed((4,), "i2", low=1)], {}, (np.dtype("i2"),))
    for mode in (EltwiseMode.PROD, EltwiseMode.SUM, EltwiseMode.MAXIMUM):
        yield Row(NodeType.ELTWISE, [(2, 3, 4), (2, 3, 4)], {"mode": mode}, NUMBERS)
    yield Row(NodeType.ELTWISE, [(2, 3, 4, 2), (2, 3, 4, 2)], {}, (SINGLE,), BOTH)
    yield Row(NodeType.ELTWISE, [(), ()], {}, (SINGLE,))
    yield Row(NodeType.ELTWISE, [(0, 3), (0, 3)], {}, (SINGLE,))


def _powers() -> Iterator[Row]:
    base, exponent = Fixed((2, 1, 4), low=0.2, high=3), Fixed((3, 1), low=0, high=2)
    yield Row(NodeType.POW_FUSION, [base, exponent], {}, NUMBERS)
    yield Row(NodeType.POW_FUSION, [base, exponent], {"scale": 2.0, "shift": 1.0}, FLOATS + SIGNED)
    yield Row(NodeType.POW_FUSION, [base, Fixed((4,), low=-3, high=0)], {"scale": 0.25})
    yield Row(NodeType.POW_FUSION, [(2, 3), Fixed((3,), "i4")], {}, (SINGLE, DOUBLE))
    yield Row(NodeType.POW_FUSION, [Fixed((), low=1, high=3), Fixed((), "?")], {}, (SINGLE,))
    yield Row(NodeType.POW_FUSION, [(0, 3), (3,)], {}, (SINGLE,))
