"""Quantized nodes: dequantized before, quantized behind, which ONNX Runtime turns into integer kernels (QDQ).

ONNX rounds halves to even where NNRt rounds them away from zero, and computes in FLOAT32: one step at most.
"""

import numpy as np

from nnrt_backend_onnxruntime.builder import FLOAT32, Onnx, Value
from nnrt_backend_onnxruntime.kernels import AnyDType
from nnrt_hdi.ops.quantized import Scaling


def dequantize(op: Onnx, elements: Value, scaling: Scaling) -> Value:
    """The real numbers (q - zero_point) scale. That of an INT32 bias is 0, which ONNX leaves out."""
    scale, zero_point = _parameters(op, scaling, elements.dtype)
    zero = None if elements.dtype == np.int32 else zero_point
    return op.DequantizeLinear(elements, scale, zero, **_axis(scaling))


def quantize(op: Onnx, real: Value, scaling: Scaling, dtype: AnyDType) -> Value:
    """clamp(round(r / scale) + zero_point); where the scale is 0 it is the zero point."""
    scale, zero_point = _parameters(op, scaling, dtype)
    assert scale.data is not None
    divisor = op.constant(np.where(scale.data == 0, np.inf, scale.data).astype(FLOAT32))
    return op.QuantizeLinear(real.cast(FLOAT32), divisor, zero_point, **_axis(scaling))


def _parameters(op: Onnx, scaling: Scaling, dtype: AnyDType) -> tuple[Value, Value]:
    """Scales and zero points: scalars, or vectors along the axis."""
    shape = () if len(scaling.params) == 1 else (-1,)
    scale = np.array([param.scale for param in scaling.params], FLOAT32).reshape(shape)
    zero_point = np.array([param.zero_point for param in scaling.params], dtype).reshape(shape)
    return op.constant(scale), op.constant(zero_point)


def _axis(scaling: Scaling) -> dict[str, int]:
    return {} if len(scaling.params) == 1 else {"axis": scaling.axis}
