"""Inputs and outputs of a graph that may be in memory to which a client can write during the run.

Some operators only compute with the elements of a tensor, or move them. If the client changes these elements meanwhile,
it gets wrong numbers, but harms nobody else. Elements that are indices, sizes, axes or sort keys are different: an
index is checked and then read again. So every operator is classified here, and operators in no class may not share
memory.
"""

import itertools
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from nnrt_hdi.enums import NodeType
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.ops.operands import FLOATS
from nnrt_hdi.ops.operator import OPERATORS

# Operators that compute with the elements of all operands. Their results never share memory with an operand.
COMPUTE = frozenset(
    {
        NodeType.AVGPOOL_FUSION,
        NodeType.CONV2D_FUSION,
        NodeType.CONV2D_TRANSPOSE_FUSION,
        NodeType.FULL_CONNECTION,
        NodeType.FUSED_BATCH_NORM,
        NodeType.INSTANCE_NORM,
        NodeType.L2_NORMALIZE_FUSION,
        NodeType.LAYER_NORM_FUSION,
        NodeType.LOG_SOFTMAX,
        NodeType.LRN,
        NodeType.LSTM,
        NodeType.MATMUL_FUSION,
        NodeType.MAX_POOL_FUSION,
        NodeType.RANGE,
        NodeType.RANK,
        NodeType.SHAPE,
        NodeType.SOFTMAX,
    }
)
# Operators that compute with the elements of all operands, or move them. If there is nothing to do they may return an
# operand itself.
PASS = frozenset(
    {
        NodeType.ABS,
        NodeType.ACTIVATION,
        NodeType.ADD_FUSION,
        NodeType.BATCH_TO_SPACE_ND,
        NodeType.BIAS_ADD,
        NodeType.BROADCAST_TO,
        NodeType.CEIL,
        NodeType.CLIP,
        NodeType.CONCAT,
        NodeType.COS,
        NodeType.DEPTH_TO_SPACE,
        NodeType.DIV_FUSION,
        NodeType.ELTWISE,
        NodeType.EQUAL,
        NodeType.ERF,
        NodeType.EXPFUSION,
        NodeType.FLATTEN,
        NodeType.FLOOR,
        NodeType.GREATER,
        NodeType.GREATER_EQUAL,
        NodeType.LEAKY_RELU,
        NodeType.LESS,
        NodeType.LESS_EQUAL,
        NodeType.LOG,
        NodeType.LOGICAL_AND,
        NodeType.LOGICAL_NOT,
        NodeType.LOGICAL_OR,
        NodeType.MAXIMUM,
        NodeType.MINIMUM,
        NodeType.MOD,
        NodeType.MUL_FUSION,
        NodeType.NEG,
        NodeType.NOT_EQUAL,
        NodeType.POW_FUSION,
        NodeType.PRELU_FUSION,
        NodeType.QUANT_DTYPE_CAST,
        NodeType.QUANT_DTYPE_CAST_V2,
        NodeType.REAL_DIV,
        NodeType.RECIPROCAL,
        NodeType.RESIZE,
        NodeType.ROUND,
        NodeType.RSQRT,
        NodeType.SCALE_FUSION,
        NodeType.SELECT,
        NodeType.SIN,
        NodeType.SPACE_TO_BATCH_ND,
        NodeType.SPACE_TO_DEPTH,
        NodeType.SPLIT,
        NodeType.SQRT,
        NodeType.SQUARE,
        NodeType.SQUARED_DIFFERENCE,
        NodeType.SQUEEZE,
        NodeType.STACK,
        NodeType.SUB_FUSION,
        NodeType.UNSQUEEZE,
        NodeType.UNSTACK,
        NodeType.WHERE,
    }
)
# Operators that compute with the elements of the first operand, or move them. The other operands say where to.
PASS_FIRST = frozenset(
    {
        NodeType.ALL,
        NodeType.CAST,
        NodeType.CROP,
        NodeType.EXPAND_DIMS,
        NodeType.FILL,
        NodeType.PAD_FUSION,
        NodeType.REDUCE_FUSION,
        NodeType.RESHAPE,
        NodeType.SLICE_FUSION,
        NodeType.STRIDED_SLICE,
        NodeType.TILE_FUSION,
        NodeType.TRANSPOSE,
    }
)
# Operators that look up, sort or count. The operands named here are only moved. How a backend uses memory inside is
# unknown, so results are not shared either.
DATA_DEPENDENT: dict[NodeType, frozenset[str]] = {
    NodeType.ARGMAX_FUSION: frozenset(),
    NodeType.ASSERT: frozenset(),
    NodeType.CONSTANT_OF_SHAPE: frozenset(),
    NodeType.DETECTION_POST_PROCESS: frozenset(),
    NodeType.GATHER: frozenset({"x"}),
    NodeType.GATHER_ND: frozenset({"x"}),
    NodeType.ONE_HOT: frozenset({"on_value", "off_value"}),
    NodeType.SCATTER_ND: frozenset({"updates"}),
    NodeType.SPARSE_TO_DENSE: frozenset({"values"}),
    NodeType.TOPK_FUSION: frozenset(),
}
# An integer divisor that becomes 0 after it was checked ends the process; a negative exponent is an error.
FLOATS_ONLY = frozenset({NodeType.DIV_FUSION, NodeType.MOD, NodeType.POW_FUSION, NodeType.REAL_DIV})


class InPlace(NamedTuple):
    """Positions of a graph's inputs and outputs that may be in memory to which the client can write."""

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()


class MemoryUse(NamedTuple):
    """Tensors that one operator reads and writes.

    `values` says for each entry of `reads` whether the operator only computes with its elements or moves them.
    `makes_own` says that no result shares memory with an operand. `is_data_dependent` says that the operator's work
    depends on the elements, so a client must not see results before they are complete.
    """

    reads: Sequence[Hashable]
    values: Sequence[bool]
    writes: Sequence[Hashable]
    makes_own: bool = False
    is_data_dependent: bool = False


def in_place(graph: Graph) -> InPlace:
    """Return the inputs and outputs of an inferred graph that may be in memory of a client."""
    return trace_memory([_memory_use(graph, graph.nodes[index]) for index in graph.order], graph.inputs, graph.outputs)


def trace_memory(uses: Sequence[MemoryUse], inputs: Sequence[Hashable], outputs: Sequence[Hashable]) -> InPlace:
    """Return the inputs and outputs that may be in memory of a client, given all operators' memory use in order."""
    deciding: set[Hashable] = set()  # Tensors whose memory is read to decide something, as this tensor or another.
    for use in reversed(uses):
        if not use.makes_own and not deciding.isdisjoint(use.writes):
            deciding.update(use.reads)
        deciding.update(tensor for tensor, is_value in zip(use.reads, use.values, strict=True) if not is_value)
    private, written = set(deciding), set[Hashable]()
    for use in uses:
        written.update(use.writes)
        # A result can share memory only with an operand that decides nothing.
        passed = () if use.makes_own else itertools.compress(use.reads, use.values)
        if use.is_data_dependent or not private.isdisjoint(passed):
            private.update(use.writes)
    return InPlace(
        frozenset(at for at, tensor in enumerate(inputs) if tensor not in deciding),
        frozenset(at for at, tensor in enumerate(outputs) if tensor in written and tensor not in private),
    )


def _memory_use(graph: Graph, node: Node) -> MemoryUse:
    return MemoryUse(node.inputs, _values(graph, node), node.outputs, node.type in COMPUTE, node.type in DATA_DEPENDENT)


def _values(graph: Graph, node: Node) -> list[bool]:
    """Return for each operand whether the operator only computes with its elements or moves them."""
    node_type, count = node.type, len(node.inputs)
    if node_type in FLOATS_ONLY:
        is_known = node_type in COMPUTE or node_type in PASS
        return [is_known and graph.tensors[tensor].data_type in FLOATS for tensor in node.inputs]
    if node_type in COMPUTE or node_type in PASS:
        return [True] * count
    if node_type in PASS_FIRST:
        return [at == 0 for at in range(count)]
    named, rules = DATA_DEPENDENT.get(node_type, frozenset()), OPERATORS[node_type].operands
    return [rules[min(at, len(rules) - 1)].name in named for at in range(count)]
