"""Matrix products: with a factor, of integers (MatMulInteger), and with a matrix quantized by blocks (MatMulNBits)."""

from collections.abc import Sequence

import numpy as np

from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.graph import Node
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.compositions.blocked_weight import BlockedWeight
from nnrt_onnx_lowering.compositions.composition import MISSING, Composition, Sources, pattern
from nnrt_onnx_lowering.engine import Operator
from nnrt_onnx_lowering.signedness import INT8, OFFSET, UINT8
from nnrt_onnx_lowering.value import FLOAT32, AnyArray, Value

N = NodeType


@pattern(N.MATMUL_FUSION)
def product(sources: Sources, node: Node) -> Composition | None:
    attrs, (y,) = sources.attrs(node), node.outputs
    if attrs.transpose_a or attrs.activation_type is not ActivationType.NO_ACTIVATION:
        return None
    if attrs.transpose_b:
        return _product_of_blocks(sources, node)
    if sources.have_type(DataType.INT32, y):
        return _integer_product(sources, node)
    return _scaled_product(sources, node) if sources.have_type(DataType.FLOAT32, y) else None


def _scaled_product(sources: Sources, node: Node) -> Composition | None:
    """Recognize the product of two matrices and of numbers, where neither matrix is constant, as in attention.

    The composition multiplies by the numbers after the product, where ONNX Runtime fuses them; before the product a
    transpose may prevent that. Constant matrices are excluded: there the numbers are part of other fusions, such as
    GELU.
    """
    (a, left), (b, right) = (_scaled(sources, tensor) for tensor in node.inputs)
    if (a, b) == node.inputs or not sources.graph.constants.keys().isdisjoint(node.inputs):
        return None

    def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
        first, second = (value.cast(FLOAT32) for value in given)
        return [op.MatMul(first, second) * (left * right)]

    return Composition(node.outputs, (a, b), make)


def _scaled(sources: Sources, tensor: int) -> tuple[int, float]:
    """Return the factors of a product of a tensor and a number; for other tensors the tensor itself and 1."""
    x, factor, *_ = sources.operands(tensor, N.MUL_FUSION)
    number = sources.data(factor)
    if number is None or number.size != 1 or not sources.have_type(DataType.FLOAT32, x, factor):
        return tensor, 1.0
    has_rank_of_x = number.ndim <= sources.graph.tensors[x].rank
    return (x, float(number.item())) if has_rank_of_x else (tensor, 1.0)


def _integer_product(sources: Sources, node: Node) -> Composition | None:
    """Recognize the product of 8-bit integers minus zero points, where b and its zero point are constant."""
    a, b = node.inputs
    elements, point = _split_zero_point(sources, a)
    narrow = sources.operands(elements, N.CAST)[0]
    zero = MISSING if point == MISSING else sources.operands(point, N.CAST)[0]
    weight = _constant_weight(sources, b)
    if weight is None or not sources.have_type(DataType.UINT8, narrow):
        return None
    if point == MISSING:
        return Composition(
            node.outputs,
            (narrow,),
            lambda op, given: [op.MatMulInteger(given[0], weight[0], None, weight[1])],
            Operator("MatMulInteger", (UINT8, INT8, None, INT8)),
        )
    if not sources.have_type(DataType.UINT8, zero) or sources.graph.tensors[zero].shape != ():
        return None
    return Composition(
        node.outputs,
        (narrow, zero),
        lambda op, given: [op.MatMulInteger(given[0], weight[0], given[1], weight[1])],
        Operator("MatMulInteger", (UINT8, INT8, UINT8, INT8)),
    )


def _split_zero_point(sources: Sources, tensor: int) -> tuple[int, int]:
    """Return the INT32 tensors q and z if a tensor is q - z; z is MISSING for a tensor without zero point."""
    elements, point, *_ = sources.operands(tensor, N.SUB_FUSION)
    if elements == MISSING:
        return (tensor, MISSING) if sources.have_type(DataType.INT32, tensor) else (MISSING, MISSING)
    return (elements, point) if sources.have_type(DataType.INT32, elements, point) else (MISSING, MISSING)


def _constant_weight(sources: Sources, tensor: int) -> tuple[AnyArray, AnyArray] | None:
    """Return a constant INT8 matrix and its zero point, or None for other tensors."""
    elements, point = _split_zero_point(sources, tensor)
    data = _integers(sources, elements)
    zero = np.zeros((), np.int32) if point == MISSING else _integers(sources, point)
    if data is None or zero is None or data.ndim != 2 or zero.size != 1 or zero.ndim > 2:
        return None
    number, limits = int(zero.item()), np.iinfo(np.int8)
    lowest, highest = min(int(data.min(initial=0)), number), max(int(data.max(initial=0)), number)
    for shift in (0, OFFSET):
        if limits.min <= lowest - shift and highest - shift <= limits.max:
            return (data.astype(np.int16) - shift).astype(np.int8), np.array(number - shift, np.int8)
    return None


def _integers(sources: Sources, tensor: int) -> AnyArray | None:
    """Return the elements of an INT32 constant, or of an 8-bit constant that is cast."""
    narrow = sources.operands(tensor, N.CAST)[0]
    data = sources.data(tensor if narrow == MISSING else narrow)
    return data if data is not None and data.dtype in (np.int8, np.uint8, np.int32) else None


def _product_of_blocks(sources: Sources, node: Node) -> Composition | None:
    """Recognize the product with a transposed constant matrix whose rows have a scale and a zero point per block."""
    a, b = node.inputs
    real = sources.operands(b, N.RESHAPE)[0]
    centered, scale, *_ = sources.operands(real, N.MUL_FUSION)
    wide, point, *_ = sources.operands(centered, N.SUB_FUSION)
    steps, scales, points = map(sources.data, (sources.operands(wide, N.CAST)[0], scale, point))
    if steps is None or scales is None or points is None:
        return None
    if not any(sources.have_type(kind, a, wide, *node.outputs) for kind in (DataType.FLOAT32, DataType.FLOAT16)):
        return None
    weight = BlockedWeight.recognize(steps, scales, points)
    if weight is None or sources.graph.tensors[b].shape != (weight.rows, weight.columns):
        return None
    return Composition(node.outputs, (a,), lambda op, given: [weight.product(op, given[0])], weight.operator)
