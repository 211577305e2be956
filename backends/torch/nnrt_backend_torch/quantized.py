"""Conversion of quantized tensors to the real numbers that they represent, and back.

Nodes are computed in FLOAT64. It represents every int8 product and their sums exactly, so a result differs from an
integer kernel's only by the scales and the last rounding.
"""

import torch

from nnrt_backend_torch.kernels.kernel import DTYPES
from nnrt_hdi.enums import DataType
from nnrt_hdi.ops.quantized import Scaling

REAL = torch.float64


def dequantize(elements: torch.Tensor, scaling: Scaling) -> torch.Tensor:
    """Compute the real numbers (q - zero_point) scale."""
    scale, zero_point = _vectors(scaling, elements)
    return (elements.to(REAL) - zero_point) * scale


def quantize(real: torch.Tensor, scaling: Scaling, data_type: DataType) -> torch.Tensor:
    """Compute clamp(round(r / scale + zero_point)); halves are rounded away from zero, as by C's round.

    MindSpore Lite rounds so too. Where the scale is 0, or r is NaN, the result is the zero point.
    """
    real, dtype = real.to(REAL), DTYPES[data_type]
    scale, zero_point = _vectors(scaling, real)
    limits = torch.iinfo(dtype)
    steps = real / torch.where(scale == 0, torch.inf, scale) + zero_point
    steps = torch.where(steps.isnan(), zero_point, steps).clamp(limits.min, limits.max)
    return (steps + torch.copysign(torch.full_like(steps, 0.5), steps)).trunc().to(dtype)


def _vectors(scaling: Scaling, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scales and zero points, reshaped to broadcast with a tensor."""
    shape = [1] * like.ndim
    if len(scaling.params) > 1:
        shape[scaling.axis] = -1
    scale = torch.tensor([param.scale for param in scaling.params], dtype=REAL, device=like.device)
    zero_point = torch.tensor([param.zero_point for param in scaling.params], dtype=REAL, device=like.device)
    return scale.reshape(shape), zero_point.reshape(shape)
