"""Inputs and outputs of a compiled ONNX model that may be in memory that a client can write to.

`nnrt_hdi.ops.in_place` finds them from the graph that is stored with the model. But a client may have written both, and
the graph may be another one. So this module checks the model too.
"""

from collections.abc import Sequence

import onnx
from nnrt_onnx_lowering.engine import names

from nnrt_hdi.graph import Graph
from nnrt_hdi.ops.in_place import InPlace, MemoryUse, in_place, trace_memory

# The groups are those of nnrt_hdi.ops.in_place. Operators in no group may not read or write shared memory.
COMPUTE = names(
    """
    AveragePool BatchNormalization Conv ConvInteger ConvTranspose FusedConv FusedGemm FusedMatMul Gemm GlobalAveragePool
    GlobalMaxPool InstanceNormalization LRN LSTM LayerNormalization LogSoftmax LpNormalization MatMul MatMulInteger
    MatMulIntegerToFloat MatMulNBits MaxPool NhwcFusedConv NhwcMaxPool QGemm QLinearAveragePool QLinearConv
    QLinearGlobalAveragePool QLinearMatMul QLinearSoftmax Shape Softmax TransposeMatMul
    """
)
PASS = names(
    """
    Abs Add And BiasGelu BitwiseAnd BitwiseXor Ceil Clip Concat Cos DequantizeLinear Div Elu Equal Erf Exp FastGelu
    Flatten Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish Identity IsNaN LeakyRelu Less LessOrEqual Log Max
    Min Mod Mul Neg Not Or PRelu Pow QLinearAdd QLinearConcat QLinearLeakyRelu QLinearMul QLinearSigmoid QLinearWhere
    QuantizeLinear QuickGelu Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum Tanh Transpose
    Where
    """
)
PASS_FIRST = names(
    """
    Cast DepthToSpace Expand Gather Pad QLinearReduceMean ReduceL1 ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd
    ReduceSum ReduceSumSquare ReorderInput ReorderOutput Reshape Resize Slice SpaceToDepth Split Squeeze Tile Unsqueeze
    """
)


def in_place_of(model: onnx.ModelProto, graph: Graph, input_count: int) -> InPlace:
    """Return the inputs and outputs that may be shared: those that both the model and its graph allow."""
    inputs, outputs = (
        [entry.name for entry in entries][:count]
        for entries, count in ((model.graph.input, input_count), (model.graph.output, len(graph.outputs)))
    )
    by_graph, by_nodes = in_place(graph), trace_memory(list(map(_memory_use, model.graph.node)), inputs, outputs)
    return InPlace(by_graph.inputs & by_nodes.inputs, by_graph.outputs & by_nodes.outputs)


def in_place_of_nodes(graph: onnx.GraphProto, inputs: Sequence[str], outputs: Sequence[str]) -> InPlace:
    """Return the inputs and outputs that may be shared, judged by the model's nodes alone.

    Nothing may be shared if a node has inner graphs, because these read more than the node's inputs.
    """
    if any(attribute.HasField("g") or attribute.graphs for node in graph.node for attribute in node.attribute):
        return InPlace(frozenset(), frozenset())
    uses = [
        # A divisor that ONNX Runtime has tested for 0 must not become 0 afterwards.
        use._replace(values=[False] * len(node.input)) if node.op_type in ("Div", "Mod") else use
        for node, use in zip(graph.node, map(_memory_use, graph.node), strict=True)
    ]
    return trace_memory(uses, inputs, outputs)


def _memory_use(node: onnx.NodeProto) -> MemoryUse:
    is_known, is_first = node.op_type in COMPUTE or node.op_type in PASS, node.op_type in PASS_FIRST
    values = [is_known or (is_first and not at) for at in range(len(node.input))]
    return MemoryUse(node.input, values, node.output, node.op_type in COMPUTE, not (is_known or is_first))
