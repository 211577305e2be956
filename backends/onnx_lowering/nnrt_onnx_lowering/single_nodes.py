"""Graphs of single nodes from another graph, to test whether an engine supports these nodes."""

import hashlib
from collections.abc import Iterable
from typing import Any

from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.tensor import TensorSpec


def support_key(graph: Graph, index: int) -> bytes:
    """Return a digest of the node's properties on which its support depends. The properties themselves may be large."""
    node = graph.nodes[index]
    tensors = [_tensor_key(graph, at) for at in (*node.inputs, *node.outputs)]
    decides = node.type, sorted(node.attrs.items()), tensors, len(node.inputs)
    return hashlib.sha256(repr(decides).encode(errors="surrogatepass")).digest()


def _tensor_key(graph: Graph, at: int) -> tuple[Any, ...]:
    spec, constant = graph.tensors[at], graph.constants.get(at)
    digest = constant.sha256 if constant and constant.shape_value is not None else b""
    quant = [(param.scale, param.zero_point, param.num_bits) for param in spec.quant]
    return int(spec.data_type), spec.shape, int(spec.format), quant, digest


def single_nodes(graph: Graph, indices: Iterable[int]) -> Graph:
    """Return a graph of some nodes, none of which reads from another.

    Their operands become its inputs; small constants stay constants.
    """
    tensors: list[TensorSpec] = []
    nodes: list[Node] = []
    inputs: list[int] = []
    constants: dict[int, Constant] = {}
    for index in indices:
        node = graph.nodes[index]
        used = {at: len(tensors) + number for number, at in enumerate(dict.fromkeys((*node.inputs, *node.outputs)))}
        tensors += [graph.tensors[at] for at in used]
        for at in dict.fromkeys(node.inputs):
            if (constant := graph.constants.get(at)) and constant.shape_value is not None:
                constants[used[at]] = constant
            else:
                inputs.append(used[at])
        operands, results = (tuple(used[at] for at in side) for side in (node.inputs, node.outputs))
        nodes.append(Node(node.type, operands, results, node.attrs, node.name))
    outputs = tuple(at for node in nodes for at in node.outputs)
    return Graph(tuple(tensors), tuple(nodes), tuple(inputs), outputs, constants)
