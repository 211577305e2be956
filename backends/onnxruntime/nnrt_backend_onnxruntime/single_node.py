"""A node of a graph as a graph of its own, to ask about it."""

import hashlib
from typing import Any

from nnrt_hdi.graph import Graph


def key_of(graph: Graph, index: int) -> bytes:
    """A digest of what the answer about a node depends on, which may be long: a client says it."""
    node = graph.nodes[index]
    tensors = [_tensor_key(graph, at) for at in (*node.inputs, *node.outputs)]
    decides = node.type, sorted(node.attrs.items()), tensors, len(node.inputs)
    return hashlib.sha256(repr(decides).encode(errors="surrogatepass")).digest()


def _tensor_key(graph: Graph, at: int) -> tuple[Any, ...]:
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
