"""Data moved, not changed: new shapes, orders, joins and borders."""

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, Call, kernel
from nnrt_hdi.enums import NodeType, PaddingMode


@kernel(NodeType.SQUEEZE)
@kernel(NodeType.UNSQUEEZE)
@kernel(NodeType.RESHAPE)
def reshape(call: Call, x: AnyArray, *_: AnyArray) -> AnyArray:
    """The elements of x, in their order, in the shape of the output."""
    y: AnyArray = x.reshape(call.outputs[0].shape)
    return y


@kernel(NodeType.TRANSPOSE)
def transpose(_: Call, x: AnyArray, permutation: AnyArray) -> AnyArray:
    """x with dimension permutation[n] as the n-th."""
    return np.transpose(x, permutation.reshape(-1).tolist())


@kernel(NodeType.CONCAT)
def concat(call: Call, *parts: AnyArray) -> AnyArray:
    """The parts behind each other along axis."""
    return np.concatenate(parts, axis=call.attrs.axis)


@kernel(NodeType.PAD_FUSION)
def pad(call: Call, x: AnyArray, paddings: AnyArray) -> AnyArray:
    """x with a border that holds a constant, or mirrors x without (REFLECT) or with (SYMMETRIC) its edge."""
    mode = call.attrs.padding_mode
    if not x.ndim:
        return x
    if mode is PaddingMode.CONSTANT:
        return np.pad(x, paddings.tolist(), constant_values=x.dtype.type(call.attrs.constant_value))
    return np.pad(x, paddings.tolist(), mode="reflect" if mode is PaddingMode.REFLECT else "symmetric")


@kernel(NodeType.SHAPE)
def shape_of(call: Call, x: AnyArray) -> AnyArray:
    """The dimensions of x."""
    return np.array(x.shape, call.outputs[0].numpy_dtype)
