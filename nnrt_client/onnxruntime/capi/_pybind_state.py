"""What libraries import from ONNX Runtime's extension module: the exceptions, and this package's own names."""

from typing import Any

import nnrt_client.onnxruntime as _package
from nnrt_client.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403
from nnrt_client.onnxruntime.io_binding import IOBinding as SessionIOBinding  # noqa: F401


def __getattr__(name: str) -> Any:
    if name in _package.__all__:
        return getattr(_package, name)
    raise AttributeError(f"nnrt_client.onnxruntime has no {name!r}")
