"""ONNX Runtime's own package, for computations in this process."""

from typing import Any

from nnrt_hdi.errors import Unsupported


def require_onnxruntime(what: str = "parts of a model run here") -> Any:
    """Return the package onnxruntime; raise Unsupported if it is missing or another package has its name."""
    try:
        import onnxruntime
    except ImportError as error:
        raise Unsupported(f"{what} in the package onnxruntime; install nnrt[onnxruntime]") from error
    if onnxruntime.__name__ != "onnxruntime":
        raise Unsupported(
            f"{what} in the package onnxruntime, but sys.modules['onnxruntime'] is {onnxruntime.__name__}; do so in a"
            " process where it is ONNX Runtime"
        )
    return onnxruntime
