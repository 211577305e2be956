"""Kernels, in one module per family of operators."""

from nnrt_backend_torch.kernels.kernel import KERNELS
from nnrt_hdi.ops import family_modules

family_modules(__name__)

__all__ = ["KERNELS"]
