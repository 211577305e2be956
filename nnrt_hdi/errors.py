"""Errors of NNRt: one class per return code, each with the gRPC status as which it travels.

    NnrtError                          code                    gRPC status
    |-- OperationFailed                FAILED                  INTERNAL
    |-- InvalidParameter               INVALID_PARAMETER       INVALID_ARGUMENT
    |-- OutOfMemory                    MEMORY_ERROR            RESOURCE_EXHAUSTED
    |-- OperationForbidden             OPERATION_FORBIDDEN     FAILED_PRECONDITION
    |-- NullPointer                    NULL_PTR                INVALID_ARGUMENT
    |-- InvalidFile                    INVALID_FILE            DATA_LOSS
    |-- InvalidPath                    INVALID_PATH            NOT_FOUND
    |-- TimedOut                       TIMEOUT                 DEADLINE_EXCEEDED
    |-- Unsupported                    UNSUPPORTED             UNIMPLEMENTED
    |-- ConnectionFailed               CONNECTION_EXCEPTION    UNAUTHENTICATED
    |-- SaveCacheFailed                SAVE_CACHE_EXCEPTION    ABORTED
    |-- DynamicShape                   DYNAMIC_SHAPE           FAILED_PRECONDITION
    `-- UnavailableDevice              UNAVAILABLE_DEVICE      UNAVAILABLE
        `-- UnknownHandle              UNAVAILABLE_DEVICE      NOT_FOUND

The code counts; it travels beside the status (`ErrorDetail`). The status alone decides only if the other end doesn't
speak NNRt; see `nnrt_hdi.wire`.
"""

from typing import ClassVar, NamedTuple

from typing_extensions import Self

from nnrt_hdi.enums import ReturnCode


class NnrtError(Exception):
    """Base of every error that client and daemon raise on purpose.

    `message` says in one sentence what was given and what would be right. `place` says where ("node 3 'conv1'").
    """

    code: ClassVar[ReturnCode]
    grpc_status: ClassVar[str]
    request_id: str = ""
    """Id of the failed request in the daemon's log; empty if the error came from no daemon."""

    def __init_subclass__(cls, code: ReturnCode, status: str) -> None:
        cls.code = code
        cls.grpc_status = status
        _CLASS_OF_CODE.setdefault(code, cls)

    def __init__(self, message: str, *, place: str = "") -> None:
        super().__init__(message, place)
        self.message = message
        self.place = place

    @property
    def reason(self) -> str:
        """The message with the request id, without the place."""
        return f"{self.message} (request {self.request_id})" if self.request_id else self.message

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason

    def copy(self) -> Self:
        """Return a copy to raise elsewhere: a raised error keeps the frames that it passed, and what they hold."""
        return self.of_request(self.request_id)

    def at(self, place: str) -> Self:
        """Return a copy with this place in front of the error's own."""
        placed = self._placed(f"{place}: {self.place}" if self.place else place)
        placed.request_id = self.request_id
        return placed

    def of_request(self, request_id: str) -> Self:
        """Return a copy with the id of a request."""
        told = self._placed(self.place)
        told.request_id = request_id
        return told

    def _placed(self, place: str) -> Self:
        """Return an error of the same class and message with that place."""
        return type(self)(self.message, place=place)


_CLASS_OF_CODE: dict[ReturnCode, type[NnrtError]] = {}


class OperationFailed(NnrtError, code=ReturnCode.FAILED, status="INTERNAL"):
    """A failure that no other class describes, or a device refused to compile."""


class InvalidParameter(NnrtError, code=ReturnCode.INVALID_PARAMETER, status="INVALID_ARGUMENT"):
    """A value, index, size or shape is wrong."""


class OutOfMemory(NnrtError, code=ReturnCode.MEMORY_ERROR, status="RESOURCE_EXHAUSTED"):
    """Memory is exhausted, or a limit would be passed."""


class OperationForbidden(NnrtError, code=ReturnCode.OPERATION_FORBIDDEN, status="FAILED_PRECONDITION"):
    """The call is not allowed in this state, or for this identity."""


class NullPointer(NnrtError, code=ReturnCode.NULL_PTR, status="INVALID_ARGUMENT"):
    """A required object is missing."""


class InvalidFile(NnrtError, code=ReturnCode.INVALID_FILE, status="DATA_LOSS"):
    """A cache or model file is incomplete, damaged, or made for another device."""


class InvalidPath(NnrtError, code=ReturnCode.INVALID_PATH, status="NOT_FOUND"):
    """A directory or file is missing, or can't be opened."""


class TimedOut(NnrtError, code=ReturnCode.TIMEOUT, status="DEADLINE_EXCEEDED"):
    """The call or run took longer than its timeout."""


class Unsupported(NnrtError, code=ReturnCode.UNSUPPORTED, status="UNIMPLEMENTED"):
    """The device doesn't offer this."""


class ConnectionFailed(NnrtError, code=ReturnCode.CONNECTION_EXCEPTION, status="UNAUTHENTICATED"):
    """The daemon refused the client, or the connection broke while the daemon may live on."""


class SaveCacheFailed(NnrtError, code=ReturnCode.SAVE_CACHE_EXCEPTION, status="ABORTED"):
    """A model's cache could not be exported or written."""


class DynamicShape(NnrtError, code=ReturnCode.DYNAMIC_SHAPE, status="FAILED_PRECONDITION"):
    """The size of a shape was requested while dimensions are unknown."""


class UnavailableDevice(NnrtError, code=ReturnCode.UNAVAILABLE_DEVICE, status="UNAVAILABLE"):
    """The device failed, or its daemon died. Build the model again, there or on another device."""


class UnknownHandle(UnavailableDevice, code=ReturnCode.UNAVAILABLE_DEVICE, status="NOT_FOUND"):
    """The daemon doesn't know this session, model or buffer, or has forgotten it."""


def too_much(what: str, most_bytes: int, setting: str = "--tensor-bytes", *, place: str = "") -> OutOfMemory:
    """Return the error for a tensor or run that needs more bytes than a setting of the daemon allows."""
    return OutOfMemory(
        f"{what}; at most {most_bytes} are allowed: run smaller batches, or start the daemon with a larger {setting}",
        place=place,
    )


class Failure(NamedTuple):
    """Description of an exception, without its frames."""

    kind: str
    message: str
    # Name of the ReturnCode; FAILED for other exceptions.
    code: str
    # Id of the request in the daemon's log; empty if the error came from no daemon.
    request_id: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Return the description of an exception."""
        kind, message = type(error).__name__, str(error)
        if isinstance(error, NnrtError):
            return cls(kind, message, error.code.name, error.request_id)
        return cls(kind, message, ReturnCode.FAILED.name, "")


def error_class(code: int) -> type[NnrtError]:
    """Return the class of a return code; OperationFailed for a code that this version doesn't know."""
    try:
        return _CLASS_OF_CODE[ReturnCode(code)]
    except (KeyError, ValueError):
        return OperationFailed
