"""Lowerings, in one module per family of operators."""

from nnrt_hdi.ops import family_modules
from nnrt_onnx_lowering.lowering.lowering import LOWERINGS

family_modules(__name__)

__all__ = ["LOWERINGS"]
