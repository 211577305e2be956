"""Quantized elements and the real numbers they stand for, by numpy alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import DataType
from nnrt_hdi.tensor import QuantParam, TensorSpec

AnyArray = NDArray[Any]


def params_of(low: float, high: float, data_type: DataType) -> QuantParam:
    """The parameter with which elements span a range (0 included), its scale a number that FLOAT32 holds."""
    low, high = min(low, 0.0), max(high, 0.0)
    limits = np.iinfo(data_type.name.lower())
    scale = float(np.float32(max(high - low, 1e-3) / 255))
    return QuantParam(scale, int(np.clip(np.rint(limits.min - low / scale), limits.min, limits.max)))


def elements(random: np.random.Generator, shape: Sequence[int], data_type: DataType) -> AnyArray:
    limits = np.iinfo(data_type.name.lower())
    return random.integers(limits.min, limits.max + 1, shape).astype(limits.dtype)


def real(array: AnyArray, quant: Sequence[QuantParam], axis: int) -> AnyArray:
    """The real numbers, as FLOAT32."""
    if not quant:
        return array
    shape = [-1 if at == axis and len(quant) > 1 else 1 for at in range(array.ndim)]
    scale = np.array([param.scale for param in quant]).reshape(shape)
    zero_point = np.array([param.zero_point for param in quant]).reshape(shape)
    return np.asarray((array.astype(np.float64) - zero_point) * scale, np.float32)


def in_steps(reals: AnyArray, spec: TensorSpec, axis: int) -> AnyArray:
    """Real numbers in steps of a quantized tensor, clamped but not rounded."""
    shape = [-1 if at == axis and len(spec.quant) > 1 else 1 for at in range(reals.ndim)]
    scale = np.array([param.scale for param in spec.quant]).reshape(shape)
    zero_point = np.array([param.zero_point for param in spec.quant]).reshape(shape)
    limits = np.iinfo(spec.data_type.name.lower())
    return np.asarray(np.clip(reals.astype(np.float64) / scale + zero_point, limits.min, limits.max))
