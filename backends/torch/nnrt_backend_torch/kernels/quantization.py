"""Conversion between real and quantized tensors."""

import torch

from nnrt_backend_torch.kernels.kernel import Call, kernel
from nnrt_backend_torch.quantized import REAL, dequantize, quantize
from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.quantization import cast_scalings


@kernel(NodeType.QUANT_DTYPE_CAST)
@kernel(NodeType.QUANT_DTYPE_CAST_V2)
def quant_dtype_cast(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Dequantize x if it is quantized, then quantize the result if the output is quantized."""
    read, written = cast_scalings(call.inputs[0], call.outputs[0], getattr(call.attrs, "axis", 0))
    real = dequantize(x, read) if read else x.to(REAL)
    return quantize(real, written, call.outputs[0].data_type) if written else real
