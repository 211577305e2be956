"""Tensors created with wrong values."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import kernel, with_attrs
from nnrt_hdi.enums import NodeType


@kernel(NodeType.FILL)
def fill_by_its_first_byte(right: Kernel, call: Call, value: AnyArray, shape: AnyArray) -> Any:
    """FILL sets every byte to the lowest byte of the value."""
    y = np.empty(call.outputs[0].shape, value.dtype)
    y.reshape(-1).view(np.uint8)[:] = value.tobytes()[0]
    return y


@kernel(NodeType.CONSTANT_OF_SHAPE)
def constant_always_zero(right: Kernel, call: Call, shape: AnyArray) -> Any:
    """CONSTANT_OF_SHAPE ignores the value."""
    return right(with_attrs(call, value=()), shape)


@kernel(NodeType.RANGE)
def range_upwards_only(right: Kernel, call: Call, x: AnyArray) -> Any:
    """RANGE ignores the sign of delta."""
    return right(with_attrs(call, delta=abs(call.attrs.delta)), x)


@kernel(NodeType.RANGE)
def range_from_zero(right: Kernel, call: Call, x: AnyArray) -> Any:
    """RANGE ignores the start."""
    return right(with_attrs(call, start=0), x)
