"""Quantized tensors read with wrong parameters, or written with wrong rounding or overflow."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from nnrt_backend_reference import quantized
from nnrt_backend_reference.kernels import KERNELS
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import function, kernel, with_attrs
from mutants.defects.convolution import padded, pads_of, unpadded
from nnrt_hdi import kernels
from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.kernels import Library
from nnrt_hdi.ops.quantized import RealView, Scaling
from nnrt_hdi.tensor import NUMPY_DTYPES, QuantParam

LEVELS = ("quantized",)
CASTS = (NodeType.QUANT_DTYPE_CAST, NodeType.QUANT_DTYPE_CAST_V2)


def _with(scaling: Scaling | None, **changes: Any) -> Scaling | None:
    return scaling and replace(scaling, params=tuple(replace(param, **changes) for param in scaling.params))


@function(quantized.dequantize, levels=LEVELS)
def zero_point_forgotten(right: Kernel, elements: AnyArray, scaling: Scaling) -> Any:
    """The zero point of inputs is ignored."""
    return right(elements, _with(scaling, zero_point=0))


@function(quantized.quantize, levels=LEVELS)
def zero_point_of_results_forgotten(right: Kernel, real: AnyArray, scaling: Scaling, data_type: DataType) -> Any:
    """The zero point of results is ignored."""
    return right(real, _with(scaling, zero_point=0), data_type)


@function(quantized.dequantize, levels=LEVELS)
def first_scale_for_all_channels(right: Kernel, elements: AnyArray, scaling: Scaling) -> Any:
    """The first channel's parameters are used for the whole tensor."""
    return right(elements, Scaling(scaling.params[:1], scaling.axis))


@function(quantized.dequantize, levels=LEVELS)
def channels_of_the_last_dimension(right: Kernel, elements: AnyArray, scaling: Scaling) -> Any:
    """Per-channel parameters run along the last dimension, if it has their length."""
    last = elements.ndim - 1
    fits = len(scaling.params) > 1 and elements.shape[last] == len(scaling.params)
    return right(elements, replace(scaling, axis=last) if fits else scaling)


@function(quantized.quantize, levels=LEVELS)
def results_wrap_around(right: Kernel, real: AnyArray, scaling: Scaling, data_type: DataType) -> Any:
    """Results out of the type's range wrap around instead of saturating."""
    param = scaling.params[0]
    if len(scaling.params) > 1 or not param.scale:
        return right(real, scaling, data_type)
    return (
        np.rint(np.nan_to_num(real / param.scale) + param.zero_point).astype(np.int64).astype(NUMPY_DTYPES[data_type])
    )


@function(quantized.quantize, levels=LEVELS)
def results_cut_off(right: Kernel, real: AnyArray, scaling: Scaling, data_type: DataType) -> Any:
    """Results are truncated before the zero point is added, instead of rounded."""
    param = scaling.params[0]
    if len(scaling.params) > 1 or not param.scale:
        return right(real, scaling, data_type)
    return right(np.trunc(real / param.scale) * param.scale, scaling, data_type)


@function(quantized.dequantize, levels=LEVELS)
def unsigned_read_as_signed(right: Kernel, elements: AnyArray, scaling: Scaling) -> Any:
    """UINT8 is read as INT8."""
    return right(elements.astype(np.int8) if elements.dtype == np.uint8 else elements, scaling)


@function(quantized.dequantize, levels=LEVELS)
def scale_of_zero_is_one(right: Kernel, elements: AnyArray, scaling: Scaling) -> Any:
    """A scale of 0 is taken for 1."""
    params = tuple(param if param.scale else replace(param, scale=1.0) for param in scaling.params)
    return right(elements, replace(scaling, params=params))


@function(quantized.quantize, levels=LEVELS)
def scales_are_shifts(right: Kernel, real: AnyArray, scaling: Scaling, data_type: DataType) -> Any:
    """The scale of results is rounded to a power of two."""
    params = tuple(
        replace(param, scale=2.0 ** round(np.log2(param.scale))) if param.scale else param for param in scaling.params
    )
    return right(real, replace(scaling, params=params), data_type)


@function(kernels.real_kernel, NodeType.CONV2D_FUSION, NodeType.FULL_CONNECTION, levels=LEVELS)
def zero_point_of_weights_forgotten(
    right: Kernel, compute: Kernel, call: Call, view: RealView, library: Library
) -> Any:
    """The zero point of weights is ignored."""
    if compute not in (KERNELS[NodeType.CONV2D_FUSION], KERNELS[NodeType.FULL_CONNECTION]):
        return right(compute, call, view, library)
    return right(compute, call, _with_input(view, 1, _with(view.inputs[1], zero_point=0)), library)


@function(kernels.real_kernel, NodeType.CONV2D_FUSION, NodeType.FULL_CONNECTION, levels=LEVELS)
def bias_by_the_scale_of_the_output(
    right: Kernel, compute: Kernel, call: Call, view: RealView, library: Library
) -> Any:
    """An INT32 bias is read with the scale of the output."""
    if len(view.inputs) < 3 or call.inputs[2].numpy_dtype != np.int32:
        return right(compute, call, view, library)
    return right(compute, call, _with_input(view, 2, _with(view.outputs[0], zero_point=0)), library)


@function(kernels.real_kernel, NodeType.ACTIVATION, levels=LEVELS)
def relu_at_element_zero(right: Kernel, compute: Kernel, call: Call, view: RealView, library: Library) -> Any:
    """A quantized RELU keeps elements above 0 instead of above the zero point."""
    if getattr(call.attrs, "activation_type", None) is not ActivationType.RELU or len(view.inputs) > 1:
        return right(compute, call, view, library)
    plain = with_attrs(call, activation_type=ActivationType.NO_ACTIVATION)
    return lambda _, x: np.maximum(np.asarray(right(compute, plain, view, library)(plain, x)), 0).reshape(x.shape)


@function(kernels.real_kernel, NodeType.CONV2D_FUSION, levels=LEVELS)
def borders_of_element_zero(right: Kernel, compute: Kernel, call: Call, view: RealView, library: Library) -> Any:
    """A quantized convolution pads with element 0 instead of the zero point."""
    if compute is not KERNELS[NodeType.CONV2D_FUSION] or view.inputs[0] is None:
        return right(compute, call, view, library)
    param = view.inputs[0].params[0]

    def padded_first(real: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> AnyArray:
        x = padded(real, x, pads_of(real, x, weight), constant_values=-param.zero_point * param.scale)
        return np.asarray(compute(unpadded(real, x), x, weight, bias))

    return right(padded_first, call, view, library)


@function(kernels.real_kernel, NodeType.CONCAT, levels=LEVELS)
def parts_joined_as_they_are(right: Kernel, compute: Kernel, call: Call, view: RealView, library: Library) -> Any:
    """A quantized CONCAT copies elements, ignoring the operands' parameters."""
    return compute if compute is KERNELS[NodeType.CONCAT] else right(compute, call, view, library)


@function(kernels.real_kernel, NodeType.ADD_FUSION, NodeType.MAXIMUM, levels=LEVELS)
def both_operands_by_the_first_scale(
    right: Kernel, compute: Kernel, call: Call, view: RealView, library: Library
) -> Any:
    """Both operands of quantized arithmetic are read with the first one's parameters."""
    if compute not in (KERNELS[NodeType.ADD_FUSION], KERNELS[NodeType.MAXIMUM]):
        return right(compute, call, view, library)
    return right(compute, call, _with_input(view, 1, view.inputs[0]), library)


@function(kernels.real_kernel, NodeType.SOFTMAX, levels=LEVELS)
def softmax_written_in_256ths(right: Kernel, compute: Kernel, call: Call, view: RealView, library: Library) -> Any:
    """A quantized softmax always writes with the scale 1/256."""
    if compute is not KERNELS[NodeType.SOFTMAX]:
        return right(compute, call, view, library)
    lowest = -128 if call.outputs[0].data_type is DataType.INT8 else 0
    return right(compute, call, replace(view, outputs=(Scaling((QuantParam(1 / 256, lowest),)),)), library)


@function(kernels.real_kernel, NodeType.AVGPOOL_FUSION, NodeType.MAX_POOL_FUSION, levels=LEVELS)
def pools_keep_the_scale(right: Kernel, compute: Kernel, call: Call, view: RealView, library: Library) -> Any:
    """Quantized pooling writes with the input's parameters."""
    if compute not in (KERNELS[NodeType.AVGPOOL_FUSION], KERNELS[NodeType.MAX_POOL_FUSION]):
        return right(compute, call, view, library)
    return right(compute, call, replace(view, outputs=view.inputs[:1]), library)


@function(kernels.real_kernel, NodeType.CONV2D_FUSION, NodeType.FULL_CONNECTION, levels=LEVELS)
def sums_in_sixteen_bits_wrap(right: Kernel, compute: Kernel, call: Call, view: RealView, library: Library) -> Any:
    """Quantized sums of products are kept in 16 bits."""
    x, weight = [*view.inputs, None][:2]
    products = KERNELS[NodeType.CONV2D_FUSION], KERNELS[NodeType.FULL_CONNECTION]
    if compute not in products or x is None or weight is None or not x.params[0].scale * weight.params[0].scale:
        return right(compute, call, view, library)
    step = x.params[0].scale * weight.params[0].scale

    def wrapping(real: Call, *operands: AnyArray) -> AnyArray:
        return np.rint(np.asarray(compute(real, *operands)) / step).astype(np.int64).astype(np.int16) * step

    return right(wrapping, call, view, library)


@kernel(*CASTS, levels=LEVELS)
def bytes_cast_as_they_are(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A cast between two quantizations copies the elements."""
    both = x.dtype.itemsize == 1 and call.outputs[0].numpy_dtype.itemsize == 1
    return x.view(call.outputs[0].numpy_dtype) if both else right(call, x)


@kernel(NodeType.QUANT_DTYPE_CAST_V2, levels=LEVELS)
def cast_along_the_first_axis(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A quantized cast ignores the axis, if the first dimension has the parameters' length."""
    count = max(len(spec.quant) for spec in (call.inputs[0], call.outputs[0]))
    fits = count > 1 and x.ndim > 1 and x.shape[0] == count
    return right(with_attrs(call, axis=0) if fits else call, x)


@kernel(*CASTS, levels=LEVELS, left_open="no element stands for it, so that none is right")
def nan_is_the_highest_element(right: Kernel, call: Call, x: AnyArray) -> Any:
    """NaN is quantized to the highest element."""
    y = right(call, x)
    return y if x.dtype.kind != "f" else np.where(np.isnan(x), np.iinfo(y.dtype).max, y)


def _with_input(view: RealView, at: int, scaling: Scaling | None) -> RealView:
    inputs: Sequence[Scaling | None] = view.inputs
    return replace(view, inputs=(*inputs[:at], scaling, *inputs[at + 1 :]))
