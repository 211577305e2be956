"""Tensors made from a shape or a range."""

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, Call, kernel
from nnrt_hdi.enums import NodeType


@kernel(NodeType.FILL)
def fill(call: Call, value: AnyArray, _: AnyArray) -> AnyArray:
    """Return a tensor filled with the only element of value."""
    return np.broadcast_to(value.reshape(()), call.outputs[0].shape)


@kernel(NodeType.CONSTANT_OF_SHAPE)
def constant_of_shape(call: Call, _: AnyArray) -> AnyArray:
    """Return a tensor filled with one number."""
    spec = call.outputs[0]
    number = np.array(call.attrs.value or 0.0).astype(spec.numpy_dtype)
    return np.broadcast_to(number.reshape(()), spec.shape)


@kernel(NodeType.RANGE)
def range_(call: Call, _: AnyArray) -> AnyArray:
    """Return numbers from start in steps of delta.

    Each result fits into INT64, so it is right even if the product of index and delta wraps around.
    """
    shape, dtype = call.outputs[0].shape, np.dtype(np.int64)
    call.require_memory(shape, dtype)
    y = np.arange(*shape, dtype=dtype)
    y *= call.attrs.delta
    y += call.attrs.start
    return y
