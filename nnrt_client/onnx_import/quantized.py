"""Operators that become operations on quantized tensors.

Such an operator stands between DequantizeLinear and QuantizeLinear, or moves the integers of a quantized tensor.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnrt_client.model.model import Model
from nnrt_client.onnx_import.fusion import Quantization
from nnrt_client.onnx_import.operators.operator import OnnxOperator
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Quantized, Value, constant_value
from nnrt_client.tensors.quant_param import QuantParam

# Operators whose weight may have a scale per channel, followed by a bias.
_WEIGHTED = ("Conv", "Gemm", "MatMul")
_BIAS = 2
# Operators that select elements of their first input. Operators that move all elements are declared with `moves`.
_PICKING = frozenset(
    {
        "DepthToSpace",
        "Gather",
        "GatherElements",
        "GatherND",
        "MaxPool",
        "Pad",
        "Resize",
        "SpaceToDepth",
        "Split",
        "Tile",
    }
)
_FILLING = 2
_INTEGERS = (np.dtype(np.int8), np.dtype(np.uint8))


def quantized_operands(
    operator: OnnxOperator, given: Sequence[Value | None], attributes: Mapping[str, Any]
) -> list[Value | None] | None:
    """Return the quantized tensors of a node's operands, or None if an operand that must be quantized is not."""
    if not (operator.is_quantizable or operator.moves) or not given:
        return None
    # Only the first `counted` operands must be quantized; the others are shapes and bounds.
    counted = 1 if operator.moves or operator.name == "Clip" else len(given)
    operands: list[Value | None] = []
    for at, value in enumerate(given):
        is_weight = operator.name in _WEIGHTED and at == 1
        if value is None or at >= counted:
            operands.append(value)
        elif operator.name in _WEIGHTED and at == _BIAS:
            operands.append(_bias(value, given))
        elif (
            value.quantized is None
            or not value.quantized.is_of_8_bits
            or (
                len(value.quantized.scales) > 1
                and not (is_weight and _has_channel_scales(operator, value.quantized, attributes))
            )
        ):
            return None
        else:
            operands.append(value.quantized.tensor)
    return operands


def _has_channel_scales(operator: OnnxOperator, weight: Quantized, attributes: Mapping[str, Any]) -> bool:
    """Return whether the scales of a constant weight belong to its output channels, as NNRt requires."""
    if not weight.tensor.is_constant:
        return False
    last = weight.tensor.rank - 1
    is_turned = bool(attributes.get("transB"))
    return weight.axis == {"Conv": 0, "MatMul": last, "Gemm": 0 if is_turned else 1}[operator.name]


def can_quantize_result(operator: OnnxOperator, operands: Sequence[Value | None], quantization: Quantization) -> bool:
    """Return whether a node on quantized tensors can have a result of this quantization.

    In NNRt the result has the data type of the first operand. An operator that only moves elements keeps their
    quantization.
    """
    first = operands[0]
    if first is None or first.quantized is None or first.dtype != quantization.dtype:
        return False
    return not operator.moves or first.quantized.is_like(quantization.param)


def moved_operands(
    model: Model, operator: OnnxOperator, given: Sequence[Value | None]
) -> tuple[QuantParam, list[Value | None]] | None:
    """Return the quantization of an operator that moves the integers of quantized tensors, and its operands.

    Returns:
        The quantization of operands and result, and the operands with quantized tensors; None if the operands are not
        quantized integers, or the operator does not keep their quantization.

    Raises:
        Unsupported: the operator computes with the integers of a quantized tensor that is no constant.
    """
    first = given[0] if given else None
    kind = first.quantized if first is not None and first.dtype in _INTEGERS else None
    if operator.domain or first is None or kind is None or len(kind.scales) != 1:
        return None
    others = given if operator.name == "Concat" else ()
    is_alike = all(part is not None and part.quantized and part.quantized.is_like(kind) for part in others)
    if not is_alike or not (operator.moves or operator.name in (*_PICKING, "Concat")):
        if operator.is_quantizable and first.is_quantized:
            refuse(f"it computes with {first}, integers that stand for real numbers; put DequantizeLinear before it")
        return None
    operands = [part.quantized.tensor if part and part.quantized else part for part in given]
    if operator.name == "Pad":
        operands[_FILLING:] = [_filling(model, kind, operands[_FILLING:]), *operands[_FILLING + 1 :]]
    return kind.param, operands


def _filling(model: Model, kind: Quantized, given: Sequence[Value | None]) -> Value:
    """Return the real number that a Pad's integer constant_value stands for. The integer is 0 by default."""
    value = given[0] if given else None
    integer = 0 if value is None else value.array
    if integer is None:
        refuse("its constant_value is known only in a run")
    return constant_value(model, ((np.float64(integer) - kind.zero_points[0]) * kind.scales[0]).astype(np.float32))


def _bias(bias: Value, given: Sequence[Value | None]) -> Value:
    """Return the bias as INT32 if its scales are those of x times the weight's, as NNRt requires; else unchanged."""
    x, weight = (value.quantized if value is not None else None for value in given[:2])
    own = bias.quantized
    if own is None or x is None or weight is None or own.tensor.dtype != np.int32 or any(own.zero_points):
        return bias
    wanted = np.multiply(x.scales[0], weight.scales)
    return own.tensor if np.allclose(own.scales, wanted, rtol=1e-5, atol=0) else bias
