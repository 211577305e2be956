"""The lowerings, in the module of their operator's family."""

from nnrt_onnx_lowering.lowering import (  # noqa: F401  (each module registers its lowerings)
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
from nnrt_onnx_lowering.lowering.lowering import LOWERINGS

__all__ = ["LOWERINGS"]
