"""Registry of kernels, and helpers that they share.

    @kernel(NodeType.SQUARE)
    def square(call, x):
        return x * x

A kernel gets its call and the tensors of its operands, which it must not write to. It returns the tensor of its output,
or a tuple of tensors. A result may be a view of an operand, and may have a wider type than the output: the model
converts it. Nodes whose results have no elements never reach a kernel.

Torch can move and convert elements of UINT16, UINT32 and UINT64, but hardly compute with them. So kernels compute in
`call.dtype`: signed integers that represent them all, or for UINT64 the same bits as INT64, see `in_order`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from nnrt_hdi import kernels
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.kernels import Kernel, Kernels, KernelT
from nnrt_hdi.tensor import TensorSpec

__all__ = [
    "COMPUTED_IN",
    "DTYPES",
    "KERNELS",
    "LOWEST",
    "ON_HOST",
    "Call",
    "Kernel",
    "bits",
    "cast",
    "cast_all",
    "computable",
    "compute_type",
    "element",
    "in_order",
    "kernel",
    "numbers",
    "on_device",
    "out_of_order",
    "per_channel",
]

DTYPES: dict[DataType, torch.dtype] = {
    DataType.BOOL: torch.bool,
    DataType.INT8: torch.int8,
    DataType.INT16: torch.int16,
    DataType.INT32: torch.int32,
    DataType.INT64: torch.int64,
    DataType.UINT8: torch.uint8,
    DataType.UINT16: torch.uint16,
    DataType.UINT32: torch.uint32,
    DataType.UINT64: torch.uint64,
    DataType.FLOAT16: torch.float16,
    DataType.FLOAT32: torch.float32,
    DataType.FLOAT64: torch.float64,
}
# Types that kernels don't compute in, and what they compute in instead.
COMPUTED_IN: dict[torch.dtype, torch.dtype] = {
    torch.float16: torch.float32,
    torch.uint16: torch.int32,
    torch.uint32: torch.int64,
    torch.uint64: torch.int64,
}
KERNELS = Kernels()
# Operands, by position, that a kernel reads only by `numbers`: constants among them stay in memory of the host.
ON_HOST: dict[NodeType, tuple[int, ...]] = {}
_SAME_BITS = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
# The lowest INT64.
LOWEST = -(1 << 63)


@dataclass(frozen=True, slots=True)
class Call(kernels.Call):
    """Description of a node for its kernel. New tensors belong on `device`."""

    device: torch.device
    # The type to compute in: the first output's, or the one that represents it.
    dtype: torch.dtype = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", compute_type(self.outputs[0]))


def kernel(node_type: NodeType, *, on_host: tuple[int, ...] = ()) -> Callable[[KernelT], KernelT]:
    """Register the kernel of a node type, and the positions of operands that it reads only by `numbers`."""
    ON_HOST[node_type] = on_host
    return KERNELS.of(node_type)


def compute_type(spec: TensorSpec) -> torch.dtype:
    """Return the type in which kernels compute with a tensor."""
    dtype = DTYPES[spec.data_type]
    return COMPUTED_IN.get(dtype, dtype)


def cast(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Convert a tensor to a type. One that has it is returned at once: to ask torch takes longer than small sums."""
    return x if x.dtype is dtype else x.to(dtype)


def cast_all(dtype: torch.dtype, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Convert tensors to a type, without copying those that have it."""
    return [cast(tensor, dtype) for tensor in tensors]


def computable(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the type that kernels compute in."""
    return x.to(COMPUTED_IN.get(x.dtype, x.dtype))


def in_order(x: torch.Tensor) -> torch.Tensor:
    """Return numbers in the same order, of a type that torch compares.

    The bits of a UINT64, with the highest one flipped, are an INT64 whose place in the order is the same.
    """
    return x.view(torch.int64) ^ LOWEST if x.dtype is torch.uint64 else computable(x)


def out_of_order(x: torch.Tensor) -> torch.Tensor:
    """Return the UINT64 for numbers that `in_order` has returned for UINT64."""
    return (x ^ LOWEST).view(torch.uint64)


def bits(x: torch.Tensor) -> torch.Tensor:
    """View elements as a type with the same bits that torch moves by indices, and flips."""
    return x.view(_SAME_BITS.get(x.dtype, x.dtype))


def element(value: float, dtype: torch.dtype) -> float:
    """Return a number as the type represents it: beyond its range infinite, in BOOL 0 or 1."""
    if dtype is torch.bool:
        return bool(value)
    return torch.tensor(value, dtype=torch.float64).to(dtype).item() if dtype.is_floating_point else int(value)


def numbers(x: torch.Tensor) -> list[int]:
    """Return the elements as integers of Python. Waits for the device unless x is in memory of the host."""
    found: list[int] = x.reshape(-1).tolist()
    return found


def on_device(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Return a small tensor that a kernel has made in memory of the host, on the call's device.

    CUDA copies it aside at once, so the host needn't wait until the device gets to it.
    """
    return x.to(call.device, non_blocking=call.device.type == "cuda")


def per_channel(call: Call, vector: torch.Tensor) -> torch.Tensor:
    """Return a vector with one element per channel of the first operand, reshaped to broadcast with it."""
    spec = call.inputs[0]
    return vector.reshape([-1 if axis == spec.channel_axis else 1 for axis in range(spec.rank)])
