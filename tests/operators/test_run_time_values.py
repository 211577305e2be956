"""Shapes and indices that come from operands of the run: right ones are taken, wrong and hostile ones refused."""

import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from nnrt_client.conformance import Case, Level, cases
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter, OutOfMemory
from nnrt_hdi.tensor import data_type_of

from .single_node import AnyArray, Pair, array_of, graph_of, infer, prepare, spec, without_dims

N = NodeType
LIMIT = 1 << 20
X = np.arange(6, dtype="f4").reshape(2, 3)
OF_THE_RUN = [case for case in cases(Level.VALUES) if "-of_the_run" in case.name]


def i4(*values: Any) -> AnyArray:
    return array_of(*values, dtype="i4")


def i8(*values: Any) -> AnyArray:
    return array_of(*values, dtype="i8")


def run_with(node_type: NodeType, arrays: Sequence[AnyArray], attrs: Mapping[str, Any], is_static: bool) -> AnyArray:
    """The first output of a node whose operands are all inputs, the first of unknown length unless `is_static`."""
    operands: list[Pair] = [(spec(array.shape, data_type_of(array.dtype)), None) for array in arrays]
    if not is_static and arrays[0].ndim > 1:
        operands[0] = without_dims(operands[0], 0)
    model = prepare(graph_of(node_type, operands, attrs), max_tensor_bytes=LIMIT)
    return model.run(arrays, Cancellation())[0]


both = pytest.mark.parametrize("is_static", [True, False], ids=["static", "dynamic"])


@pytest.mark.parametrize("case", OF_THE_RUN, ids=lambda case: case.name)
def test_values_of_the_run(case: Case) -> None:
    """The kit has them with dimensions that are known; here that of the first operand isn't."""
    (node,) = case.graph.nodes
    for run in case.runs:
        assert run.wanted is not None
        np.testing.assert_array_equal(run_with(node.type, run.inputs, node.attrs, is_static=False), run.wanted[0])


@both
@pytest.mark.parametrize(
    ("node_type", "arrays", "attrs", "message"),
    [
        (N.GATHER, [X, i4(0, 2), i4(0)], {}, r"indices\[1\] is 2 in a dimension of 2 elements; use 0\.\.1"),
        (
            N.GATHER,
            [X, i8([0, 1], [-1, 0]), i4(1)],
            {},
            r"indices\[1, 0\] is -1 in a dimension of 3 elements; use 0\.\.2",
        ),
        (N.GATHER, [X, i8(2**62), i4(0)], {}, r"indices\[0\] is 4611686018427387904 in a dimension of 2"),
        (N.GATHER, [X, np.array(-1), i4(0)], {}, "indices is -1 in a dimension of 2 elements"),
        (N.GATHER, [X[:0], i4(0), i4(0)], {}, "in a dimension of 0 elements; there is nothing to pick"),
        (N.GATHER, [X, i4(0), i4(2)], {}, r"axis is 2 but the rank is 2; use -2\.\.1"),
        (N.GATHER_ND, [X, i4([0, 0], [1, 3])], {}, r"indices\[1, 1\] is 3 in a dimension of 3 elements; use 0\.\.2"),
        (N.GATHER_ND, [X, i4([0, 0], [-2, 0])], {}, r"indices\[1, 0\] is -2 in a dimension of 2 elements; use 0\.\.1"),
        (N.SCATTER_ND, [i4([2], [3]), array_of(7, 8), i4(3)], {}, r"indices\[1, 0\] is 3 in a dimension of 3 elements"),
        (
            N.SCATTER_ND,
            [i4([2], [-1]), array_of(7, 8), i4(3)],
            {},
            r"indices\[1, 0\] is -1 in a dimension of 3 elements",
        ),
        (
            N.SPARSE_TO_DENSE,
            [i4([0, 2]), array_of(7), i4(3, 2)],
            {},
            r"indices\[0, 1\] is 2 in a dimension of 2 elements",
        ),
        (
            N.SPARSE_TO_DENSE,
            [i4([-3, 0]), array_of(7), i4(3, 2)],
            {},
            r"indices\[0, 0\] is -3 in a dimension of 3 elements",
        ),
        (N.TOPK_FUSION, [X, i4(4)], {}, r"k is 4, .* use 0\.\.3"),
        (N.EXPAND_DIMS, [X, i4(3)], {}, "axis is 3 but the rank is 3"),
        (N.SLICE_FUSION, [X, i4(0, 2), i4(2, 2)], {}, r"dimension 1 of \[2, 3\] is cut from 2 to 4; stay inside it"),
        (N.SLICE_FUSION, [X, i4(0, 0), i4(2, -1)], {}, r"size is \[2, -1\]; use sizes of 0 or more"),
        (N.CROP, [X, i4(2, 4)], {}, r"dimension 1 of \[2, 3\] is cut from 0 to 4"),
        (
            N.STRIDED_SLICE,
            [X, i4(0, 3), i4(0, 0), i4(1, 1)],
            {"shrink_axis_mask": 3},
            r"begin\[1\] is 3 but dimension 1",
        ),
        (N.STRIDED_SLICE, [X, i4(0, 0), i4(1, 1), i4(1, 0)], {"shrink_axis_mask": 3}, r"strides\[1\] is 0; use"),
        (N.TILE_FUSION, [X, i4(-1, 1)], {}, r"multiples is \[-1, 1\]; use sizes of 0 or more"),
        (N.ONE_HOT, [i4(1), i4(0), array_of(7), array_of(8)], {}, "depth is 0; use 1 or more"),
        (N.FILL, [array_of(7), i4(-1, 2)], {}, r"shape is \[-1, 2\]; use sizes of 0 or more"),
        (N.FILL, [array_of(7), i8(2**31)], {}, r"dimension 0 is 2147483648; use -1 \(unknown\) or 0\.\.2147483647"),
        (N.FILL, [array_of(7), i8(*[2**31 - 1] * 3)], {}, r"overflows 2\^63 bytes"),
        (N.CONSTANT_OF_SHAPE, [i4(-3)], {}, r"shape is \[-3\]; use sizes of 0 or more"),
        (N.CONSTANT_OF_SHAPE, [array_of(1.5)], {}, r"shape is \[1\.5\]; use whole numbers"),
        (N.SPARSE_TO_DENSE, [i4([0, 0]), array_of(7), i4(-1, -1)], {}, r"sparse_shape is \[-1, -1\]; use sizes"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_wrong_values_of_the_run(
    node_type: NodeType, arrays: Sequence[AnyArray], attrs: Mapping[str, Any], message: str, is_static: bool
) -> None:
    with pytest.raises(InvalidParameter, match=f"{node_type.name} node 0: .*{message}"):
        run_with(node_type, arrays, attrs, is_static)


@both
@pytest.mark.parametrize(
    ("node_type", "arrays", "attrs"),
    [
        (N.FILL, [array_of(7), i4(2**16, 2**16)], {}),
        (N.FILL, [array_of(7), i8(*[2**20] * 2, 1)], {}),
        (N.CONSTANT_OF_SHAPE, [i4(2**30)], {}),
        (N.CONSTANT_OF_SHAPE, [array_of(2.0**30)], {"data_type": 1}),
        (N.TILE_FUSION, [X, i4(2**14, 2**14)], {}),
        (N.ONE_HOT, [i4(1), i4(2**31 - 1), array_of(7), array_of(8)], {}),
        (N.SCATTER_ND, [i4([0]), array_of(7), i4(2**31 - 1)], {}),
        (N.SPARSE_TO_DENSE, [i4([0, 0]), array_of(7), i4(2**16, 2**16)], {}),
        (N.BROADCAST_TO, [X], {"shape": (2**20, 2, 3)}),
        (N.RANGE, [X], {"limit": 2**30}),
        # The result would do, the INT64 it is counted in would not.
        (N.RANGE, [X.astype("f2")], {"limit": 2**18}),
        (N.GATHER, [X, np.zeros((2**18,), "i4"), i4(0)], {}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_hostile_sizes_take_no_memory(
    node_type: NodeType, arrays: Sequence[AnyArray], attrs: Mapping[str, Any], is_static: bool
) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(OutOfMemory, match=f"{node_type.name} node 0: .* at most {LIMIT} are allowed"):
            run_with(node_type, arrays, attrs, is_static)
        assert tracemalloc.get_traced_memory()[1] < LIMIT
    finally:
        tracemalloc.stop()


def test_rank_that_no_tensor_has() -> None:
    """A long vector of the run is refused before its elements are looked at."""
    shape = np.ones(1 << 18, "i4")
    with pytest.raises(
        InvalidParameter, match="has 262144 elements, one for each dimension of the output; use at most 32"
    ):
        infer(N.FILL, [(spec(()), None), (spec(shape.shape, data_type_of(shape.dtype)), shape)], {})
