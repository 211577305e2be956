"""The lowerings, in the module of their operator's family."""

from nnrt_backend_onnxruntime.lowering import (  # noqa: F401  (each module registers its lowerings)
    activation,
    arithmetic,
    convolution,
    creation,
    elementwise,
    indexing,
    linear,
    logic,
    normalization,
    quantization,
    reduction,
    shape,
    spatial,
)
from nnrt_backend_onnxruntime.lowering.lowering import LOWERINGS

__all__ = ["LOWERINGS"]
