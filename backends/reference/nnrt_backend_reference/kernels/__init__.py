"""The kernels, in the module of their operator's family."""

from nnrt_backend_reference.kernels import (  # noqa: F401  (each module registers its kernels)
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
from nnrt_backend_reference.kernels.kernel import KERNELS

__all__ = ["KERNELS"]
