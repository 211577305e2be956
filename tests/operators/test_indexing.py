"""Indices where no oracle has the case: ties, what is not a number, repeated places, numbers at the edge. By hand."""

from typing import Any

import numpy as np
import pytest

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.tensor import TensorSpec

from .single_node import AnyArray, Pair, compute, graph_of, of, run_all, spec

N = NodeType
NAN, INF = np.nan, np.inf


def top_k(x: AnyArray, k: int, **attrs: Any) -> list[list[Any]]:
    """The values and the indices."""
    operands: list[Pair] = [
        (spec(x.shape, DataType[x.dtype.name.upper()]), None),
        (spec((), DataType.INT32), of(k, dtype="i4")),
    ]
    return [y.tolist() for y in run_all(graph_of(N.TOPK_FUSION, operands, attrs), [x])]


def test_equal_elements_come_in_their_order() -> None:
    x = of(2, 1, 2, 3, 1, dtype="i4")
    assert top_k(x, 4) == [[3, 2, 2, 1], [3, 0, 2, 1]]
    # Of the two 1 the first is among the four largest, whichever way they are sorted.
    assert top_k(x, 4, sorted=False) == [[1, 2, 2, 3], [1, 0, 2, 3]]
    assert top_k(x, 0) == [[], []]


@pytest.mark.parametrize(
    ("values", "dtype", "wanted"),
    [
        ([0, 1, 0, 1], "?", [1, 3, 0, 2]),
        ([-128, 127, 0, -1], "i1", [1, 2, 3, 0]),
        ([2**64 - 1, 0, 2**63, 2**63 - 1], "u8", [0, 2, 3, 1]),
        ([2**53, 2**53 + 1, -(2**63), 2**63 - 1], "i8", [3, 1, 0, 2]),
        ([INF, -INF, NAN, 0], "f2", [2, 0, 3, 1]),
        ([0.0, -0.0, NAN, NAN], "f4", [2, 3, 0, 1]),
    ],
)
def test_largest_of_any_type(values: list[Any], dtype: str, wanted: list[int]) -> None:
    """Not a number counts as the largest, the two zeros are equal."""
    x = np.array(values, dtype)
    assert top_k(x, 4)[1] == wanted
    assert compute(N.ARGMAX_FUSION, [x]) == wanted[0]
    assert compute(N.ARGMAX_FUSION, [x], {"top_k": 3}).tolist() == wanted[:3]
    np.testing.assert_array_equal(compute(N.ARGMAX_FUSION, [x], {"out_max_value": True}), x[wanted[0]])


def test_indices_in_the_declared_type() -> None:
    x = of([1, 3], [4, 2])
    result = compute(N.ARGMAX_FUSION, [x], {}, (TensorSpec(DataType.INT64, (2,)),))
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, [1, 0])


@pytest.mark.parametrize("index", [-1, -4, 3, 2**31 - 1])
def test_index_outside_the_depth_is_nowhere_hot(index: int) -> None:
    operands = [of(index, 1, dtype="i4"), of(3, dtype="i8"), of(5), of(-2)]
    np.testing.assert_array_equal(compute(N.ONE_HOT, operands), [[-2, -2, -2], [-2, 5, -2]])


def test_one_hot_of_one_index_and_of_none() -> None:
    depth, on, off = of(4, dtype="i4"), of(True, dtype="?"), of(False, dtype="?")
    assert compute(N.ONE_HOT, [of(2, dtype="i8").reshape(()), depth, on, off]).tolist() == [False, False, True, False]
    assert compute(N.ONE_HOT, [np.zeros((0, 2), "i4"), depth, on, off], {"axis": 1}).shape == (0, 4, 2)


def test_updates_of_one_place_add_up() -> None:
    places, shape = of([1], [1], [0], [1], dtype="i4"), of(3, dtype="i4")
    # 100 + 100 + 57 = 257, which is 1 as UINT8.
    np.testing.assert_array_equal(compute(N.SCATTER_ND, [places, of(100, 100, 7, 57, dtype="u1"), shape]), [7, 1, 0])
    np.testing.assert_array_equal(
        compute(N.SCATTER_ND, [places, of(1, 0, 0, 1, dtype="?"), shape]), [False, True, False]
    )
    # In FLOAT16 there is nothing between 2048 and 2050: the sum 2048 + 1 + 1 is rounded once, in the end.
    np.testing.assert_array_equal(compute(N.SCATTER_ND, [places, of(2048, 1, 0, 1, dtype="f2"), shape]), [0, 2050, 0])


def test_the_last_value_of_one_place_counts() -> None:
    places, shape = of([0, 1], [1, 0], [0, 1], dtype="i8"), of(2, 2, dtype="i8")
    np.testing.assert_array_equal(compute(N.SPARSE_TO_DENSE, [places, of(1, 2, 3), shape]), [[0, 3], [2, 0]])
