"""Convolutions of integers as ConvInteger."""

from collections.abc import Sequence

import numpy as np

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Node
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.compositions.composition import MISSING, NOTHING, Composition, Sources, pattern
from nnrt_onnx_lowering.engine import Operator
from nnrt_onnx_lowering.lowering.convolution import window_attributes
from nnrt_onnx_lowering.lowering.lowering import Call, channels_first, in_format
from nnrt_onnx_lowering.signedness import UINT8
from nnrt_onnx_lowering.value import FLOAT32, AnyArray, Value

N = NodeType
# The largest UINT8.
STEPS = 255


@pattern(N.CONV2D_FUSION)
def integer_convolution(sources: Sources, node: Node) -> Composition | None:
    """Recognize the convolution of UINT8 minus a zero point with constant integers.

    The result is exact either way. Without groups ConvInteger is faster on processors that add 8-bit products in 32
    bits.
    """
    x, weight, bias = node.inputs
    attrs, taps, added = sources.attrs(node), sources.data(weight), sources.data(bias)
    if sources.integers.weights is not DataType.INT8 or attrs.group != 1 or taps is None or added is None:
        return None
    narrow, zero = _split_zero_point(sources, x)
    if narrow == MISSING or added.any() or attrs.activation_type != NOTHING or not _are_steps(taps):
        return None
    lowest = int(taps.min(initial=0))
    inputs, outputs = (tuple(sources.graph.tensors[at] for at in side) for side in (node.inputs, node.outputs))
    call = Call(node.type, attrs, inputs, outputs, FLOAT32)
    window = window_attributes(call)

    def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
        elements = op.constant((taps - lowest).astype(np.uint8))
        image, filters = channels_first(given[0], call.inputs[0]), channels_first(elements, call.inputs[1])
        points = given[1] if len(given) > 1 else None, np.array(-lowest, np.uint8)
        sums = op.ConvInteger(image, filters, *points, **window)
        return [in_format(sums.cast(FLOAT32), call.inputs[0])]

    given, zeros = ((narrow,), None) if zero == MISSING else ((narrow, zero), UINT8)
    return Composition(node.outputs, given, make, Operator("ConvInteger", (UINT8, UINT8, zeros, UINT8), window))


def _split_zero_point(sources: Sources, tensor: int) -> tuple[int, int]:
    """Return the UINT8 tensors q and z if a tensor is q - z in real numbers, else MISSING for both."""
    elements, point, *_ = sources.operands(tensor, N.SUB_FUSION)
    narrow = sources.operands(tensor if elements == MISSING else elements, N.CAST)[0]
    zero = sources.operands(point, N.CAST)[0]
    if not sources.have_type(DataType.UINT8, narrow):
        return MISSING, MISSING
    if elements == MISSING:
        return narrow, MISSING
    is_scalar = sources.have_type(DataType.UINT8, zero) and sources.graph.tensors[zero].shape == ()
    return (narrow, zero) if is_scalar else (MISSING, MISSING)


def _are_steps(numbers: AnyArray) -> bool:
    """Return whether the numbers are integers whose range, extended to 0, is at most 255."""
    lowest, highest = numbers.min(initial=0), numbers.max(initial=0)
    return bool(highest - lowest <= STEPS and np.array_equal(numbers, np.rint(numbers)))
