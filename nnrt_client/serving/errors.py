"""Errors of a server, and the statuses with which the faces tell them."""

from http import HTTPStatus

from nnrt_hdi.enums import ReturnCode
from nnrt_hdi.errors import (
    ConnectionFailed,
    DynamicShape,
    InvalidParameter,
    InvalidPath,
    NnrtError,
    NullPointer,
    OperationForbidden,
    OutOfMemory,
    TimedOut,
    UnavailableDevice,
    Unsupported,
)


class UnknownModel(InvalidPath, code=ReturnCode.INVALID_PATH, status="NOT_FOUND"):
    """The repository has no such model, or no such version of it."""


class NotReady(UnavailableDevice, code=ReturnCode.UNAVAILABLE_DEVICE, status="UNAVAILABLE"):
    """The model is there, but can't be used now."""


class TooLarge(InvalidParameter, code=ReturnCode.INVALID_PARAMETER, status="INVALID_ARGUMENT"):
    """The request has too many bytes."""


class Busy(OutOfMemory, code=ReturnCode.MEMORY_ERROR, status="RESOURCE_EXHAUSTED"):
    """Too many requests wait; try again later."""


class UnknownCaller(ConnectionFailed, code=ReturnCode.CONNECTION_EXCEPTION, status="UNAUTHENTICATED"):
    """The server doesn't know who calls."""


class Denied(OperationForbidden, code=ReturnCode.OPERATION_FORBIDDEN, status="PERMISSION_DENIED"):
    """The caller's role is too low."""


class AlreadyRegistered(InvalidParameter, code=ReturnCode.INVALID_PARAMETER, status="ALREADY_EXISTS"):
    """The name is that of another region of shared memory."""


# Seconds after which a client that was refused with Busy or NotReady should try again.
RETRY_AFTER_S = 1

# HTTP statuses of error classes, subclasses first.
_HTTP_STATUSES: tuple[tuple[type[NnrtError], HTTPStatus], ...] = (
    (UnknownModel, HTTPStatus.NOT_FOUND),
    (TooLarge, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (OutOfMemory, HTTPStatus.TOO_MANY_REQUESTS),
    (Denied, HTTPStatus.FORBIDDEN),
    (UnknownCaller, HTTPStatus.UNAUTHORIZED),
    (ConnectionFailed, HTTPStatus.SERVICE_UNAVAILABLE),
    (TimedOut, HTTPStatus.GATEWAY_TIMEOUT),
    (UnavailableDevice, HTTPStatus.SERVICE_UNAVAILABLE),
    (Unsupported, HTTPStatus.NOT_IMPLEMENTED),
    (InvalidPath, HTTPStatus.NOT_FOUND),
    (InvalidParameter, HTTPStatus.BAD_REQUEST),
    (NullPointer, HTTPStatus.BAD_REQUEST),
    (DynamicShape, HTTPStatus.BAD_REQUEST),
    (OperationForbidden, HTTPStatus.CONFLICT),
)


def grpc_status(error: NnrtError) -> str:
    """Return the name of gRPC's status of an error. A broken connection to a daemon says nothing about the caller."""
    is_of_daemon = isinstance(error, ConnectionFailed) and not isinstance(error, UnknownCaller)
    return "UNAVAILABLE" if is_of_daemon else error.grpc_status


def http_status(error: NnrtError) -> HTTPStatus:
    """Return the HTTP status of an error."""
    for kind, status in _HTTP_STATUSES:
        if isinstance(error, kind):
            return status
    return HTTPStatus.INTERNAL_SERVER_ERROR
