"""Convolutions and pooling with wrong windows, channels or limits."""

from dataclasses import replace
from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import kernel, with_attrs
from mutants.defects.arrays import fitted, height_and_width, is_nchw
from nnrt_hdi.enums import ActivationType, NodeType, PadMode
from nnrt_hdi.ops.convolution import Window

CONV, TRANSPOSED = NodeType.CONV2D_FUSION, NodeType.CONV2D_TRANSPOSE_FUSION
AVERAGE, MAX = NodeType.AVGPOOL_FUSION, NodeType.MAX_POOL_FUSION


def padded(call: Call, x: AnyArray, pads: tuple[int, int, int, int], **how: Any) -> AnyArray:
    """Return an image padded at the top, bottom, left and right."""
    borders = [(0, 0)] * 4
    height, width = height_and_width(call)
    borders[height], borders[width] = pads[:2], pads[2:]
    return np.pad(x, borders, **how)


def pads_of(call: Call, x: AnyArray, weight: AnyArray) -> tuple[int, int, int, int]:
    attrs, (height, width) = call.attrs, height_and_width(call)
    kernel = weight.shape[2:] if is_nchw(call) else weight.shape[1:3]
    window = Window.of(kernel, attrs.stride, attrs.dilation, attrs.pad_mode, attrs.pad_list)
    return *window.padding(0, x.shape[height]), *window.padding(1, x.shape[width])


def unpadded(call: Call, x: AnyArray, **attrs: Any) -> Call:
    """Return the call for an image that is padded already."""
    inputs = (call.inputs[0].with_shape(x.shape), *call.inputs[1:])
    return replace(with_attrs(call, pad_mode=PadMode.VALID, pad_list=(), **attrs), inputs=inputs)


@kernel(CONV)
def same_pads_the_front_first(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """SAME puts the odd element of padding in front, like ONNX's SAME_LOWER."""
    top, bottom, left, rest = pads_of(call, x, weight)
    if call.attrs.pad_mode is PadMode.SAME:
        top, bottom, left, rest = bottom, top, rest, left
    x = padded(call, x, (top, bottom, left, rest))
    return right(unpadded(call, x), x, weight, bias)


@kernel(CONV)
def same_ignores_the_stride(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """SAME pads half the kernel on each side, whatever the stride."""
    if call.attrs.pad_mode is not PadMode.SAME:
        return right(call, x, weight, bias)
    height, width = weight.shape[2:] if is_nchw(call) else weight.shape[1:3]
    top, bottom, left, rest = pads_of(call, x, weight)
    before = (height - 1) // 2, (width - 1) // 2
    x = padded(call, x, (before[0], top + bottom, before[1], left + rest))
    return right(unpadded(call, x), x, weight, bias)


@kernel(CONV)
def pads_in_the_order_of_onnx(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """pad_list is read as top, left, bottom, right."""
    if len(call.attrs.pad_list) != 4 or call.attrs.pad_mode is not PadMode.PAD:
        return right(call, x, weight, bias)
    top, left, bottom, rest = call.attrs.pad_list
    total = sum(call.attrs.pad_list)
    x = padded(call, x, (top, bottom + total, left, rest + total))
    return right(unpadded(call, x), x, weight, bias)


@kernel(CONV)
def larger_pad_behind(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """The larger padding of an axis always goes behind the image."""
    top, bottom, left, rest = pads_of(call, x, weight)
    y = padded(call, x, (min(top, bottom), max(top, bottom), min(left, rest), max(left, rest)))
    return right(unpadded(call, y), y, weight, bias)


@kernel(CONV)
def borders_repeat_the_edge(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """Padding repeats the image's edge instead of 0."""
    if 0 in x.shape:
        return right(call, x, weight, bias)
    x = padded(call, x, pads_of(call, x, weight), mode="edge")
    return right(unpadded(call, x), x, weight, bias)


@kernel(CONV)
def dilation_ignored(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """The dilation of a convolution is ignored."""
    y = padded(call, x, pads_of(call, x, weight))
    return right(unpadded(call, y, dilation=()), y, weight, bias)


@kernel(CONV)
def strides_swapped(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """The strides are read as width, height."""
    height, width = call.attrs.stride or (1, 1)
    if height == width:
        return right(call, x, weight, bias)
    ratio = max(height, width)
    y = padded(call, x, pads_of(call, x, weight))
    y = padded(call, y, (0, y.shape[height_and_width(call)[0]] * ratio, 0, y.shape[height_and_width(call)[1]] * ratio))
    return right(unpadded(call, y, stride=(width, height)), y, weight, bias)


@kernel(CONV)
def kernel_transposed_where_square(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """A square kernel is transposed."""
    height, width = height_and_width(call)
    square = weight.shape[height] == weight.shape[width]
    return right(call, x, weight.swapaxes(height, width) if square else weight, bias)


@kernel(CONV)
def kernel_turned_round(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """The kernel is flipped: a true convolution instead of a cross-correlation."""
    return right(call, x, np.flip(weight, height_and_width(call)), bias)


@kernel(CONV)
def groups_take_the_first_weights(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """All groups use the first group's filters, except in depthwise convolutions."""
    groups, channels = call.attrs.group, weight.shape[3 if not is_nchw(call) else 1]
    if groups == 1 or channels == 1:
        return right(call, x, weight, bias)
    return right(call, x, np.concatenate([weight[: len(weight) // groups]] * groups), bias)


@kernel(CONV)
def multiplier_in_front_of_channels(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """Depthwise outputs with a multiplier are ordered by filter, then channel."""
    y, groups = right(call, x, weight, bias), call.attrs.group
    axis = 1 if is_nchw(call) else 3
    if weight.shape[3 if not is_nchw(call) else 1] != 1 or groups == 1:
        return y
    order = np.arange(len(weight)).reshape(groups, -1).T.reshape(-1)
    return np.take(y, order, axis)


@kernel(CONV)
def bias_left_out_of_depthwise(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """Depthwise convolutions ignore the bias."""
    channels = weight.shape[3 if not is_nchw(call) else 1]
    return right(call, x, weight, np.zeros_like(bias) if call.attrs.group > 1 and channels == 1 else bias)


@kernel(CONV)
def channels_in_fours(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """Input channels after the last whole block of four are ignored."""
    axis = 1 if is_nchw(call) else 3
    channels = weight.shape[axis]
    if channels < 4 or not channels % 4:
        return right(call, x, weight, bias)
    used = np.arange(channels) < channels // 4 * 4
    return right(call, x, weight * used.reshape([-1 if at == axis else 1 for at in range(4)]), bias)


@kernel(CONV)
def activation_before_the_bias(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """The bias is added after the fused activation."""
    y = right(call, x, weight, np.zeros_like(bias))
    return y + (bias.reshape(-1, 1, 1) if is_nchw(call) else bias)


@kernel(CONV, AVERAGE, MAX, NodeType.FULL_CONNECTION)
def fused_relu6_is_a_relu(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """A fused RELU6 has no upper limit."""
    is_relu6 = call.attrs.activation_type is ActivationType.RELU6
    return right(with_attrs(call, activation_type=ActivationType.RELU) if is_relu6 else call, *operands)


@kernel(CONV)
def bias_by_width_in_nchw(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """In NCHW the bias is added along the width, if the output's width equals its number of channels."""
    if not is_nchw(call) or call.outputs[0].shape[3] != len(bias):
        return right(call, x, weight, bias)
    plain = with_attrs(call, activation_type=ActivationType.NO_ACTIVATION)
    y = right(plain, x, weight, np.zeros_like(bias)) + bias
    return y if call.attrs.activation_type is ActivationType.NO_ACTIVATION else np.maximum(y, 0)


@kernel(CONV)
def one_by_one_skips_the_stride(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """1 x 1 convolutions read neighbouring pixels, whatever the stride."""
    height, width = height_and_width(call)
    if (weight.shape[height], weight.shape[width]) != (1, 1):
        return right(call, x, weight, bias)
    y = padded(call, x, pads_of(call, x, weight))
    return right(unpadded(call, y, stride=()), y, weight, bias)


@kernel(TRANSPOSED)
def transposed_same_cuts_behind(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """A transposed convolution with SAME crops the larger half in front."""
    if call.attrs.pad_mode is not PadMode.SAME:
        return right(call, x, weight, bias)
    height, width = height_and_width(call)
    a = call.attrs
    window = Window.of((weight.shape[height], weight.shape[width]), a.stride, a.dilation, a.pad_mode, a.pad_list)
    pads = []
    for axis, at in enumerate((height, width)):
        full = (x.shape[at] - 1) * window.stride[axis] + window.extent[axis]
        extra = max(full - x.shape[at] * window.stride[axis], 0)
        pads += [extra - extra // 2, extra // 2]
    return right(with_attrs(call, pad_mode=PadMode.PAD, pad_list=tuple(pads)), x, weight, bias)


@kernel(TRANSPOSED)
def output_padding_in_front(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """output_paddings shift the image instead of extending it behind."""
    y, extra = right(call, x, weight, bias), call.attrs.output_paddings
    if len(extra) == 1:
        extra = extra * 2
    return np.roll(y, extra, height_and_width(call)) if extra else y


@kernel(TRANSPOSED)
def transposed_kernel_turned_round(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """The kernel of a transposed convolution is flipped."""
    return right(call, x, np.flip(weight, height_and_width(call)), bias)


@kernel(TRANSPOSED)
def transposed_without_groups(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """All groups of a transposed convolution read the first group's channels."""
    axis = 1 if is_nchw(call) else 3
    first = np.take(x, range(weight.shape[axis]), axis)
    return right(call, np.concatenate([first] * call.attrs.group, axis), weight, bias)


@kernel(TRANSPOSED)
def dilated_windows_overwrite(right: Kernel, call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> Any:
    """The dilation of a transposed convolution is ignored."""
    y = with_attrs(call, dilation=())
    height, width = call.attrs.dilation or (1, 1)
    if (height, width) == (1, 1):
        return right(call, x, weight, bias)
    window = Window.of(
        tuple(weight.shape[at] for at in height_and_width(call)),
        call.attrs.stride,
        (),
        PadMode.PAD,
        call.attrs.pad_list,
    )
    shape = list(call.outputs[0].shape)
    for axis, at in enumerate(height_and_width(call)):
        shape[at] = window.transposed_size(axis, x.shape[at], 0)
    small = replace(y, outputs=(call.outputs[0].with_shape(tuple(shape)),))
    return fitted(right(small, x, weight, bias), call.outputs[0].shape)


@kernel(AVERAGE)
def average_counts_padding(right: Kernel, call: Call, x: AnyArray) -> Any:
    """An average is divided by the size of the kernel, padding included."""
    attrs, (height, width) = call.attrs, height_and_width(call)
    plain = with_attrs(call, activation_type=ActivationType.NO_ACTIVATION)
    if attrs.global_ or x.dtype.kind != "f":
        return right(call, x)
    full = np.prod(attrs.kernel_size)
    window = Window.of(attrs.kernel_size, attrs.strides, (), attrs.pad_mode, attrs.pad, attrs.round_mode)
    counts = []
    for axis, at in enumerate((height, width)):
        before, _ = window.padding(axis, x.shape[at])
        start = np.arange(call.outputs[0].shape[at]) * window.stride[axis] - before
        counts.append(np.minimum(start + window.kernel[axis], x.shape[at]) - np.maximum(start, 0))
    real = counts[0][:, None] * counts[1]
    y = right(plain, x) * (real if is_nchw(call) else real[..., None]) / full
    upper = {ActivationType.RELU: np.inf, ActivationType.RELU6: 6}.get(attrs.activation_type)
    return y if upper is None else np.clip(y, 0, upper)


@kernel(MAX)
def maximum_beside_zeros(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Max pooling pads with 0, which is larger than negative numbers."""
    attrs, (height, width) = call.attrs, height_and_width(call)
    if attrs.global_:
        return right(call, x)
    window = Window.of(attrs.kernel_size, attrs.strides, (), attrs.pad_mode, attrs.pad, attrs.round_mode)
    pads = *window.padding(0, x.shape[height]), *window.padding(1, x.shape[width])
    y = padded(call, x, pads)
    inputs = (call.inputs[0].with_shape(y.shape),)
    return right(replace(with_attrs(call, pad_mode=PadMode.VALID, pad=()), inputs=inputs), y)


@kernel(MAX, left_open="the contract doesn't say what the maximum of such a window is")
def maximum_without_nan(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Max pooling ignores NaN."""
    return right(call, np.where(np.isnan(x), -np.inf, x) if x.dtype.kind == "f" else x)


@kernel(MAX)
def maximum_of_positive_numbers(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Max pooling starts at 0, so that no result is negative."""
    return np.maximum(right(call, x), 0)


@kernel(AVERAGE, MAX)
def ceiling_windows_left_out(right: Kernel, call: Call, x: AnyArray) -> Any:
    """With round_mode CEIL the last windows are not computed."""
    y = np.array(right(call, x))
    attrs = call.attrs
    if attrs.global_ or attrs.round_mode.name != "CEIL":
        return y
    window = Window.of(attrs.kernel_size, attrs.strides, (), attrs.pad_mode, attrs.pad)
    shape = list(y.shape)
    for axis, at in enumerate(height_and_width(call)):
        shape[at] = window.output_size(axis, x.shape[at])
    return fitted(y[tuple(map(slice, shape))], y.shape)


@kernel(AVERAGE)
def global_average_of_rows(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A global average uses the first 7 x 7 pixels only."""
    if not call.attrs.global_:
        return right(call, x)
    cut = [slice(None)] * 4
    for at in height_and_width(call):
        cut[at] = slice(7)
    x = x[tuple(cut)]
    return right(replace(call, inputs=(call.inputs[0].with_shape(x.shape),)), x)
