"""Rows (see `cases.row`) of matrix products, and of recurrent operators made of them."""

from collections.abc import Iterator

import numpy as np

from nnrt_client.conformance.cases.row import (
    FLOATS,
    HALF,
    INTEGERS,
    RELU,
    RELU6,
    SINGLE,
    Attrs,
    DTypes,
    Fixed,
    Given,
    Row,
)
from nnrt_hdi.enums import NodeType


def recurrences() -> Iterator[Row]:
    def row(steps: int, batch: int, inputs: int, hidden: int, attrs: Attrs, dtypes: DTypes, entries: int = 1) -> Row:
        shapes = ((4 * hidden, inputs), (4 * hidden, hidden), (8 * hidden,), (batch, hidden), (batch, hidden))
        operands: list[Given] = [Fixed((entries, *shape), low=-1, high=1) for shape in shapes]
        return Row(NodeType.LSTM, [(steps, batch, inputs), *operands], attrs, dtypes)

    half = (HALF, SINGLE)
    yield row(6, 3, 5, 4, {}, FLOATS)
    yield row(6, 3, 5, 4, {"has_bias": True, "num_layers": 1, "num_directions": 1, "dropout": 0.5}, FLOATS)
    yield row(6, 3, 5, 4, {"has_bias": True, "bidirectional": True, "num_directions": 2}, half, 2)
    yield row(5, 1, 4, 4, {"has_bias": True, "num_layers": 3, "hidden_size": 4, "input_size": 4}, FLOATS, 3)
    yield row(5, 2, 6, 3, {"has_bias": True, "num_layers": 2, "bidirectional": True}, half, 4)
    yield row(1, 1, 1, 1, {}, (SINGLE,))
    bare = [Fixed(shape, low=-1, high=1) for shape in ((16, 5), (16, 4), (32,), (3, 4), (3, 4))]
    yield Row(NodeType.LSTM, [(6, 3, 5), *bare], {"has_bias": True}, (SINGLE,))
    # Initial state of a model without one.
    zeros = np.zeros((1, 3, 4), "f4")
    shapes = ((1, 16, 5), (1, 16, 4), (1, 32))
    weights = [Fixed(shape, low=-1, high=1) for shape in shapes]
    yield Row(NodeType.LSTM, [(6, 3, 5), *weights, zeros, zeros], {"has_bias": True}, (SINGLE,))


def rows() -> Iterator[Row]:
    yield from recurrences()
    yield Row(NodeType.FULL_CONNECTION, [(5, 7), (3, 7)])
    yield Row(NodeType.FULL_CONNECTION, [(2, 3, 7), (4, 7), (4,)], {"has_bias": True, **RELU})
    yield Row(NodeType.FULL_CONNECTION, [(2, 3, 4), (5, 12), (5,)], {"axis": 1, **RELU6})
    yield Row(NodeType.FULL_CONNECTION, [(2, 3, 4), (5, 12), (5,)], {"axis": -2, "use_axis": True})
    yield Row(NodeType.FULL_CONNECTION, [(2, 3), (5, 6)], {"use_axis": True}, (SINGLE,))
    yield Row(NodeType.FULL_CONNECTION, [(0, 7), (3, 7), (3,)], {}, (SINGLE,))
    yield Row(NodeType.MATMUL_FUSION, [(3, 5), (5, 4)], {}, (*FLOATS, *INTEGERS))
    yield Row(NodeType.MATMUL_FUSION, [(2, 1, 3, 5), (4, 6, 5)], {"transpose_b": True, **RELU})
    yield Row(NodeType.MATMUL_FUSION, [(6, 5, 3), (5, 2)], {"transpose_a": True, **RELU6})
    yield Row(NodeType.MATMUL_FUSION, [(6, 5, 3), (6, 2, 5)], {"transpose_a": True, "transpose_b": True}, (SINGLE,))
    yield Row(NodeType.MATMUL_FUSION, [(0, 3, 5), (5, 4)], {}, (SINGLE,))
    yield Row(NodeType.MATMUL_FUSION, [(2, 3, 1), (1, 4)], {}, (SINGLE,))
    # Sizes that no block size divides, vectors, and batches that broadcast.
    for a, b in (
        ((17, 33), (33, 65)),
        ((1, 129), (129, 1)),
        ((65, 1), (1, 9)),
        ((2, 3, 4, 5), (3, 5, 6)),
        ((1, 3, 4, 5), (2, 1, 5, 2)),
        ((2, 1, 1, 4, 3), (3, 1, 3, 2)),
    ):
        yield Row(NodeType.MATMUL_FUSION, [a, b], {}, (*FLOATS, INTEGERS[0], INTEGERS[2]))
    for sides in ({"transpose_a": True}, {"transpose_b": True}, {"transpose_a": True, "transpose_b": True}):
        left = (2, 7, 5) if sides.get("transpose_a") else (2, 5, 7)
        right = (2, 9, 7) if sides.get("transpose_b") else (2, 7, 9)
        for fused in ({}, RELU, RELU6):
            yield Row(NodeType.MATMUL_FUSION, [left, right], {**sides, **fused}, FLOATS)
    yield Row(NodeType.FULL_CONNECTION, [(5, 33), (65, 33), (65,)], {"has_bias": True})
    yield Row(
        NodeType.FULL_CONNECTION,
        [Fixed((1, 3), low=1), Fixed((1, 3), low=1), (1,)],
        {"has_bias": True, **RELU},
        (SINGLE,),
    )
    yield Row(NodeType.FULL_CONNECTION, [(2, 2, 2, 3), (4, 6), (4,)], {"axis": 2, "use_axis": True}, (SINGLE,))
    # Integers, whose sums don't depend on the order.
    for count in (4097, 65537):
        yield Row(NodeType.MATMUL_FUSION, [(17, count), (count, 3)], {}, (INTEGERS[2],))
        yield Row(NodeType.MATMUL_FUSION, [(3, count), (2, count)], {"transpose_b": True}, (INTEGERS[2], INTEGERS[3]))
