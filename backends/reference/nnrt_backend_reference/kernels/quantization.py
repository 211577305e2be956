"""Conversion between real and quantized tensors."""

from nnrt_backend_reference.kernels.kernel import AnyArray, Call, kernel
from nnrt_backend_reference.quantized import REAL, dequantize, quantize
from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.quantization import cast_scalings


@kernel(NodeType.QUANT_DTYPE_CAST)
@kernel(NodeType.QUANT_DTYPE_CAST_V2)
def quant_dtype_cast(call: Call, x: AnyArray) -> AnyArray:
    """Dequantize x if it is quantized, then quantize the result if the output is quantized."""
    axis = getattr(call.attrs, "axis", 0)
    read, written = cast_scalings(call.inputs[0], call.outputs[0], axis)
    real = dequantize(x, read) if read else x.astype(REAL)
    return quantize(real, written, call.outputs[0].data_type) if written else real
