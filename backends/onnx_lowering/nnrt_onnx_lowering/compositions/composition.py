"""Compositions, what tensors are made of, and the table of patterns.

    @pattern(NodeType.SHAPE)
    def shape_of_elements(sources: Sources, node: Node) -> Composition | None:
        ...

A pattern gets a node of its type, and returns what this one and those in front of it compute together, or None.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace

from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.compositions.resizing import Resizing, Resizings
from nnrt_onnx_lowering.engine import IntegerTypes, Operator
from nnrt_onnx_lowering.value import AnyArray, Value

# Of no node's operands, and in place of these.
MISSING = -1
NONE = (MISSING, MISSING, MISSING)
NOTHING = ActivationType.NO_ACTIVATION

Make = Callable[[Onnx, Sequence[Value]], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Composition:
    """The tensors that it computes, of which others, and how; and the operator that an engine has to take for it, if
    that is one which the nodes could do without."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    make: Make
    needs: Operator | None = None


class Sources:
    """The tensors of a graph, and what they are made of."""

    def __init__(self, graph: Graph, integers: IntegerTypes) -> None:
        self.graph = graph
        # The types of 8 bits in which quantized tensors are.
        self.integers = integers
        self.nodes = {tensor: at for at, node in enumerate(graph.nodes) for tensor in node.outputs}

    def node(self, tensor: int, *types: NodeType) -> Node | None:
        """The node that gives a tensor, if it is of such a type."""
        at = self.nodes.get(tensor)
        node = None if at is None else self.graph.nodes[at]
        return node if node is not None and node.type in types else None

    def operands(self, tensor: int, node_type: NodeType) -> tuple[int, ...]:
        """The operands of the node that gives a tensor, if it is of this type and has no activation; else NONE."""
        node = self.node(tensor, node_type)
        if node is None or node.attrs.get("activation_type", NOTHING) != NOTHING:
            return NONE
        return node.inputs

    def is_number(self, tensor: int, number: float) -> bool:
        """It is a constant of one number."""
        data = self.data(tensor)
        return data is not None and data.size == 1 and data.item() == number

    def data(self, tensor: int) -> AnyArray | None:
        """The elements of a constant."""
        constant = self.graph.constants.get(tensor)
        return constant.data if constant is not None else None

    def attrs(self, node: Node) -> SimpleNamespace:
        """All attributes of a node, those that it leaves out too."""
        return SimpleNamespace(**OPERATORS[node.type].bind(node.attrs))

    def have_type(self, data_type: DataType, *tensors: int) -> bool:
        """There are such tensors, all of this type."""
        return MISSING not in tensors and all(self.graph.tensors[at].data_type is data_type for at in tensors)

    def as_it_came(self, x: int) -> int:
        """The quantized tensor that x is made of; if there is none, x."""
        elements = self.operands(x, NodeType.QUANT_DTYPE_CAST_V2)[0]
        return x if elements == MISSING else elements

    def resizing(self, y: int) -> Resizing | None:
        """How y comes about from an image, if it is one of a new size that only a run knows."""
        return self._resizings.of(y) if self._resizings else None

    @cached_property
    def _resizings(self) -> Resizings | None:
        # Only positions that a run counts tell of sizes that it knows.
        is_counted = any(node.type is NodeType.TOPK_FUSION for node in self.graph.nodes)
        return Resizings(self.graph) if is_counted else None


Pattern = Callable[[Sources, Node], Composition | None]
PATTERNS: dict[NodeType, Pattern] = {}


def pattern(*node_types: NodeType) -> Callable[[Pattern], Pattern]:
    """Register the pattern whose last node is of one of these types."""

    def register(function: Pattern) -> Pattern:
        for node_type in node_types:
            if node_type in PATTERNS:
                raise TypeError(f"{node_type.name} ends two patterns")
            PATTERNS[node_type] = function
        return function

    return register
