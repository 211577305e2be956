"""Results where they are to go, and what compiled models say of the memory they share."""

import numpy as np
import onnx
import pytest
from loaded import loaded
from nnrt_backend_onnxruntime.in_place import in_place_of
from onnx import TensorProto, helper

from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops.in_place import InPlace, in_place
from nnrt_hdi.tensor import TensorSpec

ELEMENTS = 1 << 14


@pytest.fixture(scope="module", params=["reference", "onnxruntime"])
def backend(request: pytest.FixtureRequest) -> Backend:
    return loaded(request.param)


def graph(elements: int = ELEMENTS) -> Graph:
    """The absolute values of a vector, that vector as a row, and the place of its largest element."""
    x, row = TensorSpec(DataType.FLOAT32, (elements,)), TensorSpec(DataType.FLOAT32, (1, elements))
    place = TensorSpec(DataType.INT32, ())
    shape = Constant.of(np.array([1, elements], np.int32))
    nodes = (
        Node(NodeType.ABS, (0,), (1,)),
        Node(NodeType.RESHAPE, (1, 4), (2,)),
        Node(NodeType.ARGMAX_FUSION, (5,), (3,), {"axis": 0}),
    )
    shape_spec = TensorSpec(DataType.INT32, (2,))
    return Graph((x, x, row, place, shape_spec, x), nodes, (0, 5), (1, 2, 3), {4: shape})


def prepare(backend: Backend, given: Graph) -> PreparedModel:
    return backend.prepare(given, ModelConfig(), lambda _: None)


@pytest.mark.parametrize("elements", [1, 256, ELEMENTS])
def test_results_are_where_they_are_to_go_or_new(backend: Backend, elements: int) -> None:
    model = prepare(backend, graph(elements))
    x = np.arange(elements, dtype=np.float32) - 2
    places = [np.zeros(elements, np.float32), None, np.zeros((), np.int32)]
    for given in ((), (None, None, None), places):
        absolute, row, place = model.run([x, x], Cancellation(), given)
        np.testing.assert_array_equal(absolute, np.abs(x))
        np.testing.assert_array_equal(row, np.abs(x)[None])
        assert place == elements - 1
        assert not np.shares_memory(absolute, row), "each is the caller's alone"
    if elements == ELEMENTS:
        assert absolute is places[0]


@pytest.mark.parametrize("elements", [ELEMENTS, 3 * ELEMENTS])
def test_results_whose_shapes_follow_from_the_inputs_are_where_they_are_to_go(elements: int) -> None:
    backend = loaded("onnxruntime")
    spec = TensorSpec(DataType.FLOAT32, (-1,))
    model = prepare(backend, Graph((spec, spec), (Node(NodeType.ABS, (0,), (1,)),), (0,), (1,), {}))
    for restored in (model, backend.restore(model.export(), ModelConfig())):
        x, place = -np.ones(elements, np.float32), np.zeros(elements, np.float32)
        assert [spec.shape for spec in restored.sizes([x]).outputs] == [(elements,)]
        (y,) = restored.run([x], Cancellation(), [place])
        assert y is place
        np.testing.assert_array_equal(y, -x)


def test_a_result_that_is_an_input(backend: Backend) -> None:
    """It is copied once, to where it is to go."""
    spec, row = TensorSpec(DataType.FLOAT32, (ELEMENTS,)), TensorSpec(DataType.FLOAT32, (1, ELEMENTS))
    tensors = (spec, row, TensorSpec(DataType.INT32, (2,)))
    shape = Constant.of(np.array([1, ELEMENTS], np.int32))
    model = prepare(backend, Graph(tensors, (Node(NodeType.RESHAPE, (0, 2), (1,)),), (0,), (1,), {2: shape}))
    x, place = np.arange(ELEMENTS, dtype=np.float32), np.zeros((1, ELEMENTS), np.float32)
    (y,) = model.run([x], Cancellation(), [place])
    assert y is place
    np.testing.assert_array_equal(y, x[None])
    assert model.reads_in_place == {0}


def test_restored_models_share_the_same(backend: Backend) -> None:
    model = prepare(backend, graph())
    restored = backend.restore(model.export(), ModelConfig())
    assert restored.reads_in_place == model.reads_in_place == {0}
    x, place = -np.ones(ELEMENTS, np.float32), np.zeros(ELEMENTS, np.float32)
    assert restored.run([x, x], Cancellation(), [place, None, None])[0] is place


@pytest.mark.parametrize("operator", ["Abs", "Unheard"])
def test_a_model_beside_a_graph_that_is_not_its_own(operator: str) -> None:
    """The graph says that all are absolute values; what the model really does counts."""
    spec = TensorSpec(DataType.INT32, (4,))
    claimed = Graph((spec, spec), (Node(NodeType.ABS, (0,), (1,)),), (0,), (1,), {})
    assert in_place(claimed) == InPlace(frozenset({0}), frozenset({0}))
    x, y, table = (helper.make_tensor_value_info(name, TensorProto.INT32, [4]) for name in ("x", "y", "table"))
    nodes = [
        helper.make_node(operator, ["x"], ["renamed"]),
        helper.make_node("Gather", ["table", "renamed"], ["y"]),
    ]
    model: onnx.ModelProto = helper.make_model(helper.make_graph(nodes, "lie", [x, table], [y]))
    assert in_place_of(model, claimed, 1).inputs == frozenset()
