"""Quantized nodes as real ones between DequantizeLinear and QuantizeLinear (QDQ).

ONNX Runtime turns them into integer kernels. ONNX rounds halves to even, where NNRt rounds them away from zero, and
computes in FLOAT32: results differ by at most one step. Integer kernels need one scale above 0 per tensor, or for a
weight one per channel with a common zero point. Other tensors are converted by arithmetic, because ONNX Runtime would
choose an integer kernel for QDQ all the same, and fail.
"""

import numpy as np

from nnrt_hdi.enums import ActivationType
from nnrt_hdi.ops.quantized import Scaling
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.engine import AnyDType
from nnrt_onnx_lowering.value import FLOAT32, AnyArray, Value


def dequantize(op: Onnx, elements: Value, scaling: Scaling, *, is_weight: bool = False) -> Value:
    """Compute the real numbers (q - zero_point) scale. An INT32 bias has zero point 0, which ONNX leaves out."""
    scale, zero_point = _parameters(scaling)
    if not _has_kernels(scaling, is_weight):
        shape = _spread(scaling, elements.rank)
        return (elements.cast(FLOAT32) - zero_point.astype(FLOAT32).reshape(shape)) * scale.reshape(shape)
    zero = None if elements.dtype == np.int32 else zero_point.astype(elements.dtype)
    return op.DequantizeLinear(elements, scale, zero, **_axis(scaling))


def quantize(op: Onnx, real: Value, scaling: Scaling, dtype: AnyDType, rank: int) -> Value:
    """Compute clamp(round(r / scale) + zero_point); where the scale is 0 the result is the zero point."""
    scale, zero_point = _parameters(scaling)
    if not scale.any():
        zero = real.cast(np.dtype(np.int32)) * 0
        return (zero + zero_point.astype(np.int32).reshape(_spread(scaling, rank) if scale.ndim else ())).cast(dtype)
    divisor, limits = np.where(scale == 0, np.inf, scale).astype(FLOAT32), np.iinfo(dtype)
    if _has_kernels(scaling, is_weight=False):
        return op.QuantizeLinear(real.cast(FLOAT32), divisor, zero_point.astype(dtype))
    shape = _spread(scaling, rank)
    steps = op.Round(real.cast(FLOAT32) / divisor.reshape(shape))
    steps = op.Where(op.IsNaN(steps), 0, steps) + zero_point.astype(FLOAT32).reshape(shape)
    return op.Min(op.Max(steps, limits.min), limits.max).cast(dtype)


def clamped(op: Onnx, elements: Value, scaling: Scaling, activation_type: ActivationType, rank: int) -> Value:
    """Apply a fused activation, RELU or RELU6, to quantized elements by limiting their integers."""
    limits = np.iinfo(elements.dtype)
    scale, zero_point = (array.reshape(_spread(scaling, rank) if array.ndim else ()) for array in _parameters(scaling))
    steps = np.divide(6, scale, out=np.zeros_like(scale), where=scale != 0)
    highest = np.minimum(np.rint(steps) + zero_point, limits.max)
    if (zero_point > limits.min).any():
        elements = op.Max(elements, zero_point.astype(elements.dtype))
    if activation_type is ActivationType.RELU6 and (highest < limits.max).any():
        elements = op.Min(elements, highest.astype(elements.dtype))
    return elements


def _has_kernels(scaling: Scaling, is_weight: bool) -> bool:
    is_even = len(scaling.params) == 1 or (is_weight and len({param.zero_point for param in scaling.params}) == 1)
    return is_even and all(param.scale > 0 for param in scaling.params)


def _parameters(scaling: Scaling) -> tuple[AnyArray, AnyArray]:
    """Return scales and zero points: scalars, or vectors along the axis."""
    shape = () if len(scaling.params) == 1 else (-1,)
    scale = np.array([param.scale for param in scaling.params], FLOAT32).reshape(shape)
    return scale, np.array([param.zero_point for param in scaling.params]).reshape(shape)


def _spread(scaling: Scaling, rank: int | None) -> list[int]:
    """Return the shape in which scales broadcast with a tensor."""
    assert rank is not None
    return [] if len(scaling.params) == 1 else [-1, *[1] * (rank - 1 - scaling.axis)]


def _axis(scaling: Scaling) -> dict[str, int]:
    return {} if len(scaling.params) == 1 else {"axis": scaling.axis}
