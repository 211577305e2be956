"""Conversion of quantized tensors to the real numbers that they represent, and back.

Nodes are computed in FLOAT64. It represents every int8 product and their sums exactly, so a result differs from an
integer kernel's only by the scales and the last rounding. FLOAT32 would lose precision in sums that cancel.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, Kernel
from nnrt_hdi.enums import DataType
from nnrt_hdi.ops.quantized import RealView, Scaling
from nnrt_hdi.tensor import TensorSpec

REAL = np.dtype(np.float64)


def dequantize(elements: AnyArray, scaling: Scaling) -> AnyArray:
    """Compute the real numbers (q - zero_point) scale."""
    scale, zero_point = _vectors(scaling, elements.ndim)
    real = elements.astype(REAL)
    real -= zero_point
    real *= scale
    return real


def quantize(real: AnyArray, scaling: Scaling, dtype: AnyDType) -> AnyArray:
    """Compute clamp(round(r / scale + zero_point)); halves are rounded away from zero, as by C's round.

    MindSpore Lite rounds so too. Where the scale is 0, or r is NaN, the result is the zero point.
    """
    scale, zero_point = _vectors(scaling, real.ndim)
    limits = np.iinfo(dtype)
    steps = np.asarray(real / np.where(scale == 0, np.inf, scale) + zero_point)
    np.copyto(steps, zero_point, where=np.isnan(steps))
    np.clip(steps, limits.min, limits.max, out=steps)
    steps += np.copysign(0.5, steps)
    return steps.astype(dtype)  # Truncates.


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
            call.require_memory(spec.shape, REAL)

    def quantized(_: Call, *operands: AnyArray) -> tuple[AnyArray, ...]:
        real = (
            dequantize(array, scaling) if scaling else array
            for array, scaling in zip(operands, view.inputs, strict=True)
        )
        computed: Any = kernel(real_call, *real)
        results = computed if isinstance(computed, tuple) else (computed,)
        return tuple(
            quantize(np.asarray(result, REAL), scaling, spec.numpy_dtype) if scaling else result
            for result, scaling, spec in zip(results, view.outputs, call.outputs, strict=True)
        )

    return quantized


def _real_spec(spec: TensorSpec, scaling: Scaling | None) -> TensorSpec:
    return replace(spec, data_type=DataType.FLOAT64, quant=()) if scaling else spec


def _vectors(scaling: Scaling, rank: int) -> tuple[AnyArray, AnyArray]:
    """Return scales and zero points, reshaped to broadcast with a tensor of this rank."""
    shape = [1] * rank
    if len(scaling.params) > 1:
        shape[scaling.axis] = -1
    scale = np.array([param.scale for param in scaling.params], REAL)
    zero_point = np.array([param.zero_point for param in scaling.params], REAL)
    return scale.reshape(shape), zero_point.reshape(shape)
