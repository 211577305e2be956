"""Every operator on ONNX Runtime, on the samples that chance changes: it agrees with the reference backend.

Whatever is given, nothing but an error of NNRt may come of it: ONNX Runtime runs in this process.
"""

from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from loaded import loaded
from numpy.typing import NDArray
from operators.single_node import graph_of
from part import examples
from test_every_operator import CHANGES, MAX_TENSOR_BYTES, STARTS, Case, declaration, forget_dimensions

from nnrt_client.conformance.tolerance import relative_error
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, PreparedModel, load_backend
from nnrt_hdi.enums import DataType, NodeType, ReduceMode
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec

CASES = examples(50)
LEAST_RUN = CASES // 6
EMPTY_CASES = examples(15)
CONFIG = ModelConfig(max_tensor_bytes=MAX_TENSOR_BYTES)
# Of sums in another order, and in a lower precision than those of the reference kernels.
TOLERANCES = {2: 2.0**-8, 4: 1e-4, 8: 1e-10}


@pytest.fixture(scope="module")
def reference() -> Backend:
    return loaded("reference")


@pytest.fixture(scope="module")
def onnxruntime() -> Backend:
    return load_backend("onnxruntime", {"threads": "1"})


@pytest.mark.parametrize("node_type", sorted(OPERATORS), ids=lambda node_type: node_type.name)
def test_agrees_with_the_reference(reference: Backend, onnxruntime: Backend, node_type: NodeType) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(CASES):
        rng = Random(f"{node_type.name} {seed}")  # noqa: S311
        case = rng.choice(STARTS[node_type])()
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            rng.choice(CHANGES)(rng, case)
        try:
            outcomes[outcome(reference, onnxruntime, rng, case)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {case}") from error
    assert outcomes["agreed"] >= LEAST_RUN, outcomes


@pytest.mark.parametrize("node_type", sorted(OPERATORS), ids=lambda node_type: node_type.name)
def test_of_images_without_pixels(onnxruntime: Backend, node_type: NodeType) -> None:
    """And of other tensors that turn out to have no elements: they are computed, for somebody asks for the shape."""
    for seed in range(EMPTY_CASES):
        rng = Random(f"empty {node_type.name} {seed}")  # noqa: S311
        case = rng.choice(STARTS[node_type])()
        empty_length(rng, case)
        try:
            graph = with_shapes(graph_of(case.node_type, case.operands, case.attrs, *declaration(rng, case)))
            model = onnxruntime.prepare(graph, CONFIG, lambda _: None)
            inputs = [array for array, constant in zip(case.arrays, case.is_constant, strict=True) if not constant]
            shapes = model.run(inputs, Cancellation())
        except NnrtError:
            continue
        assert [shape.shape for shape in shapes] == [spec.shape for spec in graph.output_specs]


def empty_length(rng: Random, case: Case) -> None:
    """No entries along one dimension of an input and others of the same length, most of which are not known before."""
    places = [(at, axis) for at, spec in enumerate(case.specs) for axis in range(spec.rank) if not case.is_constant[at]]
    if not places:
        return
    chosen = rng.choice(places)
    old, everywhere = case.specs[chosen[0]].shape[chosen[1]], rng.random() < 0.6
    for at, spec in enumerate(case.specs):
        if not case.is_constant[at]:
            lengths = [
                0 if (at, axis) == chosen or (everywhere and dim == old) else dim for axis, dim in enumerate(spec.shape)
            ]
            case.fill(rng, at, lengths)
            case.specs[at] = case.specs[at].with_shape([UNKNOWN_DIM if rng.random() < 0.8 else dim for dim in lengths])


def with_shapes(graph: Graph) -> Graph:
    """The graph with the shapes of its outputs in their place."""
    count, outputs = len(graph.tensors), graph.outputs
    shapes = tuple(TensorSpec(DataType.INT32, (graph.tensors[at].rank,)) for at in outputs)
    made = tuple(range(count, count + len(outputs)))
    nodes = tuple(Node(NodeType.SHAPE, (of,), (at,)) for of, at in zip(outputs, made, strict=True))
    return replace(graph, tensors=(*graph.tensors, *shapes), nodes=(*graph.nodes, *nodes), outputs=made)


def outcome(reference: Backend, onnxruntime: Backend, rng: Random, case: Case) -> str:
    try:
        declared = declaration(rng, case)
        if rng.random() < 0.3:
            forget_dimensions(rng, case)
        graph = graph_of(case.node_type, case.operands, case.attrs, *declared)
        wanted_model = reference.prepare(graph, CONFIG, lambda _: None)
    except NnrtError:
        return "refused"
    model = prepared(onnxruntime, graph)
    if model is None:
        return "not supported"
    inputs = [array for array, constant in zip(case.arrays, case.is_constant, strict=True) if not constant]
    try:
        wanted = wanted_model.run(inputs, Cancellation())
    except NnrtError:
        with pytest.raises(NnrtError):
            model.run(inputs, Cancellation())
        return "run refused"
    try:
        results = model.run(inputs, Cancellation())
    except NnrtError:
        assert any(array.size == 0 for array in case.arrays)
        return "run refused"
    for spec, output in zip(model.outputs, results, strict=True):
        assert output.dtype == spec.numpy_dtype
        assert spec.accepts(output.shape)
    if has_another_meaning(case):
        return "ran"
    for spec, result, expected in zip(model.outputs, results, wanted, strict=True):
        require_close(spec, result, expected)
    return "agreed"


def prepared(backend: Backend, graph: Graph) -> PreparedModel | None:
    """The model; None where the backend has said that it doesn't support the node, and says so again."""
    (support,) = backend.supported(graph)
    if support.supported:
        return backend.prepare(graph, CONFIG, lambda _: None)
    with pytest.raises(NnrtError):
        backend.prepare(graph, CONFIG, lambda _: None)
    return None


def has_another_meaning(case: Case) -> bool:
    """Return whether the backend's page says that this differs: infinities, NaN and the like."""
    if any(array.dtype.kind == "f" and not (np.abs(array.astype(np.float64)) < 1e15).all() for array in case.arrays):
        return True
    if any(param.scale > 1e15 for spec in case.specs for param in spec.quant):
        return True
    if case.node_type is NodeType.REDUCE_FUSION:  # Of integers.
        return case.attrs.get("mode") == ReduceMode.PROD and case.arrays[0].dtype.kind != "f"
    return case.node_type is NodeType.DETECTION_POST_PROCESS and bool((case.arrays[2] < 0).any())


def require_close(spec: TensorSpec, result: NDArray[np.generic], expected: NDArray[np.generic]) -> None:
    assert result.shape == expected.shape
    if spec.is_quantized:
        assert np.abs(result.astype(np.int64) - expected.astype(np.int64)).max(initial=0) <= 1
    else:
        assert relative_error(result, expected) <= TOLERANCES.get(result.dtype.itemsize, 0.0)
