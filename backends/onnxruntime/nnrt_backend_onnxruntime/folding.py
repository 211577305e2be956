"""Estimate of how much of a graph follows from its constants alone, which ONNX Runtime computes while it compiles."""

import math

from nnrt_backend_onnxruntime.programs.analysis import MOST_FOLDED_BYTES, MOST_FOLDED_PRODUCTS, MOST_FOLDED_SHARE
from nnrt_hdi.enums import NodeType
from nnrt_hdi.graph import Graph, Node

# Operators that multiply each element of one operand with many of another.
_PRODUCTS = {
    NodeType.CONV2D_FUSION,
    NodeType.CONV2D_TRANSPOSE_FUSION,
    NodeType.FULL_CONNECTION,
    NodeType.LSTM,
    NodeType.MATMUL_FUSION,
}


def folds_little(graph: Graph) -> bool:
    """Return whether so little follows from constants that ONNX Runtime should compute it once, while it compiles.

    A few bytes of constants can cause any amount of computation. The caller has inferred the graph's shapes.
    """
    derived = set(graph.constants)
    bytes_left = MOST_FOLDED_BYTES + MOST_FOLDED_SHARE * sum(entry.size_bytes for entry in graph.constants.values())
    steps_left = float(MOST_FOLDED_PRODUCTS)
    for index in graph.order:
        node = graph.nodes[index]
        if not derived.issuperset(node.inputs):
            continue
        derived.update(node.outputs)
        made = [graph.tensors[at] for at in node.outputs]
        if any(spec.is_dynamic for spec in made):
            return False
        bytes_left -= sum(spec.byte_size for spec in made)
        steps_left -= _steps(graph, node)
        if bytes_left < 0 or steps_left < 0:
            return False
    return True


def _steps(graph: Graph, node: Node) -> float:
    """Estimate the number of additions or multiplications.

    For [m, k] by [k, n] it is mkn, which is the square root of the product of the sizes mk, kn and mn.
    """
    results = sum(math.prod(graph.tensors[at].shape) for at in node.outputs)
    operands = sorted(math.prod(graph.tensors[at].shape) for at in node.inputs)
    if node.type in _PRODUCTS and len(operands) > 1:
        return math.sqrt(float(operands[-1]) * operands[-2] * results)
    return float(results + sum(operands))
