"""Registry of kernels, and helpers that they share.

    @kernel(NodeType.SQUARE)
    def square(call, x):
        return x * x

A kernel gets its call and the arrays of its operands, which it must not write to. It returns the array of its output,
or a tuple of arrays. A result may be a view of an operand, and may have a wider type than the output: the program
rounds it.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi import kernels
from nnrt_hdi.kernels import AnyDType, Kernel, Kernels

__all__ = ["KERNELS", "AnyArray", "AnyDType", "Call", "Kernel", "cast_all", "kernel", "per_channel", "wider"]

AnyArray = NDArray[Any]

KERNELS = Kernels()
kernel = KERNELS.of


@dataclass(frozen=True, slots=True)
class Call(kernels.Call):
    """Description of a node for its kernel."""

    # The type to compute in: the output's, but FLOAT32 for FLOAT16, rounded once at the end.
    dtype: AnyDType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", wider(self.outputs[0].numpy_dtype))


def wider(dtype: AnyDType) -> AnyDType:
    """Return FLOAT32 for FLOAT16, and other types as they are."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def cast_all(dtype: AnyDType, *arrays: AnyArray) -> list[AnyArray]:
    """Cast arrays to a type, without copying those that have it."""
    return [array if array.dtype == dtype else array.astype(dtype) for array in arrays]


def per_channel(call: Call, vector: AnyArray) -> AnyArray:
    """Return a vector with one element per channel of the first operand, reshaped to broadcast with it."""
    spec = call.inputs[0]
    return vector.reshape([-1 if axis == spec.channel_axis else 1 for axis in range(spec.rank)])
