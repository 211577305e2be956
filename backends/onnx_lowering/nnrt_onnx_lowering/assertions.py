"""ASSERT nodes of a graph, which ONNX lacks.

The ONNX model has the operands of these nodes as additional outputs, and the backend checks them after each run.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import Self

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import Array, TensorSpec

# The most elements that a failed assertion shows, so that messages stay short.
MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Assertion:
    """ASSERT node: its place in the graph, its operands, and how many elements of its data a message shows."""

    place: str
    tensors: tuple[int, ...]
    data: TensorSpec
    shown: int

    def check(self, condition: Array, data: Array) -> None:
        """Raise OperationFailed if an element of the condition is false."""
        if np.all(condition):
            return
        shown = data.reshape(-1)[: self.shown]
        spec = self.data.with_shape(data.shape)
        begins = f"; data {spec} begins with {', '.join(map(str, shown))}" if shown.size else ""
        false = condition.size - np.count_nonzero(condition)
        raise OperationFailed(f"{false} of {condition.size} elements of condition are false{begins}", place=self.place)


@dataclass(frozen=True, slots=True)
class Assertions:
    """Assertions of a graph in execution order, and the number of outputs that the graph itself has."""

    outputs: int
    assertions: tuple[Assertion, ...]

    @classmethod
    def from_graph(cls, graph: Graph) -> Self:
        found = []
        for index in graph.order:
            node = graph.nodes[index]
            if node.type is NodeType.ASSERT:
                shown = min(OPERATORS[node.type].bind(node.attrs)["summarize"], MOST_SHOWN)
                found.append(Assertion(graph.place(index), node.inputs, graph.tensors[node.inputs[1]], shown))
        return cls(len(graph.outputs), tuple(found))

    def __bool__(self) -> bool:
        """Return whether the graph has assertions."""
        return bool(self.assertions)

    @property
    def tensors(self) -> tuple[int, ...]:
        """Tensors that are additional outputs of the model: condition and data of each assertion."""
        return tuple(at for assertion in self.assertions for at in assertion.tensors)

    def checked(self, results: Sequence[Array]) -> list[Array]:
        """Check the assertions and return the graph's outputs.

        Args:
            results: All outputs of the model: the graph's, then those for the assertions.

        Raises:
            OperationFailed: An assertion fails.
        """
        looked_at = iter(results[self.outputs :])
        for assertion in self.assertions:
            assertion.check(next(looked_at), next(looked_at))
        return list(results[: self.outputs])
