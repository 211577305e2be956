"""Convolutions and pooling: windows that slide over an image.

ONNX has images in NCHW. The lowering transposes images of other formats to NCHW; between two of these operators no
transpose is left.
"""

from typing import Any

from nnrt_hdi.enums import NodeType, PadMode, RoundMode
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.ops.convolution import ImageShape, Window, output_padding_pair, pooling_window
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.activation import fused
from nnrt_onnx_lowering.lowering.lowering import Call, channels_first, in_format, lowering
from nnrt_onnx_lowering.lowering.reduction import extreme
from nnrt_onnx_lowering.value import FLOAT32, Value


@lowering(NodeType.CONV2D_FUSION)
def conv2d(op: Onnx, call: Call, x: Value, weight: Value, bias: Value) -> Value:
    """Compute a convolution with groups and dilation, plus a bias per output channel."""
    if ImageShape.of(call.inputs[1]).channels == 0:
        return _only_bias(op, call, bias)
    image, taps = channels_first(x, call.inputs[0]), channels_first(weight, call.inputs[1])
    return _with_activation(op, call, op.Conv(image, taps, bias, **window_attributes(call)))


def window_attributes(call: Call) -> dict[str, Any]:
    """Return the window and the groups of a convolution as ONNX's attributes."""
    window = _window(call)
    strides = {"strides": window.stride, "dilations": window.dilation, "group": call.attrs.group}
    return {**strides, **_pads(window, call.inputs[0])}


@lowering(NodeType.CONV2D_TRANSPOSE_FUSION)
def conv2d_transpose(op: Onnx, call: Call, x: Value, weight: Value, bias: Value) -> Value:
    """Compute a transposed convolution; ONNX's weight is [in channels, out channels / group, height, width]."""
    kernel, group = ImageShape.of(call.inputs[1]), call.attrs.group
    if kernel.channels == 0:
        return _only_bias(op, call, bias)
    taps = channels_first(weight, call.inputs[1])
    if group > 1:
        if UNKNOWN_DIM in (kernel.batch, kernel.channels):
            raise Unsupported("the channels of weight in groups are known only when the model runs; fix them")
        size = kernel.batch // group, kernel.channels, kernel.height, kernel.width
        taps = op.reshape(taps, [group, *size]).transposed([0, 2, 1, 3, 4])
        taps = op.reshape(taps, [group * kernel.channels, size[0], *size[2:]])
    else:
        taps = taps.transposed([1, 0, 2, 3])
    window, extra = _window(call), output_padding_pair(call.attrs.output_paddings)
    ends = [_transposed_ends(window, axis, extra[axis]) for axis in range(2)]
    if any(-end >= max(window.stride[axis], window.dilation[axis]) for axis, (_, end) in enumerate(ends)):
        raise Unsupported("ONNX's ConvTranspose adds fewer rows and columns than the stride; reduce output_paddings")
    y = op.ConvTranspose(
        channels_first(x, call.inputs[0]),
        taps,
        bias,
        strides=window.stride,
        dilations=window.dilation,
        group=group,
        pads=[start for start, _ in ends] + [max(end, 0) for _, end in ends],
        output_padding=[max(-end, 0) for _, end in ends],
    )
    return _with_activation(op, call, y)


@lowering(NodeType.AVGPOOL_FUSION)
def avg_pool(op: Onnx, call: Call, x: Value) -> Value:
    """Compute the mean of each window over its pixels without padding."""
    image = channels_first(x, call.inputs[0])
    if call.attrs.global_ and x.dtype == FLOAT32:
        return _with_activation(op, call, op.GlobalAveragePool(image))
    if call.attrs.global_ and x.dtype.kind == "f":
        return _with_activation(op, call, op.ReduceMean(image, op.ints([2, 3]), keepdims=1))
    return _with_activation(op, call, op.AveragePool(image, count_include_pad=0, **_pool(op, call)))


@lowering(NodeType.MAX_POOL_FUSION)
def max_pool(op: Onnx, call: Call, x: Value) -> Value:
    """Compute the maximum of each window."""
    image = channels_first(x, call.inputs[0])
    if call.attrs.global_:
        return _with_activation(op, call, extreme(op, image, op.ints([2, 3]), 1, "ReduceMax"))
    if 0 in call.inputs[0].shape[1:]:
        raise Unsupported(f"x {call.inputs[0]} has no pixels, of which no kernel of ONNX makes windows of padding")
    return _with_activation(op, call, op.MaxPool(image, **_pool(op, call)))


def _window(call: Call) -> Window:
    attrs, kernel = call.attrs, ImageShape.of(call.inputs[1])
    return Window.of((kernel.height, kernel.width), attrs.stride, attrs.dilation, attrs.pad_mode, attrs.pad_list)


def _pool(op: Onnx, call: Call) -> dict[str, Any]:
    """Return a pooling window as ONNX's attributes."""
    a = call.attrs
    window = pooling_window(call.inputs[0], a.kernel_size, a.strides, a.pad, a.pad_mode, a.round_mode, a.global_)
    if window is None:
        raise Unsupported(f"{op.engine.name} has no {call.inputs[0].data_type.name} kernel for windows of unknown size")
    pads = _pads(window, call.inputs[0])
    if "auto_pad" in pads and any(map(int.__lt__, window.kernel, window.stride)):  # ONNX's padding is negative then.
        raise Unsupported("with strides above the kernel size, SAME asks for an image whose height and width are known")
    return {"kernel_shape": window.kernel, "strides": window.stride, **pads}


def _pads(window: Window, spec: TensorSpec) -> dict[str, Any]:
    """Return the padding in ONNX's attributes: numbers, or a rule where they depend on an unknown image size."""
    image = ImageShape.of(spec)
    ends = [_ends(window, axis, size) for axis, size in enumerate((image.height, image.width))]
    if None not in ends:
        (top, bottom), (left, right) = (pair for pair in ends if pair is not None)
        return {"pads": [top, left, bottom, right]}
    if window.pad_mode is PadMode.SAME:
        if window.dilation != (1, 1):
            raise Unsupported("with a dilation and strides, SAME asks for an image whose height and width are known")
        return {"auto_pad": "SAME_UPPER"}
    top, bottom, left, right = window.pad_list
    is_rounded_up = window.round_mode is RoundMode.CEIL and window.pad_mode is PadMode.PAD
    return {"pads": [top, left, bottom, right], **({"ceil_mode": 1} if is_rounded_up else {})}


def _ends(window: Window, axis: int, size: int) -> tuple[int, int] | None:
    """Return the padding before and after an axis; None where it depends on an unknown size."""
    if size != UNKNOWN_DIM:
        return window.padding(axis, size)
    if window.pad_mode is PadMode.SAME and (window.extent[axis] == 1 or window.stride[axis] == 1):
        return window.padding(axis, 1)
    return None


def _transposed_ends(window: Window, axis: int, extra: int) -> tuple[int, int]:
    """Return the lengths to cut off before and after the full result. They don't depend on its size."""
    cut = window.transposed_cut(axis, 1)
    return cut, window.extent[axis] - cut - window.transposed_size(axis, 1, extra)


def _only_bias(op: Onnx, call: Call, bias: Value) -> Value:
    """Return the result of a convolution without input channels: the bias everywhere."""
    spec = call.outputs[0]
    y = op.Expand(op.unsqueeze(bias, [1, 2]), op.ints(channels_first_shape(spec)))
    return _with_activation(op, call, y)


def channels_first_shape(spec: TensorSpec) -> list[int]:
    image = ImageShape.of(spec)
    return [image.batch, image.channels, image.height, image.width]


def _with_activation(op: Onnx, call: Call, y: Value) -> Value:
    """Apply the activation and return the result in the layout of the first input."""
    return in_format(fused(op, y, call.attrs.activation_type), call.inputs[0])
