"""ONNX Runtime's exceptions. They are NnrtErrors too, so handlers of either kind catch them.

    NNRt                   ONNX Runtime
    OperationFailed        Fail
    TimedOut               RunTimedOut, a Fail
    InvalidParameter       InvalidArgument
    InvalidPath            NoSuchFile
    InvalidFile            InvalidProtobuf
    Unsupported            NotSupported, which is NotImplemented in `capi`
    OutOfMemory            RuntimeException
    UnavailableDevice      EPFail
    ConnectionFailed       EngineError

For errors that ONNX Runtime raises as Python's ValueError, TypeError or RuntimeError, the class here inherits from it.
"""

from typing import ClassVar

from nnrt_hdi.errors import (
    ConnectionFailed,
    InvalidFile,
    InvalidParameter,
    InvalidPath,
    NnrtError,
    NullPointer,
    OperationFailed,
    OutOfMemory,
    TimedOut,
    UnavailableDevice,
    Unsupported,
)


class OnnxRuntimeError(NnrtError, code=OperationFailed.code, status=OperationFailed.grpc_status):
    """Base of the exceptions that have a number in ONNX Runtime. The message begins with this number."""

    prefix: ClassVar[str] = ""

    def __str__(self) -> str:
        return f"[ONNXRuntimeError] : {self.prefix} : {super().__str__()}"


class Fail(OnnxRuntimeError, OperationFailed, code=OperationFailed.code, status=OperationFailed.grpc_status):
    """A run failed, or was terminated."""

    prefix = "1 : FAIL"


class RunTimedOut(Fail, TimedOut, code=TimedOut.code, status=TimedOut.grpc_status):
    """A call or a run exceeded its timeout."""


class InvalidArgument(
    OnnxRuntimeError, InvalidParameter, code=InvalidParameter.code, status=InvalidParameter.grpc_status
):
    """An input, a name or an option does not fit the model or the session."""

    prefix = "2 : INVALID_ARGUMENT"


class NoSuchFile(OnnxRuntimeError, InvalidPath, code=InvalidPath.code, status=InvalidPath.grpc_status):
    """The model, or data beside it, is missing or not accessible."""

    prefix = "3 : NO_SUCHFILE"


class EngineError(OnnxRuntimeError, ConnectionFailed, code=ConnectionFailed.code, status=ConnectionFailed.grpc_status):
    """The daemon was not reached, or the connection broke."""

    prefix = "5 : ENGINE_ERROR"


class RuntimeException(OnnxRuntimeError, OutOfMemory, code=OutOfMemory.code, status=OutOfMemory.grpc_status):
    """Memory ran out, on this host or on the device."""

    prefix = "6 : RUNTIME_EXCEPTION"


class InvalidProtobuf(OnnxRuntimeError, InvalidFile, code=InvalidFile.code, status=InvalidFile.grpc_status):
    """The file is no ONNX model, or is damaged."""

    prefix = "7 : INVALID_PROTOBUF"


class NotSupported(OnnxRuntimeError, Unsupported, code=Unsupported.code, status=Unsupported.grpc_status):
    """The device or this package doesn't support a call or an option."""

    prefix = "9 : NOT_IMPLEMENTED"


class InvalidGraph(NotSupported, code=Unsupported.code, status=Unsupported.grpc_status):
    """The model has nodes that the device can't run; the text lists them."""

    prefix = "10 : INVALID_GRAPH"


class EPFail(OnnxRuntimeError, UnavailableDevice, code=UnavailableDevice.code, status=UnavailableDevice.grpc_status):
    """The device failed, or its daemon died."""

    prefix = "11 : EP_FAIL"


# ---- errors that ONNX Runtime raises as Python's own


class MissingInputs(InvalidParameter, ValueError, code=InvalidParameter.code, status=InvalidParameter.grpc_status):
    """A run lacks inputs."""


class WrongType(InvalidParameter, TypeError, code=InvalidParameter.code, status=InvalidParameter.grpc_status):
    """An object has a type that the call doesn't accept."""


class BadBinding(InvalidParameter, RuntimeError, code=InvalidParameter.code, status=InvalidParameter.grpc_status):
    """A name, value, memory or entry doesn't exist or doesn't fit."""


class BoundRunFailed(Fail, RuntimeError, code=OperationFailed.code, status=OperationFailed.grpc_status):
    """A run of an IOBinding failed."""


_COUNTERPARTS: tuple[tuple[type[NnrtError], type[OnnxRuntimeError]], ...] = (
    (UnavailableDevice, EPFail),
    (ConnectionFailed, EngineError),
    (InvalidParameter, InvalidArgument),
    (NullPointer, InvalidArgument),
    (InvalidPath, NoSuchFile),
    (InvalidFile, InvalidProtobuf),
    (Unsupported, NotSupported),
    (OutOfMemory, RuntimeException),
    (TimedOut, RunTimedOut),
)


def _is_translated(error: NnrtError) -> bool:
    return isinstance(error, OnnxRuntimeError | MissingInputs | WrongType | BadBinding)


def translate(error: NnrtError, unsupported: type[OnnxRuntimeError] = NotSupported) -> NnrtError:
    """Return ONNX Runtime's counterpart of an error, or the error itself if it has a class of this module already."""
    if _is_translated(error):
        return error
    kind = next((theirs for ours, theirs in _COUNTERPARTS if isinstance(error, ours)), Fail)
    if kind is NotSupported:
        kind = unsupported
    return kind(error.message, place=error.place).of_request(error.request_id)


def translate_run_error(error: NnrtError) -> NnrtError:
    """Translate an error of a run whose inputs were valid. InvalidParameter then becomes Fail, as in ONNX Runtime."""
    if isinstance(error, InvalidParameter | NullPointer) and not _is_translated(error):
        return Fail(error.message, place=error.place).of_request(error.request_id)
    return translate(error)
