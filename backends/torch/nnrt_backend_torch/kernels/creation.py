"""Tensors made from a shape or a range."""

import torch

from nnrt_backend_torch.kernels.kernel import DTYPES, Call, kernel
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.tensor import NUMPY_DTYPES


@kernel(NodeType.FILL, on_host=(1,))
def fill(call: Call, value: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return a tensor filled with the only element of value."""
    return value.reshape(()).expand(call.outputs[0].shape)


@kernel(NodeType.CONSTANT_OF_SHAPE, on_host=(0,))
def constant_of_shape(call: Call, _: torch.Tensor) -> torch.Tensor:
    """Return a tensor filled with one number."""
    spec = call.outputs[0]
    (number,) = call.attrs.value or (0.0,)
    # A number that is too large for a type becomes infinite.
    element = torch.tensor(number, dtype=torch.float64).to(DTYPES[spec.data_type])
    # The element is on the host. To copy it would wait for the device.
    return torch.full((), element.item(), dtype=element.dtype, device=call.device).expand(spec.shape)


@kernel(NodeType.RANGE, on_host=(0,))
def range_(call: Call, _: torch.Tensor) -> torch.Tensor:
    """Return numbers from start in steps of delta.

    Each result fits into INT64, so it is right even if the product of index and delta wraps around.
    """
    (count,) = call.outputs[0].shape
    call.require_memory((count,), NUMPY_DTYPES[DataType.INT64])
    y = torch.arange(count, dtype=torch.int64, device=call.device)
    y *= call.attrs.delta
    y += call.attrs.start
    return y
