"""ONNX Runtime's exceptions, in the module from which applications import them."""

from nnrt_client.onnxruntime.errors import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    RuntimeException,
)
from nnrt_client.onnxruntime.errors import (
    NotSupported as NotImplemented,  # noqa: A004  (ONNX Runtime's name)
)

__all__ = [
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "NoSuchFile",
    "NotImplemented",
    "RuntimeException",
]
