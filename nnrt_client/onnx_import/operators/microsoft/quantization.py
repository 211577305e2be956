"""Operators on quantized tensors that ONNX Runtime's quantizer writes."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.convolution import Window, average_pool, global_average_pool
from nnrt_client.onnx_import.operators.linear import gemm
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import MICROSOFT, onnx_operator
from nnrt_client.onnx_import.operators.quantization import (
    as_quant,
    dequantize_linear,
    dynamic_quantize_linear,
    matmul_integer,
    output_quant,
    qlinear_conv,
    quantize_linear,
)
from nnrt_client.onnx_import.operators.shape import concat
from nnrt_client.onnx_import.shapes.dims import product
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value, mark_quantized

_ARITHMETIC = {"QLinearAdd": OperationType.ADD, "QLinearMul": OperationType.MUL}
_FIRST_OF_ONE_AXIS = 13
_FLOAT32 = np.dtype(np.float32)


@onnx_operator("QuantizeLinear", domain=MICROSOFT)
def quantize(op: NodeBuilder, x: Value, scale: Value, zero_point: Value | None = None, *, axis: int = 1) -> Value:
    """Import like ONNX's QuantizeLinear."""
    return quantize_linear(op, x, scale, zero_point, axis=axis)


@onnx_operator("DequantizeLinear", domain=MICROSOFT)
def dequantize(op: NodeBuilder, x: Value, scale: Value, zero_point: Value | None = None, *, axis: int = 1) -> Value:
    """Import like ONNX's DequantizeLinear."""
    return dequantize_linear(op, x, scale, zero_point, axis=axis)


@onnx_operator(
    *_ARITHMETIC,
    domain=MICROSOFT,
    doc={name: f"{kind.name} on quantized tensors." for name, kind in _ARITHMETIC.items()},
)
def arithmetic(
    op: NodeBuilder,
    a: Value,
    a_scale: Value,
    a_zero_point: Value | None,
    b: Value,
    b_scale: Value,
    b_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None = None,
) -> Value:
    given = as_quant(op, a, a_scale, a_zero_point), as_quant(op, b, b_scale, b_zero_point)
    return mark_quantized(op.apply(_ARITHMETIC[op.type], *given, quant=output_quant(a, y_scale, y_zero_point)))


@onnx_operator("QLinearSigmoid", domain=MICROSOFT)
def sigmoid(
    op: NodeBuilder,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None = None,
) -> Value:
    """SIGMOID on quantized tensors."""
    given = as_quant(op, x, x_scale, x_zero_point)
    return mark_quantized(op.apply(OperationType.SIGMOID, given, quant=output_quant(x, y_scale, y_zero_point)))


@onnx_operator("QLinearLeakyRelu", domain=MICROSOFT)
def leaky_relu(
    op: NodeBuilder,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    alpha: float = 0.01,
) -> Value:
    """LEAKY_RELU on quantized tensors."""
    given, quant = as_quant(op, x, x_scale, x_zero_point), output_quant(x, y_scale, y_zero_point)
    return mark_quantized(op.apply(OperationType.LEAKY_RELU, given, alpha=alpha, quant=quant))


@onnx_operator("QLinearSoftmax", domain=MICROSOFT)
def softmax(
    op: NodeBuilder,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value,
    *,
    axis: int = -1,
    opset: int,
) -> Value:
    """SOFTMAX on quantized tensors, between RESHAPE if it covers several dimensions."""
    given, at = as_quant(op, x, x_scale, x_zero_point), axis % x.rank
    if opset < _FIRST_OF_ONE_AXIS:
        given = op.reshape(given, (*x.dims[:at], product(x.dims[at:])))
    y = op.apply(OperationType.SOFTMAX, given, axis=at, quant=output_quant(x, y_scale, y_zero_point))
    return mark_quantized(op.reshape(y, x.dims))


@onnx_operator("QLinearConcat", domain=MICROSOFT)
def concatenation(op: NodeBuilder, y_scale: Value, y_zero_point: Value, *parts: Value, axis: int) -> Value:
    """CONCAT of quantized tensors."""
    if len(parts) % 3:
        refuse(f"it has {len(parts)} inputs behind the output's; give each part its scale and zero point")
    columns = (parts[at::3] for at in range(3))
    given = [as_quant(op, x, scale, zero_point) for x, scale, zero_point in zip(*columns, strict=True)]
    op.quant = output_quant(parts[0], y_scale, y_zero_point)
    return mark_quantized(concat(op, *given, axis=axis))


@onnx_operator("QLinearWhere", domain=MICROSOFT)
def where(
    op: NodeBuilder,
    condition: Value,
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    y: Value,
    y_scale: Value,
    y_zero_point: Value,
    z_scale: Value,
    z_zero_point: Value,
) -> Value:
    """WHERE on quantized tensors."""
    given = as_quant(op, x, x_scale, x_zero_point), as_quant(op, y, y_scale, y_zero_point)
    return mark_quantized(
        op.apply(OperationType.WHERE, condition, *given, quant=output_quant(x, z_scale, z_zero_point))
    )


@onnx_operator("QLinearGlobalAveragePool", domain=MICROSOFT)
def pool_of_all(
    op: NodeBuilder,
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
    *,
    channels_last: int = 0,
) -> Value:
    """AVG_POOL of the whole image on quantized tensors; REDUCE_MEAN unless the image has two dimensions."""
    given = _channels_first(op, as_quant(op, x, x_scale, x_zero_point), channels_last)
    op.quant = output_quant(x, y_scale, y_zero_point)
    return mark_quantized(_channels_last(op, global_average_pool(op, given), channels_last))


@onnx_operator("QLinearAveragePool", domain=MICROSOFT)
def pool(
    op: NodeBuilder,
    x: Value,
    x_scale: Value,
    x_zero_point: Value | None,
    y_scale: Value,
    y_zero_point: Value | None = None,
    *,
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    window: Window,
) -> Value:
    """AVG_POOL on quantized tensors, after PAD if the padding counts."""
    given = _channels_first(op, as_quant(op, x, x_scale, x_zero_point), channels_last)
    op.quant = output_quant(x, y_scale, y_zero_point)
    y = average_pool(op, given, ceil_mode=ceil_mode, count_include_pad=count_include_pad, window=window)
    return mark_quantized(_channels_last(op, y, channels_last))


@onnx_operator("QLinearConv", domain=MICROSOFT)
def convolution(
    op: NodeBuilder,
    x: Value,
    x_scale: Value,
    x_zero_point: Value,
    weight: Value,
    weight_scale: Value,
    weight_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
    bias: Value | None = None,
    *,
    channels_last: int = 0,
    group: int = 1,
    window: Window,
) -> Value:
    """ONNX's QLinearConv, between TRANSPOSE if the channels are last."""
    images = x
    if channels_last:
        images = _channels_first(op, as_quant(op, x, x_scale, x_zero_point), channels_last)
    y = qlinear_conv(
        op,
        images,
        x_scale,
        x_zero_point,
        weight,
        weight_scale,
        weight_zero_point,
        y_scale,
        y_zero_point,
        bias,
        group=group,
        window=window,
    )
    return mark_quantized(_channels_last(op, y, channels_last))


@onnx_operator("QGemm", domain=MICROSOFT)
def full_connection(
    op: NodeBuilder,
    a: Value,
    a_scale: Value,
    a_zero_point: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value,
    c: Value | None = None,
    y_scale: Value | None = None,
    y_zero_point: Value | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803  (ONNX's names)
    transB: int = 0,  # noqa: N803
) -> Value:
    """FULL_CONNECTION on quantized tensors if alpha, transA and the output allow it; else as Gemm of real numbers."""
    channels = 0 if transB else 1
    if y_scale is not None and alpha == 1 and not transA:
        given = as_quant(op, a, a_scale, a_zero_point), as_quant(op, b, b_scale, b_zero_point, channels)
        op.quant = output_quant(a, y_scale, y_zero_point)
        return mark_quantized(gemm(op, *given, c, transB=transB))
    real = (
        dequantize_linear(op, a, a_scale, a_zero_point),
        dequantize_linear(op, b, b_scale, b_zero_point, axis=channels),
    )
    if c is not None:
        scale = op.apply(OperationType.MUL, op.apply(OperationType.MUL, a_scale, b_scale), op.number(alpha, _FLOAT32))
        c = op.apply(OperationType.MUL, op.cast(c, _FLOAT32), scale)
    y = gemm(op, *real, c, alpha=alpha, transA=transA, transB=transB)
    return y if y_scale is None else quantize_linear(op, y, y_scale, y_zero_point)


@onnx_operator("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_integer_to_float(
    op: NodeBuilder,
    a: Value,
    b: Value,
    a_scale: Value,
    b_scale: Value,
    a_zero_point: Value | None = None,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """MatMulInteger, then CAST, MUL by the scales, and ADD of the bias."""
    y = op.cast(matmul_integer(op, a, b, a_zero_point, b_zero_point), a_scale.dtype)
    y = op.apply(OperationType.MUL, y, op.apply(OperationType.MUL, a_scale, b_scale))
    return y if bias is None else op.apply(OperationType.ADD, y, bias)


@onnx_operator("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamically_quantized_matmul(
    op: NodeBuilder,
    a: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value | None = None,
    bias: Value | None = None,
) -> Value:
    """DynamicQuantizeLinear, then MatMulIntegerToFloat."""
    integers, scale, zero_point = dynamic_quantize_linear(op, a)
    return matmul_integer_to_float(op, integers, b, scale, b_scale, zero_point, b_zero_point, bias)


def _channels_first(op: NodeBuilder, x: Value, channels_last: int) -> Value:
    return mark_quantized(op.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)])) if channels_last else x


def _channels_last(op: NodeBuilder, y: Value, channels_last: int) -> Value:
    return op.transpose(y, [0, *range(2, y.rank), 1]) if channels_last else y
