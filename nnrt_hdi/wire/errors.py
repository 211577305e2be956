"""Errors as gRPC statuses and ErrorDetail messages."""

from collections.abc import Callable
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc import status_pb2
from grpc_status import rpc_status

from nnrt_hdi.errors import (
    ConnectionFailed,
    InvalidParameter,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    TimedOut,
    UnavailableDevice,
    UnknownHandle,
    Unsupported,
    error_class,
)
from nnrt_hdi.v2 import error_pb2
from nnrt_hdi.wire.enums import number

# Errors travel in trailers, for which gRPC allows 8 KiB, encoded at a third or more above their size.
_MAX_MESSAGE_BYTES = 2048
_MAX_PLACE_BYTES = 512
_MAX_STATUS_BYTES = 256
_MAX_REQUEST_ID_BYTES = 64

ValueT = TypeVar("ValueT")

# Classes by status, for calls without an ErrorDetail.
_ERROR_OF_STATUS: dict[grpc.StatusCode, type[NnrtError]] = {
    grpc.StatusCode.UNAVAILABLE: UnavailableDevice,
    grpc.StatusCode.DEADLINE_EXCEEDED: TimedOut,
    grpc.StatusCode.RESOURCE_EXHAUSTED: OutOfMemory,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidParameter,
    grpc.StatusCode.OUT_OF_RANGE: InvalidParameter,
    grpc.StatusCode.FAILED_PRECONDITION: OperationForbidden,
    grpc.StatusCode.UNIMPLEMENTED: Unsupported,
    grpc.StatusCode.NOT_FOUND: UnknownHandle,
    grpc.StatusCode.UNAUTHENTICATED: ConnectionFailed,
    grpc.StatusCode.PERMISSION_DENIED: ConnectionFailed,
}


def error_detail(error: NnrtError) -> error_pb2.ErrorDetail:
    return error_pb2.ErrorDetail(
        code=number(error.code),
        message=shortened(error.message, _MAX_MESSAGE_BYTES),
        place=shortened(error.place, _MAX_PLACE_BYTES),
        request_id=error.request_id,
    )


def error_from_detail(detail: error_pb2.ErrorDetail) -> NnrtError:
    error = error_class(detail.code)(detail.message, place=detail.place)
    error.request_id = shortened(detail.request_id, _MAX_REQUEST_ID_BYTES)
    return error


def rich_status(error: NnrtError) -> grpc.Status:
    """Return the error as the status that aborts a call."""
    status = status_pb2.Status(
        code=grpc.StatusCode[error.grpc_status].value[0], message=shortened(str(error), _MAX_STATUS_BYTES)
    )
    status.details.add().Pack(error_detail(error))
    return rpc_status.to_status(status)


def shortened(text: str, most_bytes: int) -> str:
    """Return the text if its UTF-8 is short enough, else its beginning and end."""
    data = text.encode(errors="backslashreplace")
    if len(data) <= most_bytes:
        return data.decode()
    half = (most_bytes - 5) // 2
    return f"{data[:half].decode(errors='ignore')} ... {data[-half:].decode(errors='ignore')}"


def error_detail_of(call: grpc.Call) -> NnrtError | None:
    """Return the error that a daemon put into a failed call; None if the failure is gRPC's own or unreadable."""
    try:
        status = rpc_status.from_call(call)
        for entry in status.details if status else ():
            detail = error_pb2.ErrorDetail()
            if entry.Unpack(detail):
                return error_from_detail(detail)
    except (ValueError, DecodeError):
        return None
    return None


def error_of_status(call: grpc.Call) -> NnrtError:
    """Return the error of a failed call by its status alone."""
    return _ERROR_OF_STATUS.get(call.code(), OperationFailed)(f"{call.code().name}: {call.details()}")


def at_place(place: str, convert: Callable[[], ValueT]) -> ValueT:
    """Return the result of `convert`; add the place to its errors."""
    try:
        return convert()
    except NnrtError as error:
        raise error.at(place) from error
