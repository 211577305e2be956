"""The errors of NNRt: one class per return code, each with the gRPC status it travels as.

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

The code is what counts and travels beside the status (`ErrorDetail`); the status alone decides only where the other end
doesn't speak NNRt, see `nnrt_hdi.wire`.
"""

from typing import ClassVar, NamedTuple

from typing_extensions import Self

from nnrt_hdi.enums import ReturnCode


class NnrtError(Exception):
    """Base of every error the runtime and the daemon raise on purpose.

    `message` says in one sentence what was given and what would be right; `place` names where ("node 3 'conv1'").
    """

    code: ClassVar[ReturnCode]
    grpc_status: ClassVar[str]
    request_id: str = ""
    """What the daemon's log calls the request that failed; empty where no daemon has told of the error."""

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
        """The message, and by which request the daemon's log has the error, without the place."""
        return f"{self.message} (request {self.request_id})" if self.request_id else self.message

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}" if self.place else self.reason

    def copy(self) -> Self:
        """A copy for somebody else: an error that is raised keeps the frames it went through, and what they hold."""
        return self.of_request(self.request_id)

    def at(self, place: str) -> Self:
        """A copy of the error with the place put in front of the one it has."""
        placed = self._placed(f"{place}: {self.place}" if self.place else place)
        placed.request_id = self.request_id
        return placed

    def of_request(self, request_id: str) -> Self:
        """A copy of the error, as a daemon tells it of a request."""
        told = self._placed(self.place)
        told.request_id = request_id
        return told

    def _placed(self, place: str) -> Self:
        """An error of its kind with that place."""
        return type(self)(self.message, place=place)


_CLASS_OF_CODE: dict[ReturnCode, type[NnrtError]] = {}


class OperationFailed(NnrtError, code=ReturnCode.FAILED, status="INTERNAL"):
    """Something failed that no other code describes; a device refused to compile."""


class InvalidParameter(NnrtError, code=ReturnCode.INVALID_PARAMETER, status="INVALID_ARGUMENT"):
    """A value, index, size or shape is not allowed."""


class OutOfMemory(NnrtError, code=ReturnCode.MEMORY_ERROR, status="RESOURCE_EXHAUSTED"):
    """Memory could not be had, or a limit would be passed."""


class OperationForbidden(NnrtError, code=ReturnCode.OPERATION_FORBIDDEN, status="FAILED_PRECONDITION"):
    """The call is not allowed in this state."""


class NullPointer(NnrtError, code=ReturnCode.NULL_PTR, status="INVALID_ARGUMENT"):
    """A required object is missing."""


class InvalidFile(NnrtError, code=ReturnCode.INVALID_FILE, status="DATA_LOSS"):
    """A cache or model file is incomplete, damaged, or was made for another device."""


class InvalidPath(NnrtError, code=ReturnCode.INVALID_PATH, status="NOT_FOUND"):
    """A directory or file is missing or not accessible."""


class TimedOut(NnrtError, code=ReturnCode.TIMEOUT, status="DEADLINE_EXCEEDED"):
    """The call or the run took longer than it was given."""


class Unsupported(NnrtError, code=ReturnCode.UNSUPPORTED, status="UNIMPLEMENTED"):
    """The device doesn't offer this."""


class ConnectionFailed(NnrtError, code=ReturnCode.CONNECTION_EXCEPTION, status="UNAUTHENTICATED"):
    """The daemon was not reached, or the connection broke while the daemon may live on."""


class SaveCacheFailed(NnrtError, code=ReturnCode.SAVE_CACHE_EXCEPTION, status="ABORTED"):
    """A model cache could not be exported or written."""


class DynamicShape(NnrtError, code=ReturnCode.DYNAMIC_SHAPE, status="FAILED_PRECONDITION"):
    """A size was asked of a shape that still has unknown dimensions."""


class UnavailableDevice(NnrtError, code=ReturnCode.UNAVAILABLE_DEVICE, status="UNAVAILABLE"):
    """The device failed, or the daemon that held the object is gone; build again, there or on another device."""


class UnknownHandle(UnavailableDevice, code=ReturnCode.UNAVAILABLE_DEVICE, status="NOT_FOUND"):
    """The daemon doesn't know this session, model or buffer (any more)."""


def too_much(what: str, most_bytes: int, setting: str = "--tensor-bytes", *, place: str = "") -> OutOfMemory:
    """Return the error of a tensor, or of a run, that takes more bytes than a setting of the daemon allows."""
    return OutOfMemory(
        f"{what}; at most {most_bytes} are allowed: run smaller batches, or start the daemon with a larger {setting}",
        place=place,
    )


class Failure(NamedTuple):
    """What went wrong, without the frames that an exception knows."""

    kind: str
    message: str
    # NNRt's; of other errors FAILED.
    code: str
    # The id of the daemon's, under which its log has more; empty for what no daemon told.
    request_id: str

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Tell of an exception."""
        kind, message = type(error).__name__, str(error)
        if isinstance(error, NnrtError):
            return cls(kind, message, error.code.name, error.request_id)
        return cls(kind, message, ReturnCode.FAILED.name, "")


def error_class(code: int) -> type[NnrtError]:
    """The exception of a return code; OperationFailed for a code this version doesn't know."""
    try:
        return _CLASS_OF_CODE[ReturnCode(code)]
    except (KeyError, ValueError):
        return OperationFailed
