"""Errors of runs, made from any exception."""

import logging
from typing import TypeVar

from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory

_log = logging.getLogger(__name__)

ErrorT = TypeVar("ErrorT", bound=BaseException)


def nnrt_error_of(error: BaseException, otherwise: str) -> NnrtError:
    """Return the error if it is an NnrtError, else a new NnrtError with the message `otherwise` and the cause."""
    if isinstance(error, NnrtError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory(f"{otherwise}: this host has no memory left")
    _log.error("%s", otherwise, exc_info=error)
    return OperationFailed(f"{otherwise}: {error!r}")


def without_frames(error: ErrorT) -> ErrorT:
    """Remove the frames from an error and its causes, because frames keep the run's tensors alive."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__
    return error
