"""Registry of kernels, and helpers that they share.

    @kernel(NodeType.SQUARE)
    def square(call, x):
        return x * x

A kernel gets its call and the arrays of its operands, which it must not write to. It returns the array of its output,
or a tuple of arrays. A result may be a view of an operand, and may have a wider type than the output: the program
rounds it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import too_much
from nnrt_hdi.tensor import Shape, TensorSpec, format_shape

AnyArray = NDArray[Any]
AnyDType = np.dtype[Any]
Kernel = Callable[..., Any]
KernelT = TypeVar("KernelT", bound=Kernel)

KERNELS: dict[NodeType, Kernel] = {}


@dataclass(frozen=True, slots=True)
class Call:
    """Description of a node for its kernel.

    `attrs` has all attributes, under the names of their parameters in `nnrt_hdi.ops`; the specs are exact.
    """

    attrs: SimpleNamespace
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_tensor_bytes: int
    # The type to compute in: the output's, but FLOAT32 for FLOAT16, rounded once at the end.
    dtype: AnyDType = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", wider(self.outputs[0].numpy_dtype))

    @property
    def is_empty(self) -> bool:
        """True if no output has an element."""
        return all(0 in spec.shape for spec in self.outputs)


def kernel(node_type: NodeType) -> Callable[[KernelT], KernelT]:
    """Register the kernel of a node type."""

    def register(function: KernelT) -> KernelT:
        if node_type in KERNELS:
            raise TypeError(f"{node_type.name} has two kernels")
        KERNELS[node_type] = function
        return function

    return register


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


def require_memory(call: Call, shape: Shape, dtype: AnyDType) -> None:
    """Raise OutOfMemory before an array is allocated that would exceed the limit of a single tensor."""
    size = math.prod(shape) * dtype.itemsize
    if size > call.max_tensor_bytes:
        raise too_much(f"a tensor of {dtype} {format_shape(shape)} needs {size} bytes", call.max_tensor_bytes)
