"""Kernels of a library that computes node by node: what they get, and how they compute quantized nodes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import too_much
from nnrt_hdi.ops.quantized import RealView, Scaling
from nnrt_hdi.tensor import NUMPY_DTYPES, Array, Shape, TensorSpec, format_shape

AnyDType = np.dtype[Any]
Kernel = Callable[..., Any]
KernelT = TypeVar("KernelT", bound=Kernel)
# A tensor of the library: an array of numpy, a tensor on a device, or the like.
Value = Any


@dataclass(frozen=True, slots=True)
class Call:
    """Description of a node for its kernel.

    `attrs` has all attributes, under the names of their parameters in `nnrt_hdi.ops`; the specs are exact.
    """

    attrs: SimpleNamespace
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    max_tensor_bytes: int

    def require_memory(self, shape: Shape, dtype: AnyDType) -> None:
        """Raise OutOfMemory before an array is allocated that would exceed the limit of a single tensor."""
        size = math.prod(shape) * dtype.itemsize
        if size > self.max_tensor_bytes:
            raise too_much(f"a tensor of {dtype} {format_shape(shape)} needs {size} bytes", self.max_tensor_bytes)


class Kernels(dict[NodeType, Kernel]):
    """Kernels of a library. A kernel gets its call and its operands; it returns its output, or a tuple of outputs."""

    def of(self, node_type: NodeType) -> Callable[[KernelT], KernelT]:
        """Register the kernel of a node type: a decorator."""

        def register(function: KernelT) -> KernelT:
            if node_type in self:
                raise TypeError(f"{node_type.name} has two kernels")
            self[node_type] = function
            return function

        return register


@dataclass(frozen=True, slots=True)
class Library:
    """A library that computes node by node.

    `call` makes the calls for its kernels. `dequantize` returns the real numbers of a quantized tensor in FLOAT64, and
    `quantize` rounds real numbers to a quantized type. `empty` is the kernel of nodes whose results have no elements.
    `elements` returns the elements of a small tensor, for inference.
    """

    kernels: Kernels
    call: Callable[..., Call]
    dequantize: Callable[[Value, Scaling], Value]
    quantize: Callable[[Value, Scaling, DataType], Value]
    empty: Kernel
    elements: Callable[[Value], Array]


def real_kernel(kernel: Kernel, call: Call, view: RealView, library: Library) -> Kernel:
    """Return a kernel that computes a quantized node with a kernel for real numbers, in FLOAT64.

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

    def quantized(_: Call, *operands: Value) -> tuple[Value, ...]:
        real = (
            library.dequantize(value, scaling) if scaling else value
            for value, scaling in zip(operands, view.inputs, strict=True)
        )
        computed = kernel(real_call, *real)
        results = computed if isinstance(computed, tuple) else (computed,)
        return tuple(
            library.quantize(result, scaling, spec.data_type) if scaling else result
            for result, scaling, spec in zip(results, view.outputs, call.outputs, strict=True)
        )

    return quantized


def _real_spec(spec: TensorSpec, scaling: Scaling | None) -> TensorSpec:
    return replace(spec, data_type=DataType.FLOAT64, quant=()) if scaling else spec
