"""Arrays made to fit, as memory does that was measured out before."""

import ctypes

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call

from nnrt_hdi.enums import Format
from nnrt_hdi.tensor import Shape


def fitted(y: AnyArray, shape: Shape) -> AnyArray:
    """As much of y as has room in a shape, before zeros."""
    room = np.zeros(shape, y.dtype)
    common = tuple(slice(min(size, there)) for size, there in zip(shape, y.shape, strict=True))
    room[common] = y[common]
    return room


def aligned_left(x: AnyArray, rank: int) -> AnyArray:
    """x with dimensions of 1 behind its own."""
    return x.reshape(x.shape + (1,) * (rank - x.ndim))


def writable(x: AnyArray) -> AnyArray:
    """The memory of a contiguous array, whoever says that it isn't to be written."""
    if not x.nbytes:
        return x
    memory = (ctypes.c_byte * x.nbytes).from_address(x.ctypes.data)
    return np.ctypeslib.as_array(memory).view(x.dtype).reshape(x.shape)


def is_nchw(call: Call) -> bool:
    return call.inputs[0].format is Format.NCHW


def height_and_width(call: Call) -> tuple[int, int]:
    """The dimensions of an image's height and width."""
    return (2, 3) if is_nchw(call) else (1, 2)
