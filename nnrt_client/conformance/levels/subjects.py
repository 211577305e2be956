"""Small models with which the checks test a device, limited to those that it supports.

All of them compute small integers in any data type, so that no answer has a rounding error.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from nnrt_client.conformance.levels.check import NotOffered
from nnrt_client.conformance.target import Breach, Connection, Prepared, first_reason
from nnrt_hdi.backend import ModelConfig
from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import UNKNOWN_DIM, Array, TensorSpec

ROWS, COLUMNS = 4, 64
# Elements of inputs and constants lie in -_MOST.._MOST.
_MOST = 7
_SEED = 17


@dataclass(frozen=True, slots=True)
class Subject:
    """Model with one input and one output of shape [rows, 64]; `answer` computes the right output."""

    name: str
    graph: Graph
    answer: Callable[[Array], Array]

    def question(self, seed: int, rows: int = ROWS) -> Array:
        """Return a random input with this number of rows."""
        random = np.random.default_rng(seed)
        (spec,) = self.graph.input_specs
        return random.integers(-_MOST, _MOST, (rows, COLUMNS), endpoint=True).astype(spec.numpy_dtype)

    def with_rows(self, rows: int) -> "Subject":
        """Return the model with another number of rows; -1 leaves it to the run."""
        (given,), (made,) = self.graph.inputs, self.graph.outputs
        tensors = [
            spec.with_shape((rows, *spec.shape[1:])) if index in (given, made) else spec
            for index, spec in enumerate(self.graph.tensors)
        ]
        return replace(self, graph=self.graph.with_tensors(tensors))

    @property
    def dynamic(self) -> "Subject":
        """The model with any number of rows."""
        return self.with_rows(UNKNOWN_DIM)


def _binary(
    node_type: NodeType, compute: Callable[[Array, Array], Array], data_type: DataType, name: str, seed: int
) -> Subject:
    numbers = np.random.default_rng(seed).integers(-_MOST, _MOST, COLUMNS, endpoint=True)
    x = TensorSpec(data_type, (ROWS, COLUMNS), name="x")
    constant = numbers.astype(x.numpy_dtype)
    tensors = (x, TensorSpec(data_type, (COLUMNS,), name="c"), replace(x, name="y"))
    graph = Graph(tensors, (Node(node_type, (0, 1), (2,)),), (0,), (2,), {1: Constant.of(constant)}, name)
    return Subject(name, graph, lambda given: compute(given, constant))


def _product(seed: int) -> Subject:
    weight = np.random.default_rng(seed).integers(-_MOST, _MOST, (COLUMNS, COLUMNS), endpoint=True).astype("f4")
    x = TensorSpec(DataType.FLOAT32, (ROWS, COLUMNS), name="x")
    tensors = (x, TensorSpec(DataType.FLOAT32, weight.shape, name="w"), replace(x, name="y"))
    node = Node(NodeType.MATMUL_FUSION, (0, 1), (2,))
    graph = Graph(tensors, (node,), (0,), (2,), {1: Constant.of(weight)}, "product")
    return Subject("product", graph, lambda given: given @ weight)


def _rectified() -> Subject:
    x = TensorSpec(DataType.FLOAT32, (ROWS, COLUMNS), name="x")
    node = Node(NodeType.ACTIVATION, (0,), (1,), {"activation_type": ActivationType.RELU})
    graph = Graph((x, replace(x, name="y")), (node,), (0,), (1,), name="rectified")
    return Subject("rectified", graph, lambda given: np.maximum(given, given.dtype.type(0)))


def _moved(seed: int) -> Subject:
    """Return a model with two constants of equal size."""
    by, to = np.random.default_rng(seed).integers(-_MOST, _MOST, (2, COLUMNS), endpoint=True).astype("f4")
    x, vector = TensorSpec(DataType.FLOAT32, (ROWS, COLUMNS)), TensorSpec(DataType.FLOAT32, (COLUMNS,))
    nodes = Node(NodeType.MUL_FUSION, (0, 1), (3,)), Node(NodeType.ADD_FUSION, (3, 2), (4,))
    tensors = (replace(x, name="x"), vector, vector, x, replace(x, name="y"))
    graph = Graph(tensors, nodes, (0,), (4,), {1: Constant.of(by), 2: Constant.of(to)}, "moved")
    return Subject("moved", graph, lambda given: given * by + to)


def candidates(seed: int = _SEED) -> Iterator[Subject]:
    """Yield the models, those with constants first; the seed determines the constants."""
    yield _product(seed)
    yield _binary(NodeType.ADD_FUSION, np.add, DataType.FLOAT32, "sum", seed)
    yield _binary(NodeType.MUL_FUSION, np.multiply, DataType.FLOAT32, "scaled", seed)
    yield _binary(NodeType.ADD_FUSION, np.add, DataType.INT32, "integers", seed)
    yield _binary(NodeType.ADD_FUSION, np.add, DataType.FLOAT16, "halves", seed)
    yield _rectified()


def models_of_equal_size(connection: Connection, count: int) -> list[Subject]:
    """Return `count` variants of each supported model with constants, which differ only in the constants.

    Raises NotOffered if the device supports no such model.
    """
    return [
        subject
        for seed in range(count)
        for subject in _supported_models(connection, [*candidates(seed), _moved(seed)])
        if subject.graph.constants
    ]


def outer_sum(rows: int, columns: int) -> Graph:
    """Return a graph that adds [1, columns] and [rows, 1]; -1 leaves a size to the run."""
    row, column = TensorSpec(DataType.FLOAT32, (1, columns)), TensorSpec(DataType.FLOAT32, (rows, 1))
    result = TensorSpec(DataType.FLOAT32, (rows, columns))
    return Graph((row, column, result), (Node(NodeType.ADD_FUSION, (0, 1), (2,)),), (0, 1), (2,), name="outer sum")


def subjects(connection: Connection) -> list[Subject]:
    """Return the models that the device supports. Raises NotOffered if there are none."""
    return _supported_models(connection, candidates())


def _supported_models(connection: Connection, models: Iterable[Subject]) -> list[Subject]:
    taken = []
    reasons = []
    for subject in models:
        reason = first_reason(connection.supported(subject.graph))
        if reason:
            reasons.append(f"{subject.name}: {reason}")
        else:
            taken.append(subject)
    if not taken:
        raise NotOffered(f"the device takes none of the small models to try it with ({'; '.join(reasons)})")
    return taken


def prepared_subject(connection: Connection, config: ModelConfig | None = None) -> tuple[Subject, Prepared]:
    """Prepare the first model that the device supports."""
    subject = subjects(connection)[0]
    return subject, connection.prepare(subject.graph, config)


def require_answer(subject: Subject, given: Array, outputs: list[Array], when: str) -> None:
    """Raise Breach unless the output equals the right one in every element."""
    wanted = subject.answer(given)
    if len(outputs) != 1:
        raise Breach(f"the model {subject.name!r} gives {len(outputs)} outputs {when}; it has 1")
    (output,) = outputs
    if (output.dtype, output.shape) != (wanted.dtype, wanted.shape):
        raise Breach(
            f"the model {subject.name!r} gives {output.dtype}{list(output.shape)} {when};"
            f" {wanted.dtype}{list(wanted.shape)} is right"
        )
    if not np.array_equal(output, wanted):
        at = tuple(int(index) for index in np.argwhere(output != wanted)[0])
        raise Breach(f"the model {subject.name!r} gives {output[at]} at {list(at)} {when}; {wanted[at]} is right")
