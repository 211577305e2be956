"""Operators between DequantizeLinear and QuantizeLinear, which become operations on quantized tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnrt_client.onnx_import.fusion import Quantization
from nnrt_client.onnx_import.operators.operator import OnnxOperator
from nnrt_client.onnx_import.value import Quantized, Value

# Operators with a weight that may have a scale for each channel, and a bias behind it.
_WEIGHTED = ("Conv", "Gemm", "MatMul")
_BIAS = 2


def quantized_operands(
    operator: OnnxOperator, given: Sequence[Value | None], attributes: Mapping[str, Any]
) -> list[Value | None] | None:
    """The quantized tensors behind the operands of a node; None where one of those that are needed has none."""
    if not (operator.is_quantizable or operator.moves) or not given:
        return None
    # Beside what is computed with, shapes and bounds stay what they are.
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
                and not (is_weight and _runs_well(operator, value.quantized, attributes))
            )
        ):
            return None
        else:
            operands.append(value.quantized.tensor)
    return operands


def _runs_well(operator: OnnxOperator, weight: Quantized, attributes: Mapping[str, Any]) -> bool:
    """The scales of a weight run along its output channels, as NNRt has them."""
    if not weight.tensor.is_constant:
        return False
    last = weight.tensor.rank - 1
    is_turned = bool(attributes.get("transB"))
    return weight.axis == {"Conv": 0, "MatMul": last, "Gemm": 0 if is_turned else 1}[operator.name]


def takes_quantization(operator: OnnxOperator, operands: Sequence[Value | None], quantization: Quantization) -> bool:
    """A node on quantized tensors can give its result in this quantization.

    NNRt's result has the data type of the first operand; what only moves elements leaves them as they are.
    """
    first = operands[0]
    if first is None or first.quantized is None or first.dtype != quantization.dtype:
        return False
    return not operator.moves or first.quantized.is_like(quantization.param)


def _bias(bias: Value, given: Sequence[Value | None]) -> Value:
    """The INT32 bias if its scales are those of x times weight, which is how NNRt reads it; else the real numbers."""
    x, weight = (value.quantized if value is not None else None for value in given[:2])
    own = bias.quantized
    if own is None or x is None or weight is None or own.tensor.dtype != np.int32 or any(own.zero_points):
        return bias
    wanted = np.multiply(x.scales[0], weight.scales)
    return own.tensor if np.allclose(own.scales, wanted, rtol=1e-5, atol=0) else bias
