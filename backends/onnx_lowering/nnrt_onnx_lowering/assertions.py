"""The ASSERT nodes of a graph, which ONNX lacks: what they look at becomes outputs, and is looked at behind a run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from typing_extensions import Self

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import Array, TensorSpec

# Most elements that a failed assertion shows: messages are short.
MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Assertion:
    """A node, the condition and the data that it looks at, and how many elements of these a message shows."""

    place: str
    tensors: tuple[int, ...]
    data: TensorSpec
    shown: int

    def check(self, condition: Array, data: Array) -> None:
        """Raise OperationFailed where an element of the condition is false."""
        if np.all(condition):
            return
        shown = data.reshape(-1)[: self.shown]
        spec = self.data.with_shape(data.shape)
        begins = f"; data {spec} begins with {', '.join(map(str, shown))}" if shown.size else ""
        false = condition.size - np.count_nonzero(condition)
        raise OperationFailed(f"{false} of {condition.size} elements of condition are false{begins}", place=self.place)


@dataclass(frozen=True, slots=True)
class Assertions:
    """The assertions of a graph with so many outputs, in the order in which they are computed."""

    outputs: int
    assertions: tuple[Assertion, ...]

    @classmethod
    def of(cls, graph: Graph) -> Self:
        found = []
        for index in graph.order:
            node = graph.nodes[index]
            if node.type is NodeType.ASSERT:
                shown = min(OPERATORS[node.type].bind(node.attrs)["summarize"], MOST_SHOWN)
                found.append(Assertion(graph.place(index), node.inputs, graph.tensors[node.inputs[1]], shown))
        return cls(len(graph.outputs), tuple(found))

    def __bool__(self) -> bool:
        """Tell if there are any."""
        return bool(self.assertions)

    @property
    def tensors(self) -> tuple[int, ...]:
        """The tensors of the graph that are outputs of the model behind those of the graph."""
        return tuple(at for assertion in self.assertions for at in assertion.tensors)

    def checked(self, results: Sequence[Array]) -> list[Array]:
        """Of all that a model gives the outputs of its graph. Raises OperationFailed where an assertion fails."""
        looked_at = iter(results[self.outputs :])
        for assertion in self.assertions:
            assertion.check(next(looked_at), next(looked_at))
        return list(results[: self.outputs])
