"""Sizes of runs as they follow from a run before: they are those that inference says, node by node, of each."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from part import examples

from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Constant, Graph, Node
from nnrt_hdi.ops import KnownTensors, RunKinds, inferred_graph, require_fits, run_sizes, sizes_of
from nnrt_hdi.ops.inference import infer_tensors, raise_first
from nnrt_hdi.ops.open_dims import OpenDim, Tape
from nnrt_hdi.ops.slicing import Masks, strided_cuts
from nnrt_hdi.sizes import Sizes
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, Shape, TensorSpec

from .single_node import graph_of, infer_all, pairs

N = NodeType
F32 = DataType.FLOAT32
NODE_TYPES = sorted({sample.node_type for sample in SAMPLES})
Found = tuple[Sequence[TensorSpec], frozenset[int], Sizes]


def kinds_of(graph: Graph, max_tensor_bytes: int = 1 << 40) -> RunKinds[KnownTensors]:
    return RunKinds(inferred_graph(graph), len(graph.inputs), max_tensor_bytes, lambda known: known)


def by_kind(kinds: RunKinds[KnownTensors], inputs: Sequence[Array]) -> Found:
    known = kinds.value_for(inputs)
    assert not any(isinstance(dim, OpenDim) for spec in known.specs for dim in spec.shape)
    assert known.graph.output_specs == known.sizes.outputs
    return known.specs, known.branch.undecided, known.sizes


def node_by_node(graph: Graph, inputs: Sequence[Array], max_tensor_bytes: int = 1 << 40) -> Found:
    """What inference says of this run, as if it were the only one."""
    tensors, values = list(graph.tensors), dict(graph.shape_values)
    for at, array in zip(graph.inputs, inputs, strict=True):
        tensors[at] = tensors[at].with_shape(array.shape)
        if array.nbytes <= INLINE_CONSTANT_BYTES:
            values[at] = array
    inferred = infer_tensors(graph, tensors, values)
    raise_first(inferred.problems)
    require_fits(graph, inferred.specs, max_tensor_bytes)
    return inferred.specs, inferred.undecided, sizes_of(graph, inferred.specs)


def outcome(find: Any, *arguments: Any) -> tuple[type[NnrtError], str] | Found:
    try:
        found: Found = find(*arguments)
    except NnrtError as error:
        return type(error), str(error)
    return found


def require_same(
    graph: Graph, kinds: RunKinds[KnownTensors], inputs: Sequence[Array], max_tensor_bytes: int = 1 << 40
) -> None:
    wanted = outcome(node_by_node, inferred_graph(graph), inputs, max_tensor_bytes)
    assert outcome(by_kind, kinds, inputs) == wanted


class Gigantic(NamedTuple):
    """Stands for an array that nobody could have; of a large one sizes look at nothing else."""

    shape: Shape
    nbytes: int


def zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Zeros in any shape."""
    if math.prod(max(dim, 1) for dim in shape) * dtype.itemsize <= INLINE_CONSTANT_BYTES:
        return np.zeros(shape, dtype)
    return cast("Array", Gigantic(tuple(shape), max(math.prod(shape) * dtype.itemsize, INLINE_CONSTANT_BYTES + 1)))


# ---- all operators, any shapes


@st.composite
def open_graphs(draw: st.DrawFn, samples: Sequence[Sample]) -> tuple[Graph, list[Array]]:
    """A graph of one node, some of its dimensions open, and inputs that it takes; more open ones as far as inference
    does without them."""
    sample = draw(st.sampled_from(samples))
    operands = pairs(sample, sample.arrays())
    known = infer_all(sample.node_type, operands, sample.attrs)
    places = [(at, axis) for at, (x, value) in enumerate(operands) if value is None for axis in range(x.rank)]
    for at, axis in draw(st.permutations(places)):
        (spec, value), shape = operands[at], list(operands[at][0].shape)
        shape[axis] = UNKNOWN_DIM
        opened = [*operands[:at], (spec.with_shape(shape), value), *operands[at + 1 :]]
        try:
            infer_all(sample.node_type, opened, sample.attrs)
        except InvalidParameter:
            continue
        operands = opened
    outputs = [replace(output, shape=(UNKNOWN_DIM,) * output.rank) for output in known]
    graph = graph_of(sample.node_type, operands, sample.attrs, *outputs)
    arrays: list[Array] = sample.arrays()
    return graph, [arrays[at] for at in graph.inputs]


@st.composite
def runs(draw: st.DrawFn, graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """Other inputs. Dimensions that were equal mostly stay so, for else most operators refuse them."""
    lengths = {
        dim: draw(st.integers(0, 9) | st.sampled_from([dim, 2 * dim, 1 << 20])) for x in inputs for dim in x.shape
    }
    arrays = []
    for at, given_array in zip(graph.inputs, inputs, strict=True):
        shape = []
        for dim, declared in zip(given_array.shape, graph.tensors[at].shape, strict=True):
            length = draw(st.integers(0, 4)) if draw(st.integers(0, 9)) == 0 else lengths[dim]
            shape.append(length if declared == UNKNOWN_DIM else dim)
        arrays.append(given_array if tuple(shape) == given_array.shape else zeros(shape, given_array.dtype))
    return arrays


@pytest.mark.parametrize("node_type", NODE_TYPES, ids=lambda node_type: node_type.name)
@settings(
    max_examples=examples(20),
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_every_operator(node_type: NodeType, data: st.DataObject) -> None:
    graph, inputs = data.draw(open_graphs([sample for sample in SAMPLES if sample.node_type is node_type]))
    most_bytes = data.draw(st.sampled_from([1 << 40, 1 << 10]))
    try:
        kinds = kinds_of(graph, most_bytes)
    except NnrtError:
        return
    require_same(graph, kinds, inputs, most_bytes)
    for _ in range(6):
        require_same(graph, kinds, data.draw(runs(graph, inputs)), most_bytes)


# ---- several nodes


def attention() -> Graph:
    """Queries of [n, t, 4] over keys that a cache of [n, p, 4] begins with."""
    tensors = [TensorSpec(F32, (UNKNOWN_DIM, UNKNOWN_DIM, 4))] * 2 + [TensorSpec(F32, (UNKNOWN_DIM,) * 3)] * 6
    tensors.append(TensorSpec(DataType.INT32, (3,)))
    nodes = (
        Node(N.CONCAT, (1, 0), (2,), {"axis": 1}),
        Node(N.TRANSPOSE, (2, 8), (3,)),
        Node(N.MATMUL_FUSION, (0, 3), (4,)),
        Node(N.SOFTMAX, (4,), (5,)),
        Node(N.MATMUL_FUSION, (5, 2), (6,)),
        Node(N.ADD_FUSION, (6, 0), (7,)),
    )
    return Graph(tuple(tensors), nodes, (0, 1), (7, 2), {8: Constant.of(np.array([0, 2, 1], np.int32))})


lengths = st.sampled_from([0, 1, 2, 3, 5, 1 << 10])


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(lengths, lengths, lengths, lengths), min_size=1, max_size=12))
def test_a_network(shapes: list[tuple[int, int, int, int]]) -> None:
    """Batches that differ are refused, or broadcast where one is 1; what is made at most turns with the lengths."""
    graph, most_bytes = attention(), 1 << 24
    kinds = kinds_of(graph, most_bytes)
    dtype = np.dtype(np.float32)
    for n, t, past, other in shapes:
        batch = n if other != 5 else other
        require_same(graph, kinds, [zeros((n, t, 4), dtype), zeros((batch, past, 4), dtype)], most_bytes)


def test_nodes_are_inferred_once_for_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    inferred = []

    def counted(graph: Graph, *known: Any) -> Any:
        inferred.append(graph)
        return infer_tensors(graph, *known)

    monkeypatch.setattr(run_sizes, "infer_tensors", counted)
    kinds, dtype = kinds_of(attention()), np.dtype(np.float32)
    for past in range(2, 300):
        keys = (3, past + 1, 4)
        assert kinds.value_for([zeros((3, 1, 4), dtype), zeros((3, past, 4), dtype)]).sizes.outputs[1].shape == keys
    assert len(inferred) == 1


def test_elements_that_are_others_in_each_run_are_not_recorded_for_ever() -> None:
    tensors = (TensorSpec(F32, (UNKNOWN_DIM,)), TensorSpec(DataType.INT64, (2,)), TensorSpec(F32, (UNKNOWN_DIM,) * 2))
    graph = Graph(tensors, (Node(N.RESHAPE, (0, 1), (2,)),), (0, 1), (2,))
    kinds = kinds_of(graph)
    for rows in range(1, 40):
        for shape in ((rows, 2), (rows, 3), (rows, -1)):
            require_same(graph, kinds, [np.zeros(6 * rows, np.float32), np.array(shape)])


# ---- numbers


def test_a_tape_repeats_arithmetic() -> None:
    tape = Tape()
    a, b = tape.dims([7, 2])
    found: Any = (3 + a * b - 1) // 4 % 3 + -b
    assert found.value == (3 + 14 - 1) // 4 % 3 - 2
    for x, y in ((7, 2), (0, 5), (1 << 40, 3)):
        values = tape.replay([x, y])
        assert values is not None
        assert values[tape.index_of(found)] == (3 + x * y - 1) // 4 % 3 - y


@pytest.mark.parametrize(
    ("look", "same", "other"),
    [
        (lambda a, b: a < b, (1, 2), (2, 2)),
        (lambda a, b: a <= 3, (3, 9), (4, 9)),
        (lambda a, b: a in (1, b), (5, 5), (5, 6)),
        (lambda a, b: bool(a), (1, 9), (0, 9)),
        (lambda a, b: [0] * a, (2, 9), (3, 2)),
        (lambda a, b: {a, b}, (2, 3), (2, 4)),
        (lambda a, b: 6 // a == b, (2, 3), (0, 3)),
    ],
    ids=["less", "at least", "one of", "true", "index", "hash", "division by 0"],
)
def test_a_tape_knows_where_it_holds(look: Any, same: tuple[int, int], other: tuple[int, int]) -> None:
    tape = Tape()
    look(*tape.dims(same))
    assert tape.replay(same) is not None
    assert tape.replay(other) is None


positions = st.none() | st.integers(-12, 12) | st.just(2**31 - 1)


@given(positions, positions, st.integers(-4, 4).filter(bool), st.integers(0, 9))
def test_lengths_of_cuts_are_those_of_slices(begin: int | None, end: int | None, stride: int, size: int) -> None:
    """Also of a size that isn't an integer."""
    masks = Masks(begin is None, end is None, 0, 0, 0)
    (cut,) = strided_cuts((size,), [(begin or 0, end or 0, stride)], masks)
    (same,) = strided_cuts(tuple(Tape().dims([size])), [(begin or 0, end or 0, stride)], masks)  # type: ignore[arg-type]
    assert cut.length == same.length == len(range(size)[begin:end:stride])
