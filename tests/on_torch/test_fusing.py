"""Steps that the torch backend computes as one give the results of the reference backend."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from loaded import loaded
from numpy.typing import NDArray

from nnrt_client import Model, OperationType
from nnrt_client.model.model import ModelTensor, parts_of
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, load_backend

pytest.importorskip("torch", reason="needs torch: `make test-torch` has it")

Expression = Callable[[Model, ModelTensor], list[ModelTensor]]
RNG = np.random.default_rng(6)
WEIGHT, BIAS = RNG.standard_normal((6, 6), np.float32), RNG.standard_normal(6, np.float32)
ROWS, PARTS = RNG.integers(0, 6, (2, 9)), RNG.random((2, 9, 1), np.float32)
ADD, MUL, DIV = OperationType.ADD, OperationType.MUL, OperationType.DIV


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = load_backend("torch", {"threads": "1"})
    yield backend
    backend.close()


def number(value: float, *dims: int) -> NDArray[np.float32]:
    return np.full(dims, value, np.float32)


def twice_phi(model: Model, x: ModelTensor, *dims: int) -> ModelTensor:
    inner = model.apply(OperationType.ERF, model.apply(DIV, x, number(math.sqrt(2), *dims)))
    return model.apply(ADD, number(1), inner)


def product(model: Model, x: ModelTensor, **attrs: Any) -> list[ModelTensor]:
    return [model.apply(ADD, BIAS, model.apply(OperationType.MATMUL, x, WEIGHT, **attrs))]


def gelu(model: Model, x: ModelTensor) -> list[ModelTensor]:
    return [model.apply(MUL, model.apply(MUL, x, twice_phi(model, x)), number(0.5))]


def gelu_of_half(model: Model, x: ModelTensor) -> list[ModelTensor]:
    return [model.apply(MUL, model.apply(MUL, x, number(0.5)), twice_phi(model, x))]


def weighted(model: Model, x: ModelTensor, at: int) -> ModelTensor:
    return model.apply(MUL, model.apply(OperationType.GATHER, x, ROWS[at], np.array(1)), PARTS[at])


def blend(model: Model, x: ModelTensor) -> list[ModelTensor]:
    return [model.apply(ADD, weighted(model, x, 0), weighted(model, x, 1))]


def read_inside(model: Model, x: ModelTensor) -> list[ModelTensor]:
    """The product without the bias is an output, too."""
    inner = model.apply(OperationType.MATMUL, x, WEIGHT)
    return [inner, model.apply(ADD, inner, BIAS)]


def read_between(model: Model, x: ModelTensor) -> list[ModelTensor]:
    """Another node reads the tensor before the last of these nodes does."""
    x = model.apply(OperationType.ABS, x)
    first, other, second = weighted(model, x, 0), model.apply(OperationType.NEG, x), weighted(model, x, 1)
    return [other, model.apply(ADD, first, second)]


def of_more_dimensions(model: Model, x: ModelTensor) -> list[ModelTensor]:
    """A number of a higher rank makes the result one of that rank."""
    return [model.apply(MUL, model.apply(MUL, x, twice_phi(model, x, 1, 1, 1, 1)), number(0.5))]


def another_number(model: Model, x: ModelTensor) -> list[ModelTensor]:
    return [model.apply(MUL, model.apply(MUL, x, twice_phi(model, x)), number(0.4))]


@pytest.mark.parametrize(
    ("expression", "steps"),
    [
        (product, 1),
        (lambda model, x: product(model, x, transpose_b=True), 1),
        (gelu, 1),
        (gelu_of_half, 1),
        (blend, 1),
        (read_inside, 2),
        (read_between, 7),
        (of_more_dimensions, 5),
        (another_number, 5),
    ],
)
def test_results_stay(expression: Expression, steps: int, backend: Backend) -> None:
    """Only what nobody reads is left out, and a profile names the first node of what is computed as one."""
    model = Model()
    x = model.input((2, 6, 6), name="x")
    model.specify_inputs_and_outputs([x], expression(model, x))
    model.finish()
    given = RNG.standard_normal((2, 6, 6), np.float32)
    given[0, 0, :2] = np.nan, np.inf
    graph, cancellation = parts_of(model).graph, Cancellation()
    fused, plain = (each.prepare(graph, ModelConfig(), lambda _: None) for each in (backend, loaded("reference")))
    outputs, times = fused.profile([given], cancellation)
    pairs: Any = zip(outputs, plain.run([given], cancellation), strict=True)
    for output, wanted in pairs:
        np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)
    assert len(times) == steps
    assert times[0].operator == graph.nodes[graph.order[0]].type.name


def test_shapes_known_in_a_run(backend: Backend) -> None:
    """Each kind of run has its own steps; a run without rows has no results to compute."""
    model = Model()
    x = model.input((-1, 6), name="x")
    model.specify_inputs_and_outputs([x], gelu(model, *product(model, x)))
    model.finish()
    fused = backend.prepare(parts_of(model).graph, ModelConfig(), lambda _: None)
    for rows, steps in ((3, 2), (0, 7), (2, 2)):
        (result,), times = fused.profile([np.zeros((rows, 6), np.float32)], Cancellation())
        assert (result.shape, len(times)) == ((rows, 6), steps)
