"""Models of an engine that takes only shapes that are known: compiled for each kind of runs, and so few are kept."""

import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from net import Net
from nnrt_onnx_lowering import Engine, Lowered, Operator, lower
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.errors import InvalidParameter, OutOfMemory, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.graph_model import GraphModel
from nnrt_hdi.ops import inferred_graph, late_nodes
from nnrt_hdi.tensor import MAX_DIM, Array

AnyArray = NDArray[Any]
N = NodeType
MOST_KINDS = 3


class Static(Engine):
    """An engine that takes all operators, but no dimension that isn't known."""

    name = "Static"

    def takes(self, operator: Operator) -> bool:
        return True


class Program:
    """What the engine makes of a graph."""

    def __init__(self, graph: Graph) -> None:
        unknown = [spec for spec in graph.tensors if spec.is_dynamic]
        if unknown:
            raise Unsupported(f"{unknown[0]} is not known")
        self.lowered: Lowered = lower(graph, Static())
        self._evaluator = ReferenceEvaluator(self.lowered.whole())

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        given = dict(zip(self.lowered.inputs, inputs, strict=True))
        return list(self._evaluator.run(list(self.lowered.outputs), given))


class Model(GraphModel[Program]):
    """A model of it: what a backend for such an engine has to write."""

    def __init__(self, graph: Graph, max_tensor_bytes: int = 1 << 20) -> None:
        self.made: list[weakref.ref[Program]] = []
        super().__init__(graph, max_tensor_bytes, self._compiled, most_kinds=MOST_KINDS)

    def _compiled(self, graph: Graph) -> Program:
        program = Program(graph)
        self.made.append(weakref.ref(program))
        return program

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return self.prepared(inputs, cancellation).run(inputs)


def network(rows: int = -1) -> Graph:
    """The softmax of the square of x, in rows of 4."""
    net = Net(Format.NONE)
    return net.graph(net.op(N.SOFTMAX, net.op(N.SQUARE, net.input(rows, 4)), axis=(-1,)))


def reshaped() -> Graph:
    """x in a shape that is an input."""
    net = Net(Format.NONE)
    x, shape = net.input(-1), net.input(2, data_type=DataType.INT64)
    spec = net.spec((-1, -1))
    return net.graph(net.op(N.SQUARE, net.op(N.RESHAPE, x, shape, outputs=[spec])))


def image(rows: int) -> AnyArray:
    return np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)


def softmax(x: AnyArray) -> AnyArray:
    powers: AnyArray = np.exp(x.astype(np.float64) ** 2)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def run(model: Model, *inputs: AnyArray) -> AnyArray:
    (output,) = model.run(inputs, Cancellation())
    return np.asarray(output)


def test_one_kind_of_runs_is_prepared_with_the_model() -> None:
    model = Model(network(rows=2))
    assert (len(model.made), model.varies) == (1, False)
    np.testing.assert_allclose(run(model, image(2)), softmax(image(2)), rtol=1e-5)
    assert len(model.made) == 1


def test_what_cannot_be_compiled_is_refused_with_the_model() -> None:
    with pytest.raises(OutOfMemory, match=r"SQUARE node 0.*at most 16"):
        Model(network(rows=2), max_tensor_bytes=16)


def test_each_kind_of_runs_is_prepared_by_its_first() -> None:
    model = Model(network())
    assert not model.made
    for rows in (1, 2, 1, 2):
        assert model.sizes([image(rows)]).outputs[0].shape == (rows, 4)
        np.testing.assert_allclose(run(model, image(rows)), softmax(image(rows)), rtol=1e-5)
    assert len(model.made) == 2


def test_elements_that_are_shapes_make_a_kind() -> None:
    model, x = Model(reshaped()), np.arange(6, dtype=np.float32)
    for shape in ((2, 3), (3, 2), (2, 3)):
        np.testing.assert_array_equal(run(model, x, np.array(shape)), (x * x).reshape(shape))
    assert len(model.made) == 2


def test_the_latest_kinds_are_kept() -> None:
    model = Model(network())
    for rows in range(1, 8):
        run(model, image(rows))
    alive = [at for at, program in enumerate(model.made, 1) if program() is not None]
    assert alive == [5, 6, 7]
    run(model, image(1))
    assert len(model.made) == 8


def test_threads_that_want_one_kind_wait_for_the_first() -> None:
    model, all_there = Model(network()), threading.Barrier(8)

    def turns(thread: int) -> bool:
        all_there.wait(timeout=30)
        return all(
            np.allclose(run(model, image(rows)), softmax(image(rows)), rtol=1e-5)
            for rows in (1, *(1 + (thread + step) % MOST_KINDS for step in range(20)))
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(turns, range(8)))
    assert len(model.made) == MOST_KINDS


def test_a_kind_that_fails_fails_again_and_no_other() -> None:
    model, x = Model(reshaped()), np.arange(6, dtype=np.float32)
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="RESHAPE node 0"):
            run(model, x, np.array((4, 2)))
    assert run(model, x, np.array((6, 1))).shape == (6, 1)


def test_any_length_that_is_not_known_is_taken() -> None:
    (given,) = Model(network()).input_ranges()
    assert (given.min_dims, given.max_dims) == ((0, 4), (MAX_DIM, 4))


def test_shapes_that_nodes_compute_come_late() -> None:
    """But not those that are inputs, nor such as are declared."""
    assert late_nodes(inferred_graph(reshaped())) == frozenset()
    net = Net(Format.NONE)
    x, shape = net.input(-1), net.op(N.ABS, net.input(2, data_type=DataType.INT64))
    late = net.op(N.RESHAPE, x, shape, outputs=[net.spec((-1, -1))])
    known = net.op(N.RESHAPE, x, shape, outputs=[net.spec((2, 3))])
    assert late_nodes(inferred_graph(net.graph(net.op(N.SQUARE, late), known))) == {1}
