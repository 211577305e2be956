"""What clients are told of failed requests, and the lines of the daemon's log that tell more of them."""

import logging
from secrets import token_hex

from nnrt_device_service.host.log_context import about
from nnrt_device_service.sessions.session import Session
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory, UnavailableDevice

_log = logging.getLogger(__name__)

_REQUEST_ID_BYTES = 4
# Of those who have no session.
_UNKNOWN = "unknown"


def error_to_tell(
    error: BaseException, method: str, session: Session | None = None, *, is_cancelled: bool = False, **what: object
) -> NnrtError:
    """The error to tell the client, with the id of its request, by which a line of the log tells what is known of it.

    Of one that nobody raised on purpose only the kind is told; the log has its traceback. `what` are fields of the line
    (`log_context.FIELDS`). A client that has cancelled the request itself is not worth a line.
    """
    told = _as_nnrt_error(error, method).of_request(token_hex(_REQUEST_ID_BYTES))
    unexpected = _unexpected(error)
    fields = {"identity": _UNKNOWN, **about(), **(session.names if session else {}), **what}
    _log.log(
        logging.ERROR if unexpected else logging.DEBUG if is_cancelled else logging.INFO,
        "%s was answered %s: %s",
        method,
        told.code.name,
        f"{told}: {error}" if isinstance(error, MemoryError) else told,
        exc_info=None if isinstance(error, MemoryError) else unexpected,
        extra={**fields, "request": told.request_id, "error_code": told.code.name},
    )
    return told


def _as_nnrt_error(error: BaseException, method: str) -> NnrtError:
    if isinstance(error, NnrtError):
        return error
    if isinstance(error, MemoryError):
        return OutOfMemory("the daemon's host has not enough memory for it; ask for less", place=method)
    return OperationFailed(f"the daemon failed with {type(error).__name__}; its log has the details", place=method)


def _unexpected(error: BaseException) -> BaseException | None:
    """What failed that nobody foresaw, here or in the backend."""
    if isinstance(error, UnavailableDevice):
        cause = error.__cause__
        return None if isinstance(cause, NnrtError) else cause
    return None if isinstance(error, NnrtError) else error
