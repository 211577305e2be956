"""Builder for graphs of several nodes, and for cases with answers worked out by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.case import Case, Level, Mark
from nnrt_client.conformance.tolerance import SUMS_IN_ANOTHER_ORDER, Tolerance
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import QuantParam, TensorSpec, data_type_of

AnyArray = NDArray[Any]
# Inputs and right outputs of a run.
HandMade = tuple[Sequence[AnyArray], Sequence[AnyArray]]


@dataclass(eq=False)
class Draft:
    """Graph under construction. Its methods take and return tensor indices. A draft with a name names its nodes too."""

    name: str = ""
    tensors: list[TensorSpec] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    constants: dict[int, AnyArray] = field(default_factory=dict)

    def float_input(self, *shape: int) -> int:
        """Add an input of FLOAT32."""
        return self.input_of(TensorSpec(DataType.FLOAT32, shape))

    def input_of(self, spec: TensorSpec) -> int:
        """Add an input with this spec."""
        self.inputs.append(self._tensor(spec))
        return self.inputs[-1]

    def constant(self, array: AnyArray, quant: Sequence[QuantParam] = ()) -> int:
        """Add a constant without a layout."""
        at = self._tensor(TensorSpec(data_type_of(array.dtype), array.shape, quant=tuple(quant)))
        self.constants[at] = np.ascontiguousarray(array)
        return at

    def node(self, node_type: NodeType, *operands: int, declared: tuple[TensorSpec, ...] = (), **attrs: Any) -> int:
        """Add a node and return its first output."""
        return self.outputs_of(node_type, operands, declared, attrs)[0]

    def outputs_of(
        self,
        node_type: NodeType,
        operands: tuple[int, ...],
        declared: tuple[TensorSpec, ...],
        attrs: Mapping[str, Any],
    ) -> tuple[int, ...]:
        """Add a node and return all its outputs."""
        operator, pairs = OPERATORS[node_type], [(self.tensors[at], self.constants.get(at)) for at in operands]
        results = tuple(self._tensor(spec) for spec in operator.infer(pairs, operator.bind(attrs), declared))
        name = f"{self.name}/{len(self.nodes)}" if self.name else ""
        self.nodes.append(Node(node_type, operands, results, attrs, name))
        return results

    def graph(self, *outputs: int) -> Graph:
        """Return the graph with these outputs."""
        constants = {at: Constant.of(array) for at, array in self.constants.items()}
        return Graph(tuple(self.tensors), tuple(self.nodes), tuple(self.inputs), outputs, constants, self.name)

    def _tensor(self, spec: TensorSpec) -> int:
        self.tensors.append(spec)
        return len(self.tensors) - 1


def case_by_hand(
    level: Level, name: str, graph: Graph, *runs: HandMade, tolerance: Tolerance = SUMS_IN_ANOTHER_ORDER
) -> Case:
    """Return a quick case of a graph; its data type is that of the first input."""
    marks = {Mark.QUICK}
    if any(spec.is_dynamic for spec in graph.input_specs):
        marks.add(Mark.DYNAMIC)
    return Case(
        f"{level.value}/{name}",
        level,
        name.partition("-")[0],
        tuple(dict.fromkeys(node.type for node in graph.nodes)),
        graph.input_specs[0].data_type,
        partial(_made, graph, runs),
        name,
        tolerance,
        marks=frozenset(marks),
        by_hand=tuple(tuple(outputs) for _, outputs in runs),
    )


def _made(graph: Graph, runs: Sequence[HandMade]) -> tuple[Graph, list[Sequence[AnyArray]]]:
    return graph, [inputs for inputs, _ in runs]
