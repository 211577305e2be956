"""Compositions: groups of nodes that are one operator in ONNX, and that NNRt has no operator for.

Where ONNX has one operator, the importer writes several NNRt nodes. An engine has a fast kernel for the one operator,
or fuses it with its neighbours, so the lowering turns the group back into it. It drops the nodes inside the group that
no other node reads.
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
from nnrt_onnx_lowering.data_types import computation_type
from nnrt_onnx_lowering.engine import Engine, Operator

__all__ = ["Composition", "Compositions"]


class Compositions:
    """Compositions of a graph, by the nodes that compute their outputs, and the nodes that the model still needs."""

    def __init__(self, graph: Graph, outputs: Sequence[int], engine: Engine) -> None:
        self._engine = engine
        self._sources = Sources(graph, engine.integers)
        self.by_node: dict[int, Composition] = {}
        for composition in self._find_all():
            for tensor in composition.outputs:
                self.by_node.setdefault(self._sources.nodes[tensor], composition)
        self.needed = self._needed_nodes(outputs)

    def _find_all(self) -> Iterator[Composition]:
        for node in self._sources.graph.nodes:
            pattern = PATTERNS.get(node.type)
            composition = pattern(self._sources, node) if pattern else None
            if composition is not None and (composition.needs is None or self._is_supported(composition.needs)):
                yield composition

    def _is_supported(self, operator: Operator) -> bool:
        """Return whether the engine takes an operator, with these operands or with wider ones."""
        leading = operator.operands[0]
        assert leading is not None
        try:
            computation_type(self._engine, operator, leading)
        except Unsupported:
            return False
        return True

    def _needed_nodes(self, outputs: Sequence[int]) -> frozenset[int]:
        """Return the nodes that these outputs depend on."""
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
