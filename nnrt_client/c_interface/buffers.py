"""Python buffers, which stand for C's pairs of pointer and length."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from nnrt_hdi.errors import InvalidParameter

# Type checkers don't recognize every array as a Buffer.
AnyBuffer = Buffer | NDArray[Any] | np.generic


def bytes_of(buffer: AnyBuffer | None) -> memoryview:
    """Return the bytes of a buffer of any elements, without a copy. Raise InvalidParameter if it is None or empty."""
    try:
        view = memoryview(np.frombuffer(buffer, np.uint8))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidParameter(f"the buffer is {type(buffer).__name__}; give contiguous bytes") from error
    if not view.nbytes:
        raise InvalidParameter("the buffer is empty; give one with bytes in it")
    return view


def writable_bytes_of(buffer: AnyBuffer | None) -> memoryview:
    """Return the bytes of a buffer as `bytes_of` does. Raise InvalidParameter also if it is read-only."""
    view = bytes_of(buffer)
    if view.readonly:
        raise InvalidParameter(f"the buffer is {type(buffer).__name__}, which can't be written; give a writable one")
    return view
