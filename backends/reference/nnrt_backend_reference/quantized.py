"""Conversion of quantized tensors to the real numbers that they represent, and back.

Nodes are computed in FLOAT64. It represents every int8 product and their sums exactly, so a result differs from an
integer kernel's only by the scales and the last rounding. FLOAT32 would lose precision in sums that cancel.
"""

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType
from nnrt_hdi.enums import DataType
from nnrt_hdi.ops.quantized import Scaling
from nnrt_hdi.tensor import NUMPY_DTYPES

REAL = np.dtype(np.float64)


def dequantize(elements: AnyArray, scaling: Scaling) -> AnyArray:
    """Compute the real numbers (q - zero_point) scale."""
    scale, zero_point = _vectors(scaling, elements.ndim)
    real = elements.astype(REAL)
    real -= zero_point
    real *= scale
    return real


def quantize(real: AnyArray, scaling: Scaling, data_type: DataType) -> AnyArray:
    """Compute clamp(round(r / scale + zero_point)); halves are rounded away from zero, as by C's round.

    MindSpore Lite rounds so too. Where the scale is 0, or r is NaN, the result is the zero point.
    """
    real = np.asarray(real, REAL)
    dtype: AnyDType = NUMPY_DTYPES[data_type]
    scale, zero_point = _vectors(scaling, real.ndim)
    limits = np.iinfo(dtype)
    steps = np.asarray(real / np.where(scale == 0, np.inf, scale) + zero_point)
    np.copyto(steps, zero_point, where=np.isnan(steps))
    np.clip(steps, limits.min, limits.max, out=steps)
    steps += np.copysign(0.5, steps)
    return steps.astype(dtype)  # Truncates.


def _vectors(scaling: Scaling, rank: int) -> tuple[AnyArray, AnyArray]:
    """Return scales and zero points, reshaped to broadcast with a tensor of this rank."""
    shape = [1] * rank
    if len(scaling.params) > 1:
        shape[scaling.axis] = -1
    scale = np.array([param.scale for param in scaling.params], REAL)
    zero_point = np.array([param.zero_point for param in scaling.params], REAL)
    return scale.reshape(shape), zero_point.reshape(shape)
