"""Errors that clients get for failed requests, and the log entries with the details."""

import logging
from secrets import token_hex

from nnrt_device_service.host.log_context import log_fields
from nnrt_device_service.sessions.session import Session
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory, UnavailableDevice

_log = logging.getLogger(__name__)

_REQUEST_ID_BYTES = 4
# Identity in the log of clients that have no session.
_UNKNOWN = "unknown"


def report_error(
    error: BaseException, method: str, session: Session | None = None, *, is_cancelled: bool = False, **what: object
) -> NnrtError:
    """Return the error that the client gets, with a new request id, and log it under that id.

    Of an exception that was not raised on purpose the client gets only the type; the log has its traceback. `what` are
    more fields of the log entry (`log_context.FIELDS`). If the client cancelled the request itself, the entry is at
    level DEBUG.
    """
    answer = _as_nnrt_error(error, method).of_request(token_hex(_REQUEST_ID_BYTES))
    unexpected = _unexpected_cause(error)
    fields = {"identity": _UNKNOWN, **log_fields(), **(session.log_fields if session else {}), **what}
    _log.log(
        logging.ERROR if unexpected else logging.DEBUG if is_cancelled else logging.INFO,
        "%s was answered %s: %s",
        method,
        answer.code.name,
        f"{answer}: {error}" if isinstance(error, MemoryError) else answer,
        exc_info=None if isinstance(error, MemoryError) else unexpected,
        extra={**fields, "request": answer.request_id, "error_code": answer.code.name},
    )
    return answer


def _as_nnrt_error(error: BaseException, method: str) -> NnrtError:
    if isinstance(error, NnrtError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory("the daemon's host has not enough memory for it; ask for less", place=method)
    return OperationFailed(f"the daemon failed with {type(error).__name__}; its log has the details", place=method)


def _unexpected_cause(error: BaseException) -> BaseException | None:
    """Return the exception that was not raised on purpose, by the daemon or the backend, or None."""
    if isinstance(error, UnavailableDevice):
        cause = error.__cause__
        return None if isinstance(cause, NnrtError) else cause
    return None if isinstance(error, NnrtError) else error
