"""A scalar may be declared [1], as applications have to, and then it is [1] to whoever reads it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from loaded import loaded

from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import DataType, Format, NodeType, ReduceMode
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import infer_graph, inferred_graph
from nnrt_hdi.ops.rows_apart import require_rows_apart
from nnrt_hdi.tensor import QuantParam, TensorSpec

from .single_node import AnyArray, array_of, graph_of, infer_all, pairs, spec, without_dims

pytestmark = pytest.mark.table

BACKENDS = ("reference", "onnxruntime")
ONE = (1,)

per_backend = pytest.mark.parametrize("backend", BACKENDS)


def gives_scalar(sample: Sample) -> bool:
    return any(not output.shape for output in infer_all(sample.node_type, pairs(sample, sample.arrays()), sample.attrs))


SCALARS = [sample for sample in SAMPLES if gives_scalar(sample)]


def run(backend: str, graph: Graph, *inputs: AnyArray) -> list[AnyArray]:
    """The outputs, which have the shapes that the model says."""
    model = loaded(backend).prepare(graph, ModelConfig(), lambda _: None)
    outputs = model.run(inputs, Cancellation())
    assert all(said.accepts(output.shape) for said, output in zip(model.outputs, outputs, strict=True))
    return outputs


def declared_one(specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    return [output if output.shape else output.with_shape(ONE) for output in specs]


def test_samples_give_scalars() -> None:
    assert {sample.node_type for sample in SCALARS} >= {NodeType.REDUCE_FUSION, NodeType.ALL, NodeType.RANK}


@per_backend
@pytest.mark.parametrize("is_dynamic", (False, True), ids=("known", "dynamic"))
@pytest.mark.parametrize("sample", SCALARS, ids=lambda sample: sample.name)
def test_every_sample_of_a_scalar(sample: Sample, backend: str, is_dynamic: bool) -> None:
    """Declared [1] it has the same element, to the bit."""
    arrays = sample.arrays()
    operands = pairs(sample, arrays)
    results = declared_one(infer_all(sample.node_type, operands, sample.attrs))
    inputs = [array for array, (_, value) in zip(arrays, operands, strict=True) if value is None]
    if is_dynamic:
        operands = [pair if pair[1] is not None else without_dims(pair) for pair in operands]
    try:
        wanted = run(backend, graph_of(sample.node_type, operands, sample.attrs), *inputs)
    except InvalidParameter as refusal:
        pytest.skip(f"not so either: {refusal}")
    found = run(backend, graph_of(sample.node_type, operands, sample.attrs, *results), *inputs)
    for y, expected, said in zip(found, wanted, results, strict=True):
        assert y.dtype == expected.dtype and y.shape == (expected.shape or ONE) == said.shape
        np.testing.assert_array_equal(y.reshape(-1), expected.reshape(-1))


VECTOR = np.array([3, 9, 4], "f4")
INDEX, AXIS, AXES = np.array(1, "i4"), np.array(0, "i4"), np.array([0, 1], "i4")


@per_backend
@pytest.mark.parametrize(
    ("node_type", "operands", "attrs", "expected"),
    [
        (NodeType.GATHER, [VECTOR, INDEX, AXIS], {}, [9]),
        (NodeType.GATHER_ND, [VECTOR, array_of(2, dtype="i4")], {}, [4]),
        (NodeType.SQUEEZE, [VECTOR[:1]], {}, [3]),
        (NodeType.RESHAPE, [VECTOR[:1], np.zeros(0, "i8")], {}, [3]),
        (NodeType.ARGMAX_FUSION, [VECTOR], {}, [1]),
        (NodeType.STRIDED_SLICE, [VECTOR, *(array_of(n, dtype="i4") for n in (1, 2, 1))], {"shrink_axis_mask": 1}, [9]),
        (NodeType.UNSTACK, [VECTOR], {}, [3, 9, 4]),
        (NodeType.FILL, [VECTOR[:1], np.zeros(0, "i4")], {}, [3]),
        (NodeType.ADD_FUSION, [VECTOR[0], VECTOR[1]], {}, [12]),
        (NodeType.CAST, [VECTOR[1], np.array(34, "i4")], {}, [9]),
        (NodeType.REDUCE_FUSION, [VECTOR, array_of(0, -1, dtype="i4")], {"mode": ReduceMode.SUM}, [16]),
        (NodeType.REDUCE_FUSION, [VECTOR[:0], np.zeros(0, "i4")], {"mode": ReduceMode.PROD}, [1]),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_operators_that_give_scalars(
    backend: str, node_type: NodeType, operands: list[AnyArray], attrs: dict[str, Any], expected: list[float]
) -> None:
    given = [np.asarray(operand) for operand in operands]
    first, *others = ((spec(x.shape, DataType[x.dtype.name.upper()]), x) for x in given)
    count = len(expected)
    unknown = tuple(TensorSpec(DataType.UNKNOWN, ONE) for _ in range(count))
    graph = graph_of(node_type, [(first[0], None), *others], attrs, *unknown)
    outputs = run(backend, graph, given[0])
    assert [(y.shape, y.item()) for y in outputs] == [(ONE, value) for value in expected]


def chain(
    *,
    layout: Format = Format.NONE,
    shape: tuple[int, ...] = (2, 3),
    quant: tuple[QuantParam, ...] = (),
    axes_at_run: bool = False,
) -> Graph:
    """The sum of x, declared [1], as an output and joined to itself by an operator that takes no scalars."""
    kind = DataType.INT8 if quant else DataType.FLOAT32
    return Graph(
        (
            TensorSpec(kind, shape, quant=quant),
            spec((2,), DataType.INT32),
            TensorSpec(kind, ONE, layout, quant, "sum"),
            TensorSpec(kind, (2,), quant=quant, name="both"),
        ),
        (
            Node(NodeType.REDUCE_FUSION, (0, 1), (2,), {"mode": ReduceMode.SUM}, "Sum"),
            Node(NodeType.CONCAT, (2, 2), (3,), {"axis": 0}),
        ),
        (0, 1) if axes_at_run else (0,),
        (2, 3),
        {} if axes_at_run else {1: Constant.of(AXES)},
    )


@per_backend
@pytest.mark.parametrize("layout", (Format.NONE, Format.NHWC, Format.NCHW))
@pytest.mark.parametrize("shape", ((2, 3), (-1, 3), (-1, -1)), ids=str)
def test_whoever_reads_it_reads_a_vector(backend: str, layout: Format, shape: tuple[int, ...]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    total, both = run(backend, chain(layout=layout, shape=shape), x)
    assert (total.tolist(), both.tolist()) == ([15], [15, 15])


@per_backend
def test_where_only_the_run_knows_the_axes(backend: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    total, both = run(backend, chain(axes_at_run=True), x, AXES)
    assert (total.tolist(), both.tolist()) == ([15], [15, 15])


@per_backend
def test_of_no_elements(backend: str) -> None:
    total, both = run(backend, chain(shape=(-1, 3)), np.zeros((0, 3), np.float32))
    assert (total.tolist(), both.tolist()) == ([0], [0, 0])


@per_backend
def test_quantized(backend: str) -> None:
    x = np.array([[1, 2, 3], [4, 5, 6]], np.int8)
    total, both = run(backend, chain(quant=(QuantParam(0.5, 1),)), x)
    # Real numbers 0, 0.5, ..., 2.5 have the sum 7.5, which is 15 steps above the zero point.
    assert (total.tolist(), both.tolist()) == ([16], [16, 16])


@per_backend
def test_one_element_declared_a_scalar(backend: str) -> None:
    """In a description without a shape."""
    vector = TensorSpec(DataType.FLOAT32, ONE)
    graph = Graph((vector, vector.with_shape(())), (Node(NodeType.NEG, (0,), (1,)),), (0,), (1,))
    assert inferred_graph(graph).output_specs == (vector,)
    assert run(backend, graph, VECTOR[:1])[0].tolist() == [-3]


def test_shapes_made_of_numbers_declared_one() -> None:
    """Rows are followed through them: the batch is the first dimension of a shape, joined to another number."""
    number = spec(ONE, DataType.INT64)
    graph = Graph(
        (
            spec((-1, 2, 3)),
            number.with_shape((3,)),
            number,
            number.with_shape(()),
            number,
            number.with_shape((2,)),
            spec((-1, 6)),
        ),
        (
            Node(NodeType.SHAPE, (0,), (1,)),
            Node(NodeType.GATHER, (1, 3, 3), (2,)),
            Node(NodeType.CONCAT, (2, 4), (5,)),
            Node(NodeType.RESHAPE, (0, 5), (6,)),
        ),
        (0,),
        (6,),
        {3: Constant.of(np.array(0)), 4: Constant.of(np.array([6]))},
    )
    require_rows_apart(graph)


@pytest.mark.parametrize("declared", ((2,), (-1,), (1, 1)), ids=str)
def test_what_stays_wrong(declared: tuple[int, ...]) -> None:
    """A sum is one number and nothing else."""
    graph = chain()
    tensors = [*graph.tensors[:2], graph.tensors[2].with_shape(declared), graph.tensors[3]]
    with pytest.raises(InvalidParameter, match=r"'sum' is declared .* but is \[\]"):
        inferred_graph(graph.with_tensors(tensors))


def test_answers_are_about_the_nodes_that_were_given() -> None:
    """What inference adds is named beside them."""
    inference = infer_graph(chain())
    assert [node.type for node in inference.graph.nodes[2:]] == [NodeType.RESHAPE]
    assert inference.added == {2: 0} and not inference.problems
    assert infer_graph(inference.graph).graph is inference.graph
