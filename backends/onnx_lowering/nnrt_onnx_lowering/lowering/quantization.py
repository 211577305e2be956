"""Conversion between real and quantized tensors."""

from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.quantization import cast_scalings
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.lowering import Call, lowering
from nnrt_onnx_lowering.quantized import dequantize, quantize
from nnrt_onnx_lowering.value import FLOAT32, Value


@lowering(NodeType.QUANT_DTYPE_CAST)
@lowering(NodeType.QUANT_DTYPE_CAST_V2)
def quant_dtype_cast(op: Onnx, call: Call, x: Value) -> Value:
    """Dequantize x if it is quantized, then quantize the result if the output is quantized."""
    axis = getattr(call.attrs, "axis", 0)
    read, written = cast_scalings(call.inputs[0], call.outputs[0], axis)
    real = dequantize(op, x, read) if read else x.cast(FLOAT32)
    return quantize(op, real, written, call.outputs[0].numpy_dtype, call.outputs[0].rank) if written else real
