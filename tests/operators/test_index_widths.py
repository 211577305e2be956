"""Axes, sizes, counts and positions are integers of any width: they say in each what they say in INT64."""

from collections.abc import Iterator

import numpy as np
import pytest
from loaded import loaded

from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import DataType
from nnrt_hdi.enums import NodeType as N
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import OPERATORS, inferred_graph
from nnrt_hdi.ops.operands import INTEGERS, MAX_INDEX
from nnrt_hdi.ops.rows_apart import require_rows_apart
from nnrt_hdi.tensor import data_type_of

from .single_node import AnyArray, Pair, graph_of, infer_all, pairs, run_all, spec

pytestmark = pytest.mark.table

SINGLE = [sample for sample in SAMPLES if sample.dtype == np.float32][::2]
# The narrowest, and those that reach beyond the signed ones.
DTYPES = ("i1", "u1", "u4", "u8")
# The number of a data type is none of these.
OF_TYPES = {N.CAST}

per_backend = pytest.mark.parametrize("backend", ("reference", "onnxruntime"))


def places(sample: Sample) -> list[int]:
    """The operands that say axes and the like."""
    rules = OPERATORS[sample.node_type].operands
    found = [min(at, len(rules) - 1) for at in range(len(sample.given))]
    return [at for at, rule in enumerate(found) if rules[rule].accepts.data_types == INTEGERS]


SPOKEN_TO = [sample for sample in SINGLE if places(sample) and sample.node_type not in OF_TYPES]
per_sample = pytest.mark.parametrize("sample", SPOKEN_TO, ids=lambda sample: sample.name)


def test_operators_that_are_spoken_to() -> None:
    assert {sample.node_type for sample in SPOKEN_TO} >= {
        *(N.TOPK_FUSION, N.ONE_HOT, N.TILE_FUSION, N.RESHAPE, N.TRANSPOSE, N.SLICE_FUSION, N.STRIDED_SLICE, N.CROP),
        *(N.PAD_FUSION, N.EXPAND_DIMS, N.GATHER, N.SCATTER_ND, N.SPARSE_TO_DENSE, N.FILL, N.REDUCE_FUSION, N.ALL),
    }


def run(backend: str, graph: Graph, inputs: list[AnyArray]) -> list[AnyArray]:
    model = loaded(backend).prepare(graph, ModelConfig(), lambda _: None)
    return list(model.run(inputs, Cancellation()))


def in_each_width(sample: Sample) -> Iterator[tuple[str, list[Pair], list[AnyArray]]]:
    """The operands, and their elements, with each of these in each type that holds it."""
    arrays = sample.arrays()
    for at in places(sample):
        for dtype in DTYPES:
            narrow = arrays[at].astype(dtype)
            if np.array_equal(narrow, arrays[at]):
                given = [*arrays[:at], narrow, *arrays[at + 1 :]]
                yield f"operand {at} of {dtype}", pairs(sample, given), given


@per_sample
@per_backend
def test_as_constants(sample: Sample, backend: str) -> None:
    arrays = sample.arrays()
    inputs = [array for at, array in enumerate(arrays) if not sample.is_constant(at)]
    wanted = run(backend, graph_of(sample.node_type, pairs(sample, arrays), sample.attrs), inputs)
    for place, operands, given in in_each_width(sample):
        inputs = [array for at, array in enumerate(given) if not sample.is_constant(at)]
        found = run(backend, graph_of(sample.node_type, operands, sample.attrs), inputs)
        for y, expected in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(y, expected, place)


@per_sample
@per_backend
def test_as_inputs_of_a_run(sample: Sample, backend: str) -> None:
    """Where a device takes them so in INT64."""
    arrays = sample.arrays()

    def outcome(operands: list[Pair], given: list[AnyArray]) -> list[AnyArray] | str:
        try:
            dynamic = [(operand, None) for operand, _ in operands]
            return run(backend, graph_of(sample.node_type, dynamic, sample.attrs), given)
        except NnrtError as refusal:
            return refusal.message.partition(" INT")[0].partition(" UINT")[0]

    wanted = outcome(pairs(sample, arrays), arrays)
    for place, operands, given in in_each_width(sample):
        found = outcome(operands, given)
        if isinstance(wanted, str) or isinstance(found, str):
            assert found == wanted, place
            continue
        for y, expected in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(y, expected, place)


def test_what_no_index_can_be() -> None:
    """Beyond INT64, where it would count from the other end."""
    x, far, one = (spec((4,)), None), np.array([2**64 - 1], np.uint64), np.array([1], np.int8)
    vectors = [(spec((1,), data_type_of(array.dtype)), array) for array in (far, far, one)]
    with pytest.raises(InvalidParameter, match=rf"begin is \[{2**64 - 1}\]; use at most {MAX_INDEX}"):
        infer_all(N.STRIDED_SLICE, [x, *vectors], {})


def test_types_that_are_mixed() -> None:
    """UINT64 beside INT64 makes a float of neither."""
    x = np.arange(4, dtype=np.float32)
    vectors: list[AnyArray] = [np.array([1], np.uint64), np.array([-1], np.int64), np.array([1], np.uint8)]
    operands = [(spec((4,)), None), *((spec((1,), data_type_of(array.dtype)), array) for array in vectors)]
    for backend in ("reference", "onnxruntime"):
        assert run(backend, graph_of(N.STRIDED_SLICE, operands, {}), [x])[0].tolist() == [1, 2]
    assert run_all(graph_of(N.STRIDED_SLICE, [(pair[0], None) for pair in operands], {}), [x, *vectors])[
        0
    ].tolist() == [1, 2]


@pytest.mark.parametrize("data_type", sorted(INTEGERS), ids=lambda data_type: DataType(data_type).name)
def test_rows_stay_apart_all_the_same(data_type: DataType) -> None:
    dtype = spec((), data_type).numpy_dtype
    rows = (spec((-1, 2, 3)), None)

    def vector(*numbers: int) -> Pair:
        return spec((len(numbers),), data_type), np.array(numbers, dtype)

    for node_type, operands in (
        (N.REDUCE_FUSION, [vector(1)]),
        (N.TRANSPOSE, [vector(0, 2, 1)]),
        (N.RESHAPE, [vector(0, 6)]),
        (N.TILE_FUSION, [vector(1, 2, 1)]),
        (N.TOPK_FUSION, [vector(2)]),
        (N.EXPAND_DIMS, [vector(1)]),
    ):
        require_rows_apart(inferred_graph(graph_of(node_type, [rows, *operands], {})))
