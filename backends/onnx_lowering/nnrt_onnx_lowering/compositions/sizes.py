"""Sizes and indices that a run computes, as Shape and Range."""

from collections.abc import Sequence

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Node
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.compositions.composition import Composition, Sources, pattern
from nnrt_onnx_lowering.engine import Operator
from nnrt_onnx_lowering.value import INT64, Value

N = NodeType


@pattern(N.SHAPE)
def shape_of_elements(sources: Sources, node: Node) -> Composition | None:
    """Recognize the shape of a dequantized tensor. It is read from the quantized tensor instead, which has the same."""
    elements = sources.quantized_source(node.inputs[0])
    if elements == node.inputs[0]:
        return None
    return Composition(node.outputs, (elements,), lambda op, given: [op.sizes(given[0])])


@pattern(N.TOPK_FUSION)
def counted(sources: Sources, node: Node) -> Composition | None:
    """Recognize 0, 1, 2, ...: the indices that TopK gives for equal numbers."""
    equals, wanted = node.inputs
    number, shape, *_ = sources.operands(equals, N.FILL)
    count = _uncast(sources, shape)
    if sources.data(number) is None or count != _uncast(sources, wanted) or sources.graph.tensors[equals].rank != 1:
        return None

    def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
        numbers, size = given
        return [numbers, op.range(0, op.squeeze(op.reshape(size.cast(INT64), [1]), [0]), 1)]

    return Composition(node.outputs, (equals, count), make, Operator("Range", (INT64, INT64, INT64)))


def _uncast(sources: Sources, x: int) -> int:
    """Return the integer tensor that x is a cast of, or x."""
    source = sources.operands(x, N.CAST)[0]
    is_size = any(sources.have_type(data_type, source) for data_type in (DataType.INT32, DataType.INT64))
    return source if is_size else x
