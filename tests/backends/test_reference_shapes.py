"""Runs of the reference backend with many different shapes: right, whatever was kept of other runs, and little is."""

import itertools
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from loaded import loaded
from nnrt_backend_reference.program import Program
from numpy.typing import NDArray

from nnrt_client import Compilation, Executor, Model, OperationFailed, OperationType, Runtime
from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, OutOfMemory
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import inferred_graph, run_sizes
from nnrt_hdi.steps import KEPT_NODES, STEP_BYTES
from nnrt_hdi.tensor import TensorSpec

AnyArray = NDArray[Any]
N = NodeType


def f32(*shape: int) -> TensorSpec:
    return TensorSpec(DataType.FLOAT32, shape)


def i32(*shape: int) -> TensorSpec:
    return TensorSpec(DataType.INT32, shape)


def chain(nodes: int, rows: int = -1) -> Graph:
    """x + 1 + 1 + ..."""
    one = Constant.of(np.ones(2, np.float32))
    specs = (f32(rows, 2), f32(2), *[f32(-1, 2)] * nodes)
    adds = [Node(N.ADD_FUSION, (0 if at == 0 else at + 1, 1), (at + 2,)) for at in range(nodes)]
    return Graph(specs, tuple(adds), (0,), (nodes + 1,), {1: one})


def reshaped() -> Graph:
    """x in the shape that a sum of two inputs says, which only the run knows, and that plus 1."""
    specs = f32(-1), i32(2), i32(2), i32(2), f32(-1, -1), f32(1), f32(-1, -1)
    nodes = (
        Node(N.ADD_FUSION, (1, 2), (3,)),
        Node(N.RESHAPE, (0, 3), (4,)),
        Node(N.ADD_FUSION, (4, 5), (6,)),
    )
    return Graph(specs, nodes, (0, 1, 2), (6,), {5: Constant.of(np.ones(1, np.float32))})


def prepare(graph: Graph) -> Program:
    model = loaded("reference").prepare(graph, ModelConfig(), lambda _: None)
    assert isinstance(model, Program)
    return model


def run(model: Program, *inputs: AnyArray) -> AnyArray:
    (output,) = model.run(inputs, Cancellation())
    return output


def rows(count: int) -> AnyArray:
    return np.arange(2 * count, dtype=np.float32).reshape(count, 2)


# ---- answers ---------------------------------------------------------------------------------------------------------


def test_many_shapes_in_turn() -> None:
    """More than are kept, in an order in which each has been dropped when it comes again; and one again and again."""
    model = prepare(chain(5))
    for count in (*range(run_sizes.MOST_REMEMBERED + 9), *range(9), 3, 3, 4, 3):
        np.testing.assert_array_equal(run(model, rows(count)), rows(count) + 5)
        assert model.sizes([rows(count)]).outputs[0].shape == (count, 2)


@pytest.mark.parametrize("kept", [1, 2, run_sizes.MOST_REMEMBERED])
def test_many_threads_with_shapes_of_their_own(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnrt_hdi.steps.MOST_REMEMBERED", kept)
    model = prepare(chain(4))

    def turns(first: int) -> bool:
        counts = [(first + step) % 7 for step in range(60)]
        return all(np.array_equal(run(model, rows(count)), rows(count) + 4) for count in counts)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(turns, range(8)))
    assert len(model._kinds) <= kept


def test_elements_that_decide_shapes_decide_them_in_each_run() -> None:
    """What the run makes decides; inputs of the same shapes have other results."""
    model, x, zero = prepare(reshaped()), np.arange(12, dtype=np.float32), np.zeros(2, np.int32)
    shapes = [(3, 4), (4, 3), (3, 4), (2, 6), (-1, 1), (12, 1), (3, 4)]
    for shape in shapes:
        np.testing.assert_array_equal(run(model, x, np.array(shape, np.int32), zero), x.reshape(shape) + 1)
    with pytest.raises(InvalidParameter, match="RESHAPE node 1"):
        run(model, x, np.array((5, 5), np.int32), zero)
    np.testing.assert_array_equal(run(model, x, np.array((6, 2), np.int32), zero), x.reshape(6, 2) + 1)


def test_elements_that_decide_shapes_at_once() -> None:
    model, x, zero = prepare(reshaped()), np.arange(12, dtype=np.float32), np.zeros(2, np.int32)

    def turns(first: int) -> bool:
        shapes = itertools.islice(itertools.cycle([(3, 4), (4, 3), (2, 6), (12, 1)]), first, first + 50)
        given = [(shape, run(model, x, np.array(shape, np.int32), zero)) for shape in shapes]
        return all(np.array_equal(y, x.reshape(shape) + 1) for shape, y in given)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(turns, range(8)))


def test_an_input_that_decides_shapes_may_change_its_elements() -> None:
    graph = Graph((f32(-1), i32(2), f32(-1, -1)), (Node(N.RESHAPE, (0, 1), (2,)),), (0, 1), (2,))
    model, x = prepare(graph), np.arange(6, dtype=np.float32)
    shape = np.array((2, 3), np.int32)
    for wanted in ((2, 3), (3, 2), (6, 1), (2, 3)):
        shape[:] = wanted  # In the same memory, as a client's tensor.
        np.testing.assert_array_equal(run(model, x, shape), x.reshape(wanted))


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "kept", "branches"),
    [(4, run_sizes.MOST_REMEMBERED, 8), (KEPT_NODES // 8, 8, 8), (KEPT_NODES + 1, 1, 1)],
)
def test_few_shapes_are_kept_of_large_models(nodes: int, kept: int, branches: int) -> None:
    model = prepare(chain(nodes))
    assert model.kept_bytes == nodes * (kept * STEP_BYTES + branches * run_sizes.BRANCH_BYTES)
    for count in range(kept + 2):
        model.sizes([rows(count)])
    assert len(model._kinds) == kept


def test_a_model_of_fixed_shapes_keeps_nothing() -> None:
    model = prepare(chain(4, rows=3))
    run(model, rows(3))
    assert (model.kept_bytes, len(model._kinds)) == (0, 0)


@pytest.mark.slow
def test_any_number_of_shapes_takes_no_more_than_is_said() -> None:
    model = prepare(chain(64))
    model.sizes([rows(1)])
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for count in range(2, 3 * run_sizes.MOST_REMEMBERED):
            run(model, rows(count))
        assert tracemalloc.get_traced_memory()[0] - before < model.kept_bytes
    finally:
        tracemalloc.stop()


def test_sizes_are_those_of_the_shapes() -> None:
    """Two results of a chain live at a time: the one that is read, and the one that is made."""
    model = prepare(chain(5))
    for count in (1, 1000, 10, 1000, 1):
        assert model.sizes([rows(count)]).peak_bytes == 2 * rows(count).nbytes


def test_results_are_bounded_in_each_run() -> None:
    """Also where nobody could say before how large they are."""
    model = Program(inferred_graph(reshaped()), 1 << 30, 90, enable_float16=False)
    zero = np.zeros(2, np.int32)
    few, many = np.arange(6, dtype=np.float32), np.arange(12, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(run(model, few, np.array((2, 3), np.int32), zero), few.reshape(2, 3) + 1)
        with pytest.raises(OutOfMemory, match=r"ADD_FUSION node 2.*the run holds 96 bytes at a time; at most 90"):
            run(model, many, np.array((3, 4), np.int32), zero)


def test_what_a_model_keeps_counts_as_held(start_daemon: StartDaemon) -> None:
    """A model of open dimensions that may keep more than the session has is refused; closed, it gives all back."""
    nodes = 256
    kept = run_sizes.MOST_REMEMBERED * nodes * STEP_BYTES
    with Runtime([start_daemon("--session-bytes", str(kept * 3 // 2)).address]) as runtime:
        for _ in range(2):
            with Compilation(client_chain(nodes, -1), runtime.device()) as first:
                first.build()
                with Compilation(client_chain(nodes, 4), runtime.device()) as fixed:
                    fixed.build()
                second = Compilation(client_chain(nodes + 1, -1), runtime.device())
                with second, pytest.raises(OperationFailed, match="--session-bytes"):
                    second.build()
                with Executor(first) as executor:
                    for count in (1, 5, 1):
                        np.testing.assert_array_equal(executor.run_sync([rows(count)])[0], rows(count) + nodes)


def client_chain(nodes: int, count: int) -> Model:
    model = Model()
    x = y = model.input((count, 2), name="x")
    for _ in range(nodes):
        y = model.apply(OperationType.ADD, y, np.ones(2, np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model
