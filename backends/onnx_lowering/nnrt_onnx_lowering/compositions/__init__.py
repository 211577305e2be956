"""Nodes that together are one operator of ONNX, which NNRt does not have.

What ONNX says with one operator takes NNRt several, as the importer writes them. An engine has a fast kernel for the
one, or fuses it with its neighbours, so it is lowered as that one. A node in between that nobody else reads is not
lowered at all.
"""

from collections.abc import Iterator, Sequence

from nnrt_hdi.errors import Unsupported
from nnrt_hdi.graph import Graph
from nnrt_onnx_lowering.compositions import (  # noqa: F401  (each module registers its patterns)
    convolutions,
    images,
    products,
    quantization,
    sizes,
)
from nnrt_onnx_lowering.compositions.composition import PATTERNS, Composition, Sources
from nnrt_onnx_lowering.data_types import computed_in
from nnrt_onnx_lowering.engine import Engine, Operator

__all__ = ["Composition", "Compositions"]


class Compositions:
    """The compositions of a graph by the nodes that give their outputs, and the nodes that are still needed."""

    def __init__(self, graph: Graph, outputs: Sequence[int], engine: Engine) -> None:
        self._engine = engine
        self._sources = Sources(graph, engine.integers)
        self.by_node: dict[int, Composition] = {}
        for composition in self._found():
            for tensor in composition.outputs:
                self.by_node.setdefault(self._sources.nodes[tensor], composition)
        self.needed = self._needed(outputs)

    def _found(self) -> Iterator[Composition]:
        for node in self._sources.graph.nodes:
            pattern = PATTERNS.get(node.type)
            composition = pattern(self._sources, node) if pattern else None
            if composition is not None and (composition.needs is None or self._is_taken(composition.needs)):
                yield composition

    def _is_taken(self, operator: Operator) -> bool:
        """The engine takes an operator, be it with operands of wider types."""
        leading = operator.operands[0]
        assert leading is not None
        try:
            computed_in(self._engine, operator, leading)
        except Unsupported:
            return False
        return True

    def _needed(self, outputs: Sequence[int]) -> frozenset[int]:
        """The nodes that outputs depend on."""
        source, nodes = self._sources.nodes, self._sources.graph.nodes
        found: set[int] = set()
        waiting = [source[tensor] for tensor in outputs if tensor in source]
        while waiting:
            at = waiting.pop()
            if at in found:
                continue
            found.add(at)
            reads = self.by_node[at].inputs if at in self.by_node else nodes[at].inputs
            waiting += [source[tensor] for tensor in reads if tensor in source]
        return frozenset(found)
