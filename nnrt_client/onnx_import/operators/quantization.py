"""Quantization: real numbers as integers with a scale and a zero point."""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any

import numpy as np
from onnx import TensorProto

from nnrt_client.enums import DataType, OperationType
from nnrt_client.onnx_import.operators.convolution import Window, conv
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Dtype, Quantized, Value, constant_value, data_type_of, mark_quantized
from nnrt_client.tensors.quant_param import QuantParam
from nnrt_hdi.tensor import Array

Ints = tuple[int, ...]

_INT32, _FLOAT32, _FLOAT64 = np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.float64)
# Number of values of 4 bits; largest distance of 8-bit integers from a zero point; FLOAT32 is exact below this integer.
_FOUR_BITS, _LARGEST_DISTANCE, _LARGEST_EXACT = 16, 255, 1 << 24
_UINT8 = np.dtype(np.uint8)
_EIGHT_BITS = (np.dtype(np.int8), _UINT8)


@onnx_operator("QuantizeLinear", since=10)
def quantize_linear(
    op: NodeBuilder,
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Value:
    """Fused, or QUANT_DTYPE_CAST, if DequantizeLinear reads it; else DIV, ROUND (halves to even), ADD, CLIP and CAST.

    It is fused into the operation before it if that can be computed on quantized tensors.
    """
    if block_size:
        refuse(f"its block_size is {block_size}; NNRt has one scale for a tensor, or one for each channel")
    dtype = zero_point.dtype if zero_point is not None else op.dtype(output_dtype or TensorProto.UINT8)
    if dtype.kind not in "iu":
        refuse(f"it quantizes to {dtype}; NNRt has integers")
    at = axis % x.rank if x.rank else 0
    y = op.lazy(dtype, x.dims, lambda: _round(op, x, scale, zero_point, at, dtype))
    params = _known_params(scale, zero_point)
    if dtype in _EIGHT_BITS and params is not None and x.dtype.kind == "f":
        y.quantized = Quantized(op.lazy(dtype, x.dims, lambda: _quantize(op, x, dtype, *params, at)), *params, at)
        y.quantized.tensor.quantized = y.quantized
    return y


def _quantize(op: NodeBuilder, x: Value, dtype: Dtype, scales: tuple[float, ...], points: Ints, axis: int) -> Value:
    source, target = data_type_of(x.dtype), data_type_of(dtype)
    param = QuantParam(scales, points)
    return op.apply(OperationType.QUANT_DTYPE_CAST, x, src_t=source, dst_t=target, axis=axis, quant=param, dims=x.dims)


def _round(op: NodeBuilder, x: Value, scale: Value, zero_point: Value | None, axis: int, dtype: Dtype) -> Value:
    """Quantize x to integers in a plain tensor, rounded as in ONNX."""
    shape = _scale_shape(x.rank, axis, scale)
    factor = op.reshape(op.cast(scale, _FLOAT32), shape)
    y = op.apply(OperationType.ROUND, op.apply(OperationType.DIV, op.cast(x, _FLOAT32), factor))
    if zero_point is not None:
        y = op.apply(OperationType.ADD, y, op.reshape(op.cast(zero_point, _FLOAT32), shape))
    limits = np.iinfo(dtype.name)
    return op.cast(op.apply(OperationType.CLIP, y, min=float(limits.min), max=float(limits.max)), dtype)


@onnx_operator("DequantizeLinear", since=10)
def dequantize_linear(
    op: NodeBuilder,
    x: Value,
    scale: Value,
    zero_point: Value | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Value:
    """No operation, a constant, or QUANT_DTYPE_CAST for quantized tensors; CAST, SUB and MUL for other integers.

    It is no operation if the reader takes the quantized tensor, and a constant if x is one.
    """
    if block_size:
        refuse(f"its block_size is {block_size}; NNRt has one scale for a tensor, or one for each channel")
    dtype = op.dtype(output_dtype) if output_dtype else scale.dtype
    at = axis % x.rank if x.rank else 0
    params = _known_params(scale, zero_point)
    behind = x.quantized
    if params is None or dtype != _FLOAT32 or x.dtype not in (*_EIGHT_BITS, _INT32):
        return _to_real(op, x, scale, zero_point, at, dtype)
    if x.is_constant:
        assert x.array is not None
        if len(params[0]) not in (1, x.shape[at] if x.rank else 1):
            refuse(f"it has {len(params[0])} scales, and {x} no such dimension {at}")
        param = None if x.dtype == _INT32 else QuantParam(*params)
        integers = op.constant(x.array, quant=param)
        y = constant_value(op.model, lambda: _dequantize_constant(x, *params, at), (_FLOAT32, x.shape))
        y.quantized = integers.quantized = Quantized(integers, *params, at)
        return y
    if behind is not None and (behind.scales, behind.zero_points) == params:
        tensor = behind.tensor
        y = op.lazy(dtype, x.dims, lambda: _dequantize(op, tensor, at))
        y.quantized = behind
        return y
    return _to_real(op, x, scale, zero_point, at, dtype)


def _dequantize(op: NodeBuilder, x: Value, axis: int) -> Value:
    source = data_type_of(x.dtype)
    return op.apply(OperationType.QUANT_DTYPE_CAST, x, src_t=source, dst_t=DataType.FLOAT32, axis=axis, dims=x.dims)


def _dequantize_constant(x: Value, scales: tuple[float, ...], points: Ints, axis: int) -> Any:
    """Return the real numbers that constant integers represent."""
    assert x.array is not None
    shape = () if len(scales) == 1 else tuple(len(scales) if at == axis else 1 for at in range(x.rank))
    factor, point = np.reshape(np.array(scales, np.float32), shape), np.reshape(np.array(points, np.int64), shape)
    return (x.array.astype(np.int64) - point).astype(np.float32) * factor


def _to_real(op: NodeBuilder, x: Value, scale: Value, zero_point: Value | None, axis: int, dtype: Dtype) -> Value:
    shape = _scale_shape(x.rank, axis, scale)
    y = op.cast(x, _FLOAT32)
    if zero_point is not None:
        y = op.apply(OperationType.SUB, y, op.reshape(op.cast(zero_point, _FLOAT32), shape))
    return op.cast(op.apply(OperationType.MUL, y, op.reshape(op.cast(scale, _FLOAT32), shape)), dtype)


@onnx_operator("QLinearConv", since=10)
def qlinear_conv(
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
    group: int = 1,
    window: Window,
) -> Value:
    """CONV2D on quantized tensors; plain integers are quantized first, by CAST, SUB, MUL and QUANT_DTYPE_CAST."""
    given = as_quant(op, x, x_scale, x_zero_point, 0), as_quant(op, weight, weight_scale, weight_zero_point, 0)
    op.quant = output_quant(x, y_scale, y_zero_point)
    y = conv(
        op,
        *given,
        bias,
        group=group,
        window=window,
    )
    return mark_quantized(y)


@onnx_operator("QLinearMatMul", since=10)
def qlinear_matmul(
    op: NodeBuilder,
    a: Value,
    a_scale: Value,
    a_zero_point: Value,
    b: Value,
    b_scale: Value,
    b_zero_point: Value,
    y_scale: Value,
    y_zero_point: Value,
) -> Value:
    """MATMUL on quantized tensors; plain integers are quantized first, by CAST, SUB, MUL and QUANT_DTYPE_CAST."""
    given = (as_quant(op, a, a_scale, a_zero_point, a.rank - 2), as_quant(op, b, b_scale, b_zero_point, b.rank - 1))
    return mark_quantized(op.apply(OperationType.MATMUL, *given, quant=output_quant(a, y_scale, y_zero_point)))


def output_quant(x: Value, scale: Value, zero_point: Value | None) -> QuantParam:
    """Return the quantization of a result. Raise Unsupported unless it has the data type of x and one known scale."""
    params = _known_params(scale, zero_point)
    dtype = _UINT8 if zero_point is None else zero_point.dtype
    if params is None or len(params[0]) != 1 or dtype != x.dtype:
        refuse("its output is not quantized with one known scale, in the data type of its input")
    return QuantParam(*params)


def as_quant(op: NodeBuilder, x: Value, scale: Value, zero_point: Value | None, axis: int = 0) -> Value:
    """Return integers as a quantized tensor. Raise Unsupported if NNRt can't represent their quantization."""
    params = _known_params(scale, zero_point)
    if params is None or x.dtype not in _EIGHT_BITS:
        refuse(f"{x} is not quantized to 8 bits by scales and zero points that are known before a run")
    if len(params[0]) > 1 and not x.is_constant:
        refuse(f"{x} has {len(params[0])} scales; NNRt has several only for a constant weight")
    if x.is_constant:
        assert x.array is not None
        y = op.constant(x.array, quant=QuantParam(*params))
    elif x.quantized is not None and x.quantized.is_like(QuantParam(*params)):
        return x.quantized.tensor
    else:
        y = _quantize(op, _to_real(op, x, scale, zero_point, axis, _FLOAT32), x.dtype, *params, axis)
    y.quantized = Quantized(y, *params, axis)
    return y


@onnx_operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(op: NodeBuilder, x: Value) -> tuple[Value, Value, Value]:
    """QuantizeLinear; scale and zero point by REDUCE_MIN, REDUCE_MAX, MINIMUM, MAXIMUM, SUB, DIV and WHERE."""
    zero, steps = op.number(0, _FLOAT32), op.number(_LARGEST_DISTANCE, _FLOAT32)
    axes = np.arange(x.rank)
    low = op.apply(OperationType.MINIMUM, op.apply(OperationType.REDUCE_MIN, x, axes), zero)
    high = op.apply(OperationType.MAXIMUM, op.apply(OperationType.REDUCE_MAX, x, axes), zero)
    scale = op.apply(OperationType.DIV, op.apply(OperationType.SUB, high, low), steps)
    # The scale is 1 if all elements are zero, as in ONNX Runtime.
    one = op.number(1, _FLOAT32)
    scale = op.apply(OperationType.WHERE, op.apply(OperationType.EQUAL, scale, zero), one, scale)
    point = op.apply(OperationType.DIV, op.apply(OperationType.SUB, zero, low), scale)
    zero_point = op.cast(op.apply(OperationType.ROUND, point), _UINT8)
    return quantize_linear(op, x, scale, zero_point), scale, zero_point


@onnx_operator("MatMulInteger", since=10)
def matmul_integer(
    op: NodeBuilder, a: Value, b: Value, a_zero_point: Value | None = None, b_zero_point: Value | None = None
) -> Value:
    """MATMUL, after CAST to INT32 and SUB of the zero points that are not 0."""
    if a_zero_point is not None and a_zero_point.rank == 1 and a_zero_point.dims != (1,):
        a_zero_point = op.unsqueeze(a_zero_point, [1])
    return op.apply(
        OperationType.MATMUL,
        _center(op, a, a_zero_point, _INT32),
        _center(op, b, b_zero_point, _INT32),
    )


@onnx_operator("ConvInteger", since=10)
def conv_integer(
    op: NodeBuilder,
    x: Value,
    weight: Value,
    x_zero_point: Value | None = None,
    weight_zero_point: Value | None = None,
    *,
    group: int = 1,
    window: Window,
) -> Value:
    """SUB of the zero points, CONV2D in FLOAT32 or FLOAT64, ROUND and CAST to INT32.

    FLOAT32 is used if it holds the sums exactly, perhaps with the weight split into two halves of 4 bits. There is no
    ROUND and CAST if the reader casts the sums to FLOAT32.
    """
    if weight_zero_point is not None and weight_zero_point.rank == 1:
        weight_zero_point = op.reshape(weight_zero_point, (*weight_zero_point.dims, *[1] * (weight.rank - 1)))
    digits, dtype = _split_exactly(weight, weight_zero_point)
    centered = _center(op, x, x_zero_point, dtype)
    convolved = partial(
        conv,
        op,
        centered,
        group=group,
        window=window,
    )
    sums = [
        (factor, convolved(_center(op, weight, weight_zero_point, dtype) if digit is None else op.constant(digit)))
        for factor, digit in digits
    ]
    # Rounding gives the exact sum, in whatever order a device multiplies and adds.
    y = op.lazy(
        _INT32,
        sums[0][1].dims,
        lambda: _sum(op, [(factor, op.cast(op.apply(OperationType.ROUND, one), _INT32)) for factor, one in sums]),
    )
    y.real = _sum(op, sums)
    return y


def _sum(op: NodeBuilder, parts: Sequence[tuple[int, Value]]) -> Value:
    """Sum values times their factors."""
    scaled = [
        part if factor == 1 else op.apply(OperationType.MUL, part, op.number(factor, part.dtype))
        for factor, part in parts
    ]
    return reduce(partial(op.apply, OperationType.ADD), scaled)


def _split_exactly(weight: Value, zero_point: Value | None) -> tuple[list[tuple[int, Array | None]], Dtype]:
    """Split a weight so that a floating-point type holds its sums of products with 8-bit integers exactly.

    Returns:
        Pairs of a factor and a part, and the type. The weight is the sum of the parts times their factors. None as
        a part stands for the weight itself.
    """
    point = np.zeros((), np.int32) if zero_point is None else zero_point.array
    if weight.array is None or point is None:
        return [(1, None)], _FLOAT64
    taps = weight.array.astype(np.int32) - point.astype(np.int32)
    for factor in (1, _FOUR_BITS):
        high, low = np.divmod(taps, factor)
        parts = [(factor, high)] if factor == 1 else [(factor, high), (1, low)]
        if all(_largest_sum(part) < _LARGEST_EXACT for _, part in parts):
            return [(by, part.astype(np.float32)) for by, part in parts], _FLOAT32
    return [(1, None)], _FLOAT64


def _largest_sum(taps: Array) -> int:
    """Return the largest absolute value of a partial sum of products, in whatever order a device adds them."""
    of_channels = np.abs(taps).reshape(len(taps), -1).sum(axis=1, dtype=np.int64)
    return _LARGEST_DISTANCE * int(of_channels.max(initial=0))


def _center(op: NodeBuilder, x: Value, zero_point: Value | None, dtype: Dtype) -> Value:
    wide = op.cast(x, dtype)
    if x.is_constant:
        # The model keeps the weight in 8 bits; the device casts it.
        wide = op.apply(OperationType.CAST, x, np.array(data_type_of(dtype).value, np.int32), dims=x.dims)
    if zero_point is None or (zero_point.array is not None and not zero_point.array.any()):
        return wide
    return op.apply(OperationType.SUB, wide, op.cast(zero_point, dtype))


def _known_params(scale: Value, zero_point: Value | None) -> tuple[tuple[float, ...], Ints] | None:
    """Return scales and zero points, or None if they are known only in a run or don't fit each other."""
    if scale.array is None or scale.rank > 1 or (zero_point is not None and zero_point.array is None):
        return None
    scales = tuple(scale.array.reshape(-1).astype(float).tolist())
    points = (0,) * len(scales)
    if zero_point is not None and zero_point.array is not None:
        points = tuple(zero_point.array.reshape(-1).astype(int).tolist())
    return (scales, points) if len(points) == len(scales) else None


def _scale_shape(rank: int, axis: int, scale: Value) -> Ints:
    """Return the shape in which one scale, or one per entry of an axis, broadcasts to the tensor."""
    if -1 in scale.shape or scale.rank > 1:
        refuse(f"its scale is {scale}; NNRt has one for a tensor, or one for each channel")
    count = scale.shape[0] if scale.rank else 1
    return () if count == 1 else tuple(count if at == axis else 1 for at in range(rank))
