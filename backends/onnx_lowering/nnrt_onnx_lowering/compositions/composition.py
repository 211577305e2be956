"""Compositions, the producers of tensors, and the table of patterns.

    @pattern(NodeType.SHAPE)
    def shape_of_elements(sources: Sources, node: Node) -> Composition | None:
        ...

A pattern gets a node of its type. It returns the composition that ends with this node, or None where there is none.
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

# Index that stands for a missing tensor. NO_OPERANDS has it for each operand.
MISSING = -1
NO_OPERANDS = (MISSING, MISSING, MISSING)
NOTHING = ActivationType.NO_ACTIVATION

Make = Callable[[Onnx, Sequence[Value]], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Composition:
    """Outputs and inputs of a group of nodes, and the function that adds the one ONNX operator for it.

    `needs` is the operator that the engine has to support. None means that the composition is always used.
    """

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    make: Make
    needs: Operator | None = None


class Sources:
    """Tensors of a graph and the nodes that compute them."""

    def __init__(self, graph: Graph, integers: IntegerTypes) -> None:
        self.graph = graph
        # The 8-bit types of quantized tensors in the graph.
        self.integers = integers
        self.nodes = {tensor: at for at, node in enumerate(graph.nodes) for tensor in node.outputs}

    def node(self, tensor: int, *types: NodeType) -> Node | None:
        """Return the node that computes a tensor if it has one of these types, else None."""
        at = self.nodes.get(tensor)
        node = None if at is None else self.graph.nodes[at]
        return node if node is not None and node.type in types else None

    def operands(self, tensor: int, node_type: NodeType) -> tuple[int, ...]:
        """Return the operands of the node that computes a tensor; NO_OPERANDS for other types or a fused activation."""
        node = self.node(tensor, node_type)
        if node is None or node.attrs.get("activation_type", NOTHING) != NOTHING:
            return NO_OPERANDS
        return node.inputs

    def is_number(self, tensor: int, number: float) -> bool:
        """Return whether a tensor is a constant with this number as its only element."""
        data = self.data(tensor)
        return data is not None and data.size == 1 and data.item() == number

    def data(self, tensor: int) -> AnyArray | None:
        """Return the elements of a constant, or None for other tensors."""
        constant = self.graph.constants.get(tensor)
        return constant.data if constant is not None else None

    def attrs(self, node: Node) -> SimpleNamespace:
        """Return all attributes of a node, with defaults for those that it leaves out."""
        return SimpleNamespace(**OPERATORS[node.type].bind(node.attrs))

    def have_type(self, data_type: DataType, *tensors: int) -> bool:
        """Return whether all these tensors exist and have this data type."""
        return MISSING not in tensors and all(self.graph.tensors[at].data_type is data_type for at in tensors)

    def quantized_source(self, x: int) -> int:
        """Return the quantized tensor that x is dequantized from, or x itself if it isn't dequantized."""
        elements = self.operands(x, NodeType.QUANT_DTYPE_CAST_V2)[0]
        return x if elements == MISSING else elements

    def resizing(self, y: int) -> Resizing | None:
        """Return the resizing whose result is y, if the new size is known only in a run."""
        return self._resizings.find(y) if self._resizings else None

    @cached_property
    def _resizings(self) -> Resizings | None:
        # The importer counts positions with TopK, and only where the new size is known in a run.
        is_counted = any(node.type is NodeType.TOPK_FUSION for node in self.graph.nodes)
        return Resizings(self.graph) if is_counted else None


Pattern = Callable[[Sources, Node], Composition | None]
PATTERNS: dict[NodeType, Pattern] = {}


def pattern(*node_types: NodeType) -> Callable[[Pattern], Pattern]:
    """Register the pattern whose last node has one of these types."""

    def register(function: Pattern) -> Pattern:
        for node_type in node_types:
            if node_type in PATTERNS:
                raise TypeError(f"{node_type.name} ends two patterns")
            PATTERNS[node_type] = function
        return function

    return register
