"""Real numbers quantized by the range that they have in a run, as DynamicQuantizeLinear."""

from nnrt_hdi.enums import DataType, NodeType, ReduceMode
from nnrt_hdi.graph import Node
from nnrt_onnx_lowering.compositions.composition import MISSING, Composition, Sources, pattern
from nnrt_onnx_lowering.engine import Operator
from nnrt_onnx_lowering.value import FLOAT32

N = NodeType
# The largest UINT8.
STEPS = 255
NEEDS = Operator("DynamicQuantizeLinear", (FLOAT32,), outputs=3)


@pattern(N.CAST)
def dynamic_quantization(sources: Sources, cast: Node) -> Composition | None:
    """Recognize y = clip(round(x / scale) + point, 0, 255), where scale and zero point follow from the range of x."""
    (y,) = cast.outputs
    rounded, shift, *_ = sources.operands(_clipped(sources, cast.inputs[0]), N.ADD_FUSION)
    x, scale, *_ = sources.operands(sources.operands(rounded, N.ROUND)[0], N.DIV_FUSION)
    point = sources.operands(shift, N.CAST)[0]
    if not sources.have_type(DataType.UINT8, y, point) or not sources.have_type(DataType.FLOAT32, x, scale, shift):
        return None
    low = _low_end(sources, x, scale)
    if low == MISSING or not _is_point(sources, point, low, scale) or sources.graph.tensors[point].shape != ():
        return None
    return Composition((y, scale, point), (x,), lambda op, x: op.multi_output("DynamicQuantizeLinear", 3, *x), NEEDS)


def _clipped(sources: Sources, tensor: int) -> int:
    """Return the tensor that a CLIP to 0..255 reads, or MISSING where the node is no such CLIP."""
    node = sources.node(tensor, N.CLIP)
    if node is None:
        return MISSING
    attrs = sources.attrs(node)
    return node.inputs[0] if (attrs.min, attrs.max) == (0, STEPS) else MISSING


def _low_end(sources: Sources, x: int, scale: int) -> int:
    """Return the minimum of 0 and all elements of x if the scale is (maximum - minimum) / 255, else MISSING."""
    condition, one, step = sources.operands(scale, N.WHERE)
    if step == MISSING:
        step = scale
    elif not sources.is_number(one, 1) or sources.operands(condition, N.EQUAL)[0] != step:  # The scale if x is all 0.
        return MISSING
    width, steps, *_ = sources.operands(step, N.DIV_FUSION)
    high, low, *_ = sources.operands(width, N.SUB_FUSION)
    ends = ((low, N.MINIMUM, ReduceMode.MIN), (high, N.MAXIMUM, ReduceMode.MAX))
    return low if sources.is_number(steps, STEPS) and all(_is_end(sources, x, *end) for end in ends) else MISSING


def _is_end(sources: Sources, x: int, end: int, kind: NodeType, mode: ReduceMode) -> bool:
    """Return whether a tensor is the minimum or the maximum of 0 and all elements of x."""
    extreme, zero, *_ = sources.operands(end, kind)
    node = sources.node(extreme, N.REDUCE_FUSION)
    if node is None or not sources.is_number(zero, 0) or sources.graph.tensors[extreme].shape != ():
        return False
    attrs = sources.attrs(node)
    reads_x = x in (node.inputs[0], sources.operands(node.inputs[0], N.RESHAPE)[0])
    return reads_x and attrs.mode is mode and not attrs.reduce_to_end


def _is_point(sources: Sources, point: int, low: int, scale: int) -> bool:
    """Return whether a tensor is round(-low / scale)."""
    rounded = sources.operands(point, N.CAST)[0]
    exact = sources.operands(rounded, N.ROUND)[0]
    clipped = _clipped(sources, exact)
    zero, steps, *_ = sources.operands(exact if clipped == MISSING else clipped, N.SUB_FUSION)
    if steps != MISSING:
        return sources.is_number(zero, 0) and sources.operands(steps, N.DIV_FUSION)[:2] == (low, scale)
    height, divisor, *_ = sources.operands(exact, N.DIV_FUSION)
    zero, subtracted, *_ = sources.operands(height, N.SUB_FUSION)
    return sources.is_number(zero, 0) and (subtracted, divisor) == (low, scale)
