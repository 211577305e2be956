"""Arrays adapted to buffers of a fixed shape."""

import ctypes

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call

from nnrt_hdi.enums import Format
from nnrt_hdi.tensor import Shape


def fitted(y: AnyArray, shape: Shape) -> AnyArray:
    """Return y cropped to a shape, and padded with zeros."""
    room = np.zeros(shape, y.dtype)
    common = tuple(slice(min(size, there)) for size, there in zip(shape, y.shape, strict=True))
    room[common] = y[common]
    return room


def aligned_left(x: AnyArray, rank: int) -> AnyArray:
    """Return x with dimensions of 1 appended up to `rank`."""
    return x.reshape(x.shape + (1,) * (rank - x.ndim))


def writable(x: AnyArray) -> AnyArray:
    """Return a writable view of a contiguous array, even if the array is read-only."""
    if not x.nbytes:
        return x
    memory = (ctypes.c_byte * x.nbytes).from_address(x.ctypes.data)
    return np.ctypeslib.as_array(memory).view(x.dtype).reshape(x.shape)


def is_nchw(call: Call) -> bool:
    return call.inputs[0].format is Format.NCHW


def height_and_width(call: Call) -> tuple[int, int]:
    """Return the axes of an image's height and width."""
    return (2, 3) if is_nchw(call) else (1, 2)
