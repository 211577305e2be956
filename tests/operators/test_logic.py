"""Comparisons of two types, choices by a condition, and the words of assertions that fail: by hand."""

import numpy as np
import pytest

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.tensor import TensorSpec

from .single_node import AnyArray, array_of, compute, graph_of, run

N = NodeType


def test_numbers_of_two_types_are_compared_as_they_are() -> None:
    assert compute(N.LESS, [array_of(-1, dtype="i1"), array_of(1, dtype="u1")])[0]
    assert compute(N.GREATER, [array_of(200, dtype="u1"), array_of(-56, dtype="i1")])[0]
    assert compute(N.GREATER, [array_of(2**24 + 1, dtype="i4"), array_of(2**24)])[0]
    assert compute(N.EQUAL, [array_of(True, dtype="?"), array_of(1)])[0]


def test_false_is_less_than_true() -> None:
    a, b = array_of(False, False, True, dtype="?"), array_of(False, True, True, dtype="?")
    np.testing.assert_array_equal(compute(N.LESS, [a, b]), [False, True, False])


def test_choices_move_what_they_choose() -> None:
    """Even what is not a number keeps its bits."""
    a = np.array([0x7FC01234, 0xFFC00001], np.uint32).view("f4")
    for node_type in (N.WHERE, N.SELECT):
        result = compute(node_type, [array_of(True, True, dtype="?"), a, array_of(0, 0)])
        np.testing.assert_array_equal(result.view(np.uint32), a.view(np.uint32))


def test_select_takes_rows_and_where_broadcasts() -> None:
    condition, a, b = array_of(True, False, dtype="?"), array_of([1, 2], [3, 4]), array_of([5, 6], [7, 8])
    np.testing.assert_array_equal(compute(N.SELECT, [condition, a, b]), [[1, 2], [7, 8]])
    np.testing.assert_array_equal(compute(N.WHERE, [condition, a, b]), [[1, 6], [3, 8]])


def failure(condition: AnyArray, data: AnyArray, summarize: int) -> str:
    operands = [(TensorSpec(DataType.BOOL, (-1,)), None), (TensorSpec(DataType.FLOAT32, (-1, 2)), None)]
    graph = graph_of(N.ASSERT, operands, {"summarize": summarize}, TensorSpec(DataType.BOOL, (-1,)))
    np.testing.assert_array_equal(run(graph, [np.ones(3, np.bool_), data]), [True] * 3)
    with pytest.raises(OperationFailed) as caught:
        run(graph, [condition, data])
    return str(caught.value)


def test_assertion_that_fails() -> None:
    condition, data = array_of(True, False, False, dtype="?"), array_of([0.5, 1.5], [0.1, 4])
    place = "ASSERT node 0: 2 of 3 elements of condition are false"
    assert failure(condition, data, 0) == place
    assert failure(condition, data, 3) == f"{place}; data FLOAT32[2, 2] begins with 0.5, 1.5, 0.1"
    assert failure(condition, data, 9) == f"{place}; data FLOAT32[2, 2] begins with 0.5, 1.5, 0.1, 4.0"


def test_assertion_shows_a_hundred_elements_at_most() -> None:
    assert failure(array_of(False, dtype="?"), np.ones((200, 2), "f4"), 2**62).count("1.0") == 100
