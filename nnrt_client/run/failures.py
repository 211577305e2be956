"""Errors of runs, whatever went wrong."""

import logging
from typing import TypeVar

from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory

_log = logging.getLogger(__name__)

ErrorT = TypeVar("ErrorT", bound=BaseException)


def nnrt_error_of(error: BaseException, otherwise: str) -> NnrtError:
    """Give an error of ours as it is. Of anything else make one that says it, and what could not be done."""
    if isinstance(error, NnrtError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory(f"{otherwise}: this host has no memory left")
    _log.error("%s", otherwise, exc_info=error)
    return OperationFailed(f"{otherwise}: {error!r}")


def without_frames(error: ErrorT) -> ErrorT:
    """Rid an error, and those it comes from, of the frames they went through, which hold what the run held."""
    seen: BaseException | None = error
    while seen is not None:
        seen.__traceback__ = None
        seen = seen.__cause__ or seen.__context__
    return error
