"""A node of a graph as a graph of its own, to ask about it."""

from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.graph import AttrValue, Graph
from nnrt_hdi.tensor import QuantParam, Shape

TensorKey = tuple[DataType, Shape, Format, tuple[QuantParam, ...], bytes]
Key = tuple[NodeType, tuple[tuple[str, AttrValue], ...], tuple[TensorKey, ...], int]


def key_of(graph: Graph, index: int) -> Key:
    """What the answer about a node depends on."""
    node = graph.nodes[index]
    tensors = tuple(_tensor_key(graph, at) for at in (*node.inputs, *node.outputs))
    return node.type, tuple(sorted(node.attrs.items())), tensors, len(node.inputs)


def _tensor_key(graph: Graph, at: int) -> TensorKey:
    spec, constant = graph.tensors[at], graph.constants.get(at)
    digest = constant.sha256 if constant and constant.shape_value is not None else b""
    return spec.data_type, spec.shape, spec.format, spec.quant, digest


def single_node(graph: Graph, index: int) -> Graph:
    """The graph of one node: its operands are inputs, or constants where they are so and small."""
    node = graph.nodes[index]
    used = {at: number for number, at in enumerate(dict.fromkeys((*node.inputs, *node.outputs)))}
    constants = {
        number: constant
        for at, number in used.items()
        if (constant := graph.constants.get(at)) and constant.shape_value is not None
    }
    return Graph(
        tensors=tuple(graph.tensors[at] for at in used),
        nodes=(
            type(node)(
                node.type,
                tuple(used[at] for at in node.inputs),
                tuple(used[at] for at in node.outputs),
                node.attrs,
                node.name,
            ),
        ),
        inputs=tuple(used[at] for at in dict.fromkeys(node.inputs) if used[at] not in constants),
        outputs=tuple(used[at] for at in node.outputs),
        constants=constants,
    )
