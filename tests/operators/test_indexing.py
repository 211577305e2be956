"""Indexing operators, worked out by hand where neither the kit nor an oracle has the case."""

import numpy as np

from nnrt_hdi.enums import DataType, NodeType

from .single_node import array_of, compute, graph_of, run_all, spec

N = NodeType


def test_the_best_none() -> None:
    operands = [(spec((3,)), None), (spec((), DataType.INT32), array_of(0, dtype="i4").reshape(()))]
    assert [y.tolist() for y in run_all(graph_of(N.TOPK_FUSION, operands, {}), [array_of(2, 1, 2)])] == [[], []]


def test_one_hot_of_one_index_and_of_none() -> None:
    depth, on, off = array_of(4, dtype="i4"), array_of(True, dtype="?"), array_of(False, dtype="?")
    assert compute(N.ONE_HOT, [array_of(2, dtype="i8").reshape(()), depth, on, off]).tolist() == [
        False,
        False,
        True,
        False,
    ]
    assert compute(N.ONE_HOT, [np.zeros((0, 2), "i4"), depth, on, off], {"axis": 1}).shape == (0, 4, 2)
