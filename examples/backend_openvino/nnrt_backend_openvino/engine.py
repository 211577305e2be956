"""Description of OpenVINO for nnrt_onnx_lowering, and the nodes that it doesn't compute as NNRt requires.

The rules were found with the conformance kit.
"""

import numpy as np
from nnrt_onnx_lowering import Engine, Operator

from nnrt_hdi.backend import Support
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.ops.operands import INDICES, INTEGERS

# Data types that OpenVINO accepts, and the types in which it computes them.
COMPUTED_IN = {
    DataType.FLOAT64: "FLOAT32",
    DataType.INT16: "FLOAT32",
    DataType.INT64: "INT32",
    DataType.UINT16: "INT32",
    DataType.UINT32: "INT32",
    DataType.UINT64: "INT32",
}
# Operators that OpenVINO computes in FLOAT32 for INT32 operands, where numbers above 2^24 lose bits.
IN_FLOAT32 = frozenset(
    {
        NodeType.ALL,
        NodeType.DIV_FUSION,
        NodeType.EQUAL,
        NodeType.FULL_CONNECTION,
        NodeType.GREATER,
        NodeType.GREATER_EQUAL,
        NodeType.LESS,
        NodeType.LESS_EQUAL,
        NodeType.MATMUL_FUSION,
        NodeType.NOT_EQUAL,
        NodeType.ONE_HOT,
        NodeType.POW_FUSION,
        NodeType.REAL_DIV,
        NodeType.REDUCE_FUSION,
    }
)
REFUSED = {
    NodeType.GATHER_ND: "OpenVINO doesn't check indices, and one that is outside ends the process",
    NodeType.MOD: "OpenVINO gives NaN for the remainder of an infinite divisor",
    NodeType.SCATTER_ND: "OpenVINO fails where an index is outside, or wraps it in 32 bits",
    NodeType.SPARSE_TO_DENSE: "OpenVINO fails where an index is outside, or wraps it in 32 bits",
}
# Operators whose INT64 results are positions and sizes, for which 32 bits are enough.
MAKE_INDICES = frozenset({NodeType.ARGMAX_FUSION, NodeType.RANK, NodeType.SHAPE, NodeType.TOPK_FUSION})
# Types whose results OpenVINO saturates, where NNRt lets them wrap around. Wider integers wrap around in the cast.
STOPPED = frozenset(np.dtype(code) for code in ("i1", "i2", "u1", "u2"))
WRAPPING = frozenset({"Add", "Sub", "Mul", "Div", "Mod", "Pow", "Neg", "Abs", "MatMul"})

LATE = Support("its shapes follow from what the model computes; models are compiled for known shapes")
IN_32_BITS = Support(note="INT64 in 32 bits")


class OpenVino(Engine):
    """Description of OpenVINO for nnrt_onnx_lowering.

    A model with FLOAT16 tensors computes in FLOAT32, and rounds its outputs.
    """

    name = "OpenVINO"
    computes_float16 = False

    def takes(self, operator: Operator) -> bool:
        return not operator.domain and not (operator.type in WRAPPING and operator.operands[0] in STOPPED)


def answer(graph: Graph, node: Node) -> Support:
    """Return the support of a node as far as it is known without asking OpenVINO."""
    specs = [graph.tensors[at] for at in (*node.inputs, *node.outputs)]
    if reason := REFUSED.get(node.type):
        return Support(reason)
    if node.type is NodeType.STRIDED_SLICE and not all(at in graph.constants for at in node.inputs[1:]):
        return Support("OpenVINO reads beside the tensor where a run says the bounds; make them constants")
    if any(0 in spec.shape for spec in specs):
        return Support("OpenVINO has no tensors without elements")
    for at, spec in enumerate(specs):
        computed = COMPUTED_IN.get(spec.data_type)
        if computed and not (spec.data_type is DataType.INT64 and _is_index(node, at)):
            return Support(f"OpenVINO computes {spec.data_type.name} in {computed}")
    if node.type in IN_FLOAT32 and specs[0].data_type is DataType.INT32:
        return Support(f"OpenVINO computes {node.type.name} of INT32 in FLOAT32")
    return IN_32_BITS if any(spec.data_type is DataType.INT64 for spec in specs) else Support()


def _is_index(node: Node, at: int) -> bool:
    """Return whether the elements of a node's tensor are positions, sizes or counts.

    `at` counts the node's operands, and then its results.
    """
    if at >= len(node.inputs):
        return node.type in MAKE_INDICES
    rules = OPERATORS[node.type].operands
    return rules[min(at, len(rules) - 1)].accepts.data_types in (INDICES, INTEGERS)
