"""Matrix products."""

import math

import numpy as np

from nnrt_backend_reference.kernels.activation import fused
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, cast_all, kernel
from nnrt_hdi.enums import NodeType


@kernel(NodeType.FULL_CONNECTION)
def full_connection(call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray | None = None) -> AnyArray:
    """y = f(X W^T + bias), X the rows of x as long as those of W."""
    x, weight = cast_all(call.dtype, x, weight)
    shape = call.outputs[0].shape
    y = x.reshape(math.prod(shape[:-1]), weight.shape[1]) @ weight.T
    if bias is not None:
        y += bias
    return fused(y, call.attrs.activation_type).reshape(shape)


@kernel(NodeType.MATMUL_FUSION)
def matmul(call: Call, a: AnyArray, b: AnyArray) -> AnyArray:
    """y = f(A B) in the type of the output."""
    a, b = cast_all(call.dtype, a, b)
    a = a.swapaxes(-1, -2) if call.attrs.transpose_a else a
    b = b.swapaxes(-1, -2) if call.attrs.transpose_b else b
    return fused(np.matmul(a, b), call.attrs.activation_type)
