"""Conversion of quantized tensors to the real numbers that they represent, and back.

Nodes are computed in FLOAT64. It represents every int8 product and their sums exactly, so a result differs from an
integer kernel's only by the scales and the last rounding.
"""

from dataclasses import replace
from typing import Any

import torch

from nnrt_backend_torch.kernels.kernel import DTYPES, Call, Kernel
from nnrt_hdi.enums import DataType
from nnrt_hdi.ops.quantized import RealView, Scaling
from nnrt_hdi.tensor import NUMPY_DTYPES, TensorSpec

REAL = torch.float64


def dequantize(elements: torch.Tensor, scaling: Scaling) -> torch.Tensor:
    """Compute the real numbers (q - zero_point) scale."""
    scale, zero_point = _vectors(scaling, elements)
    return (elements.to(REAL) - zero_point) * scale


def quantize(real: torch.Tensor, scaling: Scaling, dtype: torch.dtype) -> torch.Tensor:
    """Compute clamp(round(r / scale + zero_point)); halves are rounded away from zero, as by C's round.

    MindSpore Lite rounds so too. Where the scale is 0, or r is NaN, the result is the zero point.
    """
    scale, zero_point = _vectors(scaling, real)
    limits = torch.iinfo(dtype)
    steps = real / torch.where(scale == 0, torch.inf, scale) + zero_point
    steps = torch.where(steps.isnan(), zero_point, steps).clamp(limits.min, limits.max)
    return (steps + torch.copysign(torch.full_like(steps, 0.5), steps)).trunc().to(dtype)


def real_kernel(kernel: Kernel, call: Call, view: RealView) -> Kernel:
    """Return a kernel that computes a quantized node with a kernel for real numbers.

    Raises:
        OutOfMemory: The real tensors are too large.
    """
    real_call = replace(
        call,
        inputs=tuple(map(_real_spec, call.inputs, view.inputs)),
        outputs=tuple(map(_real_spec, call.outputs, view.outputs)),
    )
    for spec, scaling in zip((*call.inputs, *call.outputs), (*view.inputs, *view.outputs), strict=True):
        if scaling:
            call.require_memory(spec.shape, NUMPY_DTYPES[DataType.FLOAT64])

    def quantized(_: Call, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        real = (
            dequantize(tensor, scaling) if scaling else tensor
            for tensor, scaling in zip(operands, view.inputs, strict=True)
        )
        computed: Any = kernel(real_call, *real)
        results = computed if isinstance(computed, tuple) else (computed,)
        return tuple(
            quantize(result.to(REAL), scaling, DTYPES[spec.data_type]) if scaling else result
            for result, scaling, spec in zip(results, view.outputs, call.outputs, strict=True)
        )

    return quantized


def _real_spec(spec: TensorSpec, scaling: Scaling | None) -> TensorSpec:
    return replace(spec, data_type=DataType.FLOAT64, quant=()) if scaling else spec


def _vectors(scaling: Scaling, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scales and zero points, reshaped to broadcast with a tensor."""
    shape = [1] * like.ndim
    if len(scaling.params) > 1:
        shape[scaling.axis] = -1
    scale = torch.tensor([param.scale for param in scaling.params], dtype=REAL, device=like.device)
    zero_point = torch.tensor([param.zero_point for param in scaling.params], dtype=REAL, device=like.device)
    return scale.reshape(shape), zero_point.reshape(shape)
