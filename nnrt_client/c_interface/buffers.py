"""C's (pointer, length) pairs, which are one buffer in Python."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from nnrt_hdi.errors import InvalidParameter

# Type checkers don't know of every array that it is a buffer.
AnyBuffer = Buffer | NDArray[Any] | np.generic


def bytes_of(buffer: AnyBuffer | None) -> memoryview:
    """The bytes of a buffer themselves, whatever its elements are. Raises InvalidParameter for a null or empty one."""
    try:
        view = memoryview(np.frombuffer(buffer, np.uint8))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidParameter(f"the buffer is {type(buffer).__name__}; give contiguous bytes") from error
    if not view.nbytes:
        raise InvalidParameter("the buffer is empty; give one with bytes in it")
    return view


def writable_bytes_of(buffer: AnyBuffer | None) -> memoryview:
    """Give the bytes of a buffer as `bytes_of` does. Raises InvalidParameter for one that can't be written, too."""
    view = bytes_of(buffer)
    if view.readonly:
        raise InvalidParameter(f"the buffer is {type(buffer).__name__}, which can't be written; give a writable one")
    return view
