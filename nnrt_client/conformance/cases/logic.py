"""Rows (see `cases.row`) of comparisons, boolean logic, and selection by a condition."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnrt_client.conformance.cases.row import ANY, BOTH, SINGLE, Fixed, Row
from nnrt_hdi.enums import NodeType

COMPARISONS = (
    NodeType.EQUAL,
    NodeType.NOT_EQUAL,
    NodeType.GREATER,
    NodeType.GREATER_EQUAL,
    NodeType.LESS,
    NodeType.LESS_EQUAL,
)
# A narrow range, so that many elements are equal and some are 0.
FEW: dict[str, Any] = {"low": -0.5, "high": 0.8}


def rows() -> Iterator[Row]:
    for node_type in (*COMPARISONS, NodeType.LOGICAL_AND, NodeType.LOGICAL_OR):
        yield Row(node_type, [Fixed((2, 1, 4), **FEW), Fixed((3, 1), **FEW)], {}, ANY)
        yield Row(node_type, [Fixed((2, 3), "i4", **FEW), Fixed((2, 3), "f4", **FEW)], {}, (SINGLE,))
        yield Row(node_type, [Fixed((), "i1", **FEW), Fixed((3,), "u1", **FEW)], {}, (np.dtype("i1"),))
        yield Row(node_type, [(0, 3), (1, 3)], {}, (SINGLE,))
    yield Row(NodeType.LOGICAL_NOT, [Fixed((2, 3), **FEW)], {}, ANY)
    yield Row(NodeType.LOGICAL_NOT, [(2, 3, 3, 2)], {}, (SINGLE,), BOTH[:1])
    yield Row(NodeType.LOGICAL_NOT, [()], {}, (SINGLE,))
    yield Row(NodeType.LOGICAL_NOT, [(0, 3)], {}, (SINGLE,))
    yield from _choices()
    yield from _longer()
    for shape in ((2, 3), (), (0, 3)):
        yield Row(NodeType.ASSERT, [np.ones(shape, np.bool_), (4,)], {"summarize": 3}, (SINGLE,))


def _longer() -> Iterator[Row]:
    for node_type in COMPARISONS:
        for a, b in (((259,), (259,)), ((3, 67), (67,)), ((2, 1, 3, 1, 2), (1, 4, 1, 2, 1)), ((), ()), ((5,), ())):
            yield Row(node_type, [Fixed(a, **FEW), Fixed(b, **FEW)], {}, (SINGLE, ANY[3], ANY[5]))
        for count in (17, 65537):
            yield Row(node_type, [Fixed((count,), **FEW), Fixed((count,), **FEW)], {}, (ANY[5],))
    condition = Fixed((3, 67), "?")
    for chosen, other in (((3, 67), (3, 67)), ((67,), (3, 1)), ((), (3, 67)), ((2, 3, 67), ())):
        yield Row(NodeType.WHERE, [condition, chosen, other], {}, (SINGLE, ANY[5]))


def _choices() -> Iterator[Row]:
    condition, rows = Fixed((2, 3, 4), "?"), Fixed((2,), "?")
    yield Row(NodeType.WHERE, [condition, (2, 3, 4), (2, 3, 4)], {}, ANY)
    yield Row(NodeType.WHERE, [Fixed((3, 1), "?"), (2, 1, 4), ()], {}, ANY)
    yield Row(NodeType.WHERE, [Fixed((2, 3), "f4", **FEW), (2, 3), (2, 3)], {}, (SINGLE,))
    yield Row(NodeType.WHERE, [Fixed((3,), "?"), (0, 3), (1,)], {}, (SINGLE,))
    for given in (condition, rows, Fixed((), "?"), Fixed((1,), "?")):
        yield Row(NodeType.SELECT, [given, (2, 3, 4), (2, 3, 4)], {}, ANY)
    yield Row(NodeType.SELECT, [Fixed((2,), "i4", **FEW), (2, 3), (2, 3)], {}, (SINGLE,))
    yield Row(NodeType.SELECT, [Fixed((1,), "?"), (), ()], {}, (SINGLE,))
    yield Row(NodeType.SELECT, [rows, (2, 0), (2, 0)], {}, (SINGLE,))
