"""Small models with exactly known answers; the canary runs the first model that its device supports."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.errors import NnrtError, Unsupported
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import Array, QuantParam, TensorSpec

_ROWS = 64
# By data type: number of features, largest input, largest bias. Weights are -1, 0 and 1, so that the data type
# represents every partial sum exactly, in any order of summation.
_SIZES = {DataType.FLOAT32: (256, 7, 256), DataType.FLOAT16: (256, 7, 256), DataType.INT8: (64, 1, 63)}
_ELEMENTWISE = (DataType.FLOAT32, DataType.FLOAT16, DataType.INT32, DataType.INT8)
# Quantization in which each number represents itself.
_QUANT = {DataType.INT8: (QuantParam(1.0, 0),)}
# The models are the same at each start, so that models compiled earlier can be reused.
_SEED = 1


@dataclass(frozen=True, slots=True)
class CanaryModel:
    """Model with one input and one output, both integers of any data type, computed without rounding errors."""

    graph: Graph
    # Inputs lie in [-most, most].
    most: int
    answer: Callable[[Array], Array]

    def question(self, random: np.random.Generator) -> tuple[Array, Array]:
        """Return a random input and the right output."""
        (spec,) = self.graph.input_specs
        given = random.integers(-self.most, self.most, spec.shape, endpoint=True).astype(spec.numpy_dtype)
        return given, self.answer(given)


def candidates() -> Iterator[CanaryModel]:
    """Yield the models: first dense layers, which exercise the device most, then arithmetic."""
    yield from map(_dense, _SIZES)
    yield from map(_arithmetic, _ELEMENTWISE)


def first_supported(check: Callable[[Graph], Graph]) -> CanaryModel:
    """Return the first model that `check` accepts, with the graph it returns. Raises Unsupported if it accepts none."""
    reasons = []
    for model in candidates():
        try:
            return CanaryModel(check(model.graph), model.most, model.answer)
        except NnrtError as error:
            reasons.append(f"{model.graph.name}: {error}")
    raise Unsupported(
        f"the device runs none of the models that it could be tried with ({'; '.join(reasons)}); leave it out",
        place="--canary",
    )


def _dense(data_type: DataType) -> CanaryModel:
    """Return a model of y = max(0, x W^T + b)."""
    features, most, most_bias = _SIZES[data_type]
    random = np.random.default_rng(_SEED)
    weight = random.integers(-1, 1, (features, features), endpoint=True)
    bias = random.integers(-most_bias, most_bias, features, endpoint=True)
    quant = _QUANT.get(data_type, ())
    shape = (_ROWS, features)
    tensors = (
        TensorSpec(data_type, shape, quant=quant, name="x"),
        TensorSpec(data_type, (features, features), quant=quant, name="weight"),
        TensorSpec(DataType.INT32 if quant else data_type, (features,), name="bias"),
        TensorSpec(data_type, shape, quant=quant, name="y"),
    )
    node = Node(NodeType.FULL_CONNECTION, (0, 1, 2), (3,), {"activation_type": ActivationType.RELU, "has_bias": True})
    graph = _graph(f"dense {data_type.name}", tensors, (node,), {1: weight, 2: bias})

    def answer(given: Array) -> Array:
        product = given.astype(np.float32) @ weight.T.astype(np.float32) + bias
        positive: Array = np.maximum(product, 0)
        return positive.astype(given.dtype)

    return CanaryModel(graph, most, answer)


def _arithmetic(data_type: DataType) -> CanaryModel:
    """Return a model of y = x * w + b, elementwise."""
    most, shape, quant = 7, (_ROWS, _ROWS), _QUANT.get(data_type, ())
    random = np.random.default_rng(_SEED)
    factor, summand = random.integers(-most, most, (2, *shape), endpoint=True)
    tensors = tuple(TensorSpec(data_type, shape, quant=quant, name=name) for name in ("x", "w", "b", "product", "y"))
    nodes = (Node(NodeType.MUL_FUSION, (0, 1), (3,)), Node(NodeType.ADD_FUSION, (3, 2), (4,)))
    graph = _graph(f"arithmetic {data_type.name}", tensors, nodes, {1: factor, 2: summand})
    return CanaryModel(graph, most, lambda given: (given.astype(np.int64) * factor + summand).astype(given.dtype))


def _graph(name: str, tensors: tuple[TensorSpec, ...], nodes: tuple[Node, ...], constants: dict[int, Array]) -> Graph:
    data = {index: Constant.of(value.astype(tensors[index].numpy_dtype)) for index, value in constants.items()}
    return Graph(tensors, nodes, (0,), (len(tensors) - 1,), data, name)
