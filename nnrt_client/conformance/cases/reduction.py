"""Rows (see `cases.row`) of reductions."""

from collections.abc import Iterator

import numpy as np

from nnrt_client.conformance.cases.row import ANY, FLOATS, HALF, NUMBERS, SINGLE, Fixed, Row, ints
from nnrt_hdi.enums import NodeType, ReduceMode


def rows() -> Iterator[Row]:
    for mode in ReduceMode:
        dtypes = ANY if mode is ReduceMode.ALL else FLOATS if mode is ReduceMode.L2 else NUMBERS
        small = Fixed((2, 3, 4), low=-2, high=2)
        yield Row(NodeType.REDUCE_FUSION, [small, ints(1)], {"mode": mode}, dtypes)
        yield Row(NodeType.REDUCE_FUSION, [small, ints(-1, 0)], {"mode": mode, "keep_dims": True}, (SINGLE,))
        yield Row(NodeType.REDUCE_FUSION, [small, ints()], {"mode": mode}, (SINGLE,))
        yield Row(
            NodeType.REDUCE_FUSION, [small, ints(1, dtype="i4")], {"mode": mode, "reduce_to_end": True}, (SINGLE,)
        )
        yield Row(NodeType.REDUCE_FUSION, [(0, 4), ints(1)], {"mode": mode}, (SINGLE,))
    to_end = {"reduce_to_end": True, "coeff": 0.5, "keep_dims": True}
    yield Row(NodeType.REDUCE_FUSION, [(2, 3, 5, 4), ints(-3)], to_end, FLOATS)
    yield Row(NodeType.REDUCE_FUSION, [(3, 0), ints(1)], {"mode": ReduceMode.SUM}, (SINGLE,))
    yield Row(NodeType.REDUCE_FUSION, [(3, 0), ints(1)], {"mode": ReduceMode.PROD}, (SINGLE,))
    wide = Fixed((2, 3, 5, 7), low=-1.5, high=1.5)
    for mode in ReduceMode:
        for axes in ((0,), (3,), (1, 2), (0, 3), (-1, -2), (0, 1, 2, 3)):
            for keep_dims in (False, True):
                attrs = {"mode": mode, "keep_dims": keep_dims}
                yield Row(NodeType.REDUCE_FUSION, [wide, ints(*axes)], attrs, (SINGLE,))
        yield Row(
            NodeType.REDUCE_FUSION, [Fixed((3, 261), low=-0.9, high=0.9), ints(1)], {"mode": mode}, (HALF, SINGLE)
        )
        yield Row(NodeType.REDUCE_FUSION, [Fixed((261, 3), low=-0.9, high=0.9), ints(0)], {"mode": mode}, (SINGLE,))
        yield Row(NodeType.REDUCE_FUSION, [(), ints()], {"mode": mode}, (SINGLE,))
        yield Row(NodeType.REDUCE_FUSION, [(1,), ints(0)], {"mode": mode}, (SINGLE,))
    # Integers, whose sums and extremes don't depend on the order.
    for count in (4097, 65537, 100_003):
        for mode in (ReduceMode.SUM, ReduceMode.SUM_SQUARE, ReduceMode.ASUM, ReduceMode.MEAN):
            yield Row(NodeType.REDUCE_FUSION, [(2, count), ints(1)], {"mode": mode}, (np.dtype("i4"),))
        for mode in (ReduceMode.MAX, ReduceMode.MIN):
            wide = Fixed((count, 2), low=-9e3, high=9e3)
            yield Row(NodeType.REDUCE_FUSION, [wide, ints(0)], {"mode": mode}, (SINGLE, np.dtype("i2")))
    small = Fixed((2, 3, 4), low=-2, high=2)
    yield Row(NodeType.ALL, [small, ints(1)], {}, ANY)
    yield Row(NodeType.ALL, [small, ints(-1, 0)], {"keep_dims": -1}, ANY[:2])
    yield Row(NodeType.ALL, [small, ints()], {}, (SINGLE,))
    yield Row(NodeType.ALL, [(0, 4), np.array(1)], {}, (SINGLE,))
