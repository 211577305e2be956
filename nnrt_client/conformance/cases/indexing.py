"""Rows (see `cases.row`) of operators that read or write elements by index."""

from collections.abc import Iterator

import numpy as np

from nnrt_client.conformance.cases.row import (
    ANY,
    BOOL,
    BOTH,
    FLOATS,
    FULL,
    HALF,
    INTEGERS,
    NUMBERS,
    SINGLE,
    SIZES,
    Fixed,
    Row,
    ints,
)
from nnrt_hdi.enums import NodeType

# Three positions in a matrix of 4 by 3, all different.
PLACES = ints((3, 0), (0, 2), (1, 1))


def rows() -> Iterator[Row]:
    indices, narrow = Fixed((2, 2), "i8", low=0, high=1), Fixed((3,), "i4", low=0, high=1)
    yield Row(NodeType.GATHER, [(3, 4), indices, ints(0, dtype="i4")], {}, ANY)
    yield Row(NodeType.GATHER, [(2, 4, 3), narrow, ints(-1)], {}, (SINGLE,))
    yield Row(NodeType.GATHER, [(2, 3, 3, 4), narrow, ints(2)], {}, (SINGLE,), BOTH[:1])
    yield Row(NodeType.GATHER, [(3, 4), Fixed((), "i8", low=0, high=1), np.array(0)], {}, (SINGLE,))
    yield Row(NodeType.GATHER, [(3, 0), indices, ints(0)], {}, (SINGLE,))
    yield Row(NodeType.GATHER, [(3, 4), Fixed((0,), "i8"), ints(0)], {}, (SINGLE,))
    yield Row(NodeType.GATHER_ND, [(4, 3), PLACES], {}, ANY)
    yield Row(NodeType.GATHER_ND, [(3, 3, 2), Fixed((2, 4, 1), "i4", low=0, high=1)], {}, (SINGLE,))
    yield Row(NodeType.GATHER_ND, [(3, 3, 3), Fixed((3,), "i8", low=0, high=1)], {}, (SINGLE,))
    yield Row(NodeType.GATHER_ND, [(3, 0), Fixed((2, 1), "i8", low=0, high=1)], {}, (SINGLE,))
    for axis, shape in ((1, (2, 5, 3)), (-2, (2, 5, 3)), (0, (7,)), (2, (2, 1, 4, 3, 2))):
        for dtype in ("i4", "i8"):
            picked = Fixed((2, 3), dtype, low=0, high=4 / 3)
            yield Row(NodeType.GATHER, [shape, picked, ints(axis)], {}, (*SIZES, BOOL))
    yield Row(NodeType.GATHER, [(65, 3), Fixed((129,), "i4", low=0, high=21), ints(0)], {}, FLOATS)
    for depth in (1, 2, 3, 4):
        yield Row(NodeType.GATHER_ND, [(2, 2, 2, 2), Fixed((3, depth), "i4", low=0, high=0.7)], {}, SIZES)
        yield Row(NodeType.GATHER_ND, [(2, 2, 2, 2), Fixed((2, 1, depth), "i8", low=0, high=0.7)], {}, (SINGLE,))
    yield from _placed()
    yield from _largest()
    yield from _long_tensors()


def _long_tensors() -> Iterator[Row]:
    """Yield rows with more elements than 16 bits can count."""
    for count in (4097, 65537, 100_003):
        places = Fixed((17, 1), "i4", low=0, high=count / 3)
        yield Row(NodeType.GATHER, [(count,), Fixed((17,), "i4", low=0, high=count / 3), ints(0)], {}, (*SIZES, BOOL))
        yield Row(NodeType.GATHER_ND, [(count,), places], {}, SIZES)
        last = ints((count - 1,), (0,), (count // 2,))
        yield Row(NodeType.SCATTER_ND, [last, (3,), ints(count)], {}, SIZES)
        rows_and_columns = ints((count - 1, 1), (0, 1), (count // 2, 0))
        yield Row(NodeType.SPARSE_TO_DENSE, [rows_and_columns, (3,), ints(count, 2)], {}, SIZES)
        yield Row(NodeType.ARGMAX_FUSION, [Fixed((count,), low=-9e3, high=9e3)], {}, SIZES)
        yield Row(NodeType.TOPK_FUSION, [Fixed((count,), low=-9e3, high=9e3), ints(5)], {}, SIZES)
    picked = Fixed((2, 3), "i4", low=0, high=5)
    yield Row(NodeType.GATHER, [Fixed((3, 17, 2), **FULL), picked, ints(1)], {}, SIZES[1:])
    yield Row(NodeType.GATHER_ND, [Fixed((4, 3), **FULL), PLACES], {}, SIZES[1:])
    yield Row(NodeType.SCATTER_ND, [PLACES, Fixed((3,), **FULL), ints(4, 3)], {}, SIZES[1:])
    on, off = np.array(5, "f4"), np.array(-2, "f4")
    yield Row(NodeType.ONE_HOT, [Fixed((17,), "i8", low=0, high=1365), ints(4097), on, off], {}, (SINGLE,))


def _placed() -> Iterator[Row]:
    """Yield rows that write elements to given indices."""
    yield Row(NodeType.SCATTER_ND, [PLACES, (3,), ints(4, 3)], {}, ANY)
    twice = ints((1,), (0,), (1,), dtype="i4")
    yield Row(NodeType.SCATTER_ND, [twice, (3, 2), ints(3, 2, dtype="i4")], {}, NUMBERS)
    yield Row(NodeType.SCATTER_ND, [PLACES.reshape(3, 1, 2), (3, 1, 2), ints(4, 3, 2)], {}, (SINGLE,))
    yield Row(NodeType.SCATTER_ND, [Fixed((0, 1), "i8"), (0, 2), ints(3, 2)], {}, (SINGLE,))
    yield Row(NodeType.SCATTER_ND, [twice, (3, 0), ints(3, 0)], {}, (SINGLE,))
    yield Row(NodeType.SPARSE_TO_DENSE, [PLACES, (3,), ints(4, 3)], {}, ANY)
    yield Row(NodeType.SPARSE_TO_DENSE, [Fixed((0, 2), "i4"), (0,), ints(2, 3)], {}, (SINGLE,))
    yield Row(NodeType.SPARSE_TO_DENSE, [Fixed((0, 2), "i4"), (0,), ints(0, 3)], {}, (SINGLE,))
    indices = Fixed((2, 3), "i8", low=0, high=2)
    for dtype in ANY:
        on, off = np.array([1], dtype), np.array(0, dtype)
        yield Row(NodeType.ONE_HOT, [indices, ints(4), on, off], {}, (dtype,))
    on, off = np.array(5, "f4"), np.array(-2, "f4")
    for axis in (0, 1, -2):
        yield Row(NodeType.ONE_HOT, [indices, np.array(4, "i4"), on, off], {"axis": axis}, (SINGLE,))


def _largest() -> Iterator[Row]:
    """Yield rows with many equal elements, which reveal the order of ties."""
    x = Fixed((3, 7), low=-1, high=1)
    yield Row(NodeType.TOPK_FUSION, [x, ints(4)], {}, NUMBERS)
    yield Row(NodeType.TOPK_FUSION, [(4, 3, 2), np.array(2, "i4")], {"axis": 0}, (SINGLE,))
    yield Row(NodeType.TOPK_FUSION, [Fixed((4, 9), low=-40, high=40), ints(3)], {"sorted": False}, FLOATS)
    yield Row(NodeType.TOPK_FUSION, [(0, 3), ints(2)], {}, (SINGLE,))
    yield Row(NodeType.TOPK_FUSION, [(4, 3), ints(1)], {"axis": -2}, (SINGLE,))
    yield Row(NodeType.ARGMAX_FUSION, [x], {}, FLOATS + INTEGERS)
    yield Row(NodeType.ARGMAX_FUSION, [(4, 3, 2)], {"axis": 0, "keep_dims": True}, (SINGLE,))
    yield Row(NodeType.ARGMAX_FUSION, [x], {"axis": 1, "top_k": 3}, NUMBERS)
    yield Row(NodeType.ARGMAX_FUSION, [x], {"out_max_value": True}, NUMBERS)
    yield Row(NodeType.ARGMAX_FUSION, [x], {"axis": 0, "top_k": 2, "out_max_value": True}, (SINGLE,))
    yield Row(NodeType.ARGMAX_FUSION, [(5,)], {}, (SINGLE,))
    yield Row(NodeType.ARGMAX_FUSION, [(0, 3)], {"axis": 1}, (SINGLE,))
    for axis in (0, 1, 2, -1):
        for keep_dims in (False, True):
            attrs = {"axis": axis, "keep_dims": keep_dims}
            yield Row(NodeType.ARGMAX_FUSION, [Fixed((3, 17, 5), low=-20, high=20)], attrs, (HALF, SINGLE, INTEGERS[2]))
        for count in (1, 2, 3):
            yield Row(NodeType.TOPK_FUSION, [Fixed((3, 17, 5), low=-9, high=9), ints(count)], {"axis": axis}, (SINGLE,))
    yield Row(
        NodeType.TOPK_FUSION, [Fixed((2, 301), low=-99, high=99), ints(100)], {}, (SINGLE, INTEGERS[2], INTEGERS[3])
    )
    yield Row(NodeType.TOPK_FUSION, [(1,), ints(1)], {}, (SINGLE,))
