"""ONNX Runtime backend: runs graphs as ONNX models, on the providers that this ONNX Runtime has."""

import os
from collections.abc import Mapping

from nnrt_hdi.backend import Backend, BackendSkipped, FoundDevice

__all__ = ["create", "devices"]


def create(options: Mapping[str, str]) -> Backend:
    """Return the backend; the entry point's factory. Options: `provider`, `device_index`, `threads`, `name`."""
    _require_libraries()
    from nnrt_backend_onnxruntime.backend import create

    return create(options)


def devices() -> list[FoundDevice]:
    """Return the devices of this host, for the entry point."""
    _require_libraries()
    from nnrt_backend_onnxruntime.devices import devices

    return devices()


def _require_libraries() -> None:
    # Otherwise ONNX Runtime writes a record of its use into the user's home directory (1.32).
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise BackendSkipped(f"{error}; install nnrt[onnxruntime]") from error
