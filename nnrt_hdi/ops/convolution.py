"""Convolutions and pooling: windows that slide over an image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from nnrt_hdi.enums import ActivationType, Format, NodeType, PadMode, RoundMode
from nnrt_hdi.ops.activation import require_fusable
from nnrt_hdi.ops.operands import FLOATS, INTEGERS, Bias, Image, WeightImage, require_channels, same_data_type
from nnrt_hdi.ops.operator import Accepts, Ints, Operand, operator, refuse
from nnrt_hdi.tensor import MAX_DIM, UNKNOWN_DIM, Shape, TensorSpec

PoolImage = Annotated[Operand, Accepts(FLOATS | INTEGERS, min_rank=4, max_rank=4)]


@dataclass(frozen=True, slots=True)
class Window:
    """Sliding window, with the defaults of absent attributes filled in. Pairs are (height, width)."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pad_mode: PadMode
    pad_list: tuple[int, int, int, int]
    round_mode: RoundMode = RoundMode.FLOOR

    @classmethod
    def of(
        cls,
        kernel: Sequence[int],
        stride: Ints,
        dilation: Ints,
        pad_mode: PadMode,
        pad_list: Ints,
        round_mode: RoundMode = RoundMode.FLOOR,
    ) -> "Window":
        """Return the window that attributes describe. Refuses wrong lengths and values."""
        pads = pad_list if pad_mode is PadMode.PAD else ()
        top, bottom, left, right = _values("pad_list", pads, 4, default=0, least=0)
        return cls(
            _pair("kernel_size", kernel, 1, least=1),
            _pair("stride", stride, 1, least=1),
            _pair("dilation", dilation, 1, least=1),
            pad_mode,
            (top, bottom, left, right),
            round_mode,
        )

    @property
    def extent(self) -> tuple[int, int]:
        """Height and width that the window covers: (k - 1) dilation + 1."""
        (kernel_h, kernel_w), (dilation_h, dilation_w) = self.kernel, self.dilation
        return (kernel_h - 1) * dilation_h + 1, (kernel_w - 1) * dilation_w + 1

    def output_size(self, axis: int, size: int) -> int:
        """Return the number of window positions along an axis (0 height, 1 width), or -1 if its size is -1."""
        if size == UNKNOWN_DIM:
            return UNKNOWN_DIM
        stride = self.stride[axis]
        if self.pad_mode is PadMode.SAME:
            return -(-size // stride)
        before, after = self.pad_list[2 * axis : 2 * axis + 2]
        free = size + before + after - self.extent[axis]
        if free < 0:
            name = ("height", "width")[axis]
            refuse(
                f"the window covers a {name} of {self.extent[axis]} but the padded input has {size + before + after};"
                " use a smaller kernel or dilation, or more padding"
            )
        positions = free // stride + 1
        if self.round_mode is RoundMode.CEIL and self.pad_mode is PadMode.PAD:
            # A last, partial window counts only if it starts inside the input or its front padding.
            positions = -(-free // stride) + 1
            if (positions - 1) * stride >= size + before:
                positions -= 1
        return positions

    def padding(self, axis: int, size: int) -> tuple[int, int]:
        """Return the padding before and after an axis of this size with which every window position is inside."""
        positions = self.output_size(axis, size)
        covered = (positions - 1) * self.stride[axis] + self.extent[axis]
        if self.pad_mode is PadMode.SAME:
            total = max(covered - size, 0)
            return total // 2, total - total // 2
        before = self.pad_list[2 * axis]
        return before, max(self.pad_list[2 * axis + 1], covered - size - before)

    def transposed_size(self, axis: int, size: int, output_padding: int) -> int:
        """Return the size that the transposed window makes of an axis of this size; -1 if the size is -1."""
        if size == UNKNOWN_DIM:
            return UNKNOWN_DIM
        stride = self.stride[axis]
        if self.pad_mode is PadMode.SAME:
            return size * stride + output_padding
        before, after = self.pad_list[2 * axis : 2 * axis + 2]
        return (size - 1) * stride + self.extent[axis] - before - after + output_padding

    def transposed_cut(self, axis: int, size: int) -> int:
        """Return how many elements are cut off at the front of the full transposed result; may be negative."""
        if self.pad_mode is PadMode.SAME:
            full = (size - 1) * self.stride[axis] + self.extent[axis]
            return max(full - size * self.stride[axis], 0) // 2
        return self.pad_list[2 * axis]


@dataclass(frozen=True, slots=True)
class ImageShape:
    """Batch, height, width and channels of an image, in any format."""

    batch: int
    height: int
    width: int
    channels: int

    @classmethod
    def of(cls, spec: TensorSpec) -> "ImageShape":
        """Return the sizes of an image, which is NCHW only if its format says so, and else NHWC."""
        if spec.format is Format.NCHW:
            batch, channels, height, width = spec.shape
        else:
            batch, height, width, channels = spec.shape
        return cls(batch, height, width, channels)

    def ordered_like(self, spec: TensorSpec) -> Shape:
        if spec.format is Format.NCHW:
            return self.batch, self.channels, self.height, self.width
        return self.batch, self.height, self.width, self.channels


@operator(NodeType.CONV2D_FUSION, quantized=True)
def conv2d(
    x: Image,
    weight: WeightImage,
    bias: Bias,
    *,
    kernel_size: Ints = (),
    stride: Ints = (),
    dilation: Ints = (),
    pad_mode: PadMode = PadMode.PAD,
    pad_list: Ints = (),
    group: int = 1,
    in_channel: int = 0,
    out_channel: int = 0,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
) -> TensorSpec:
    """y = f(conv2d(x, weight) + bias): a 2-D convolution with groups and dilation, a bias per output channel, and f.

    f is the fused activation. weight is [out channels, kernel height, kernel width, in channels / group]; with format
    NCHW it is [out channels, in channels / group, kernel height, kernel width]. kernel_size, in_channel and out_channel
    repeat what its shape says. stride and dilation are (height, width); empty means 1. With pad_mode PAD, pad_list is
    the zeros around x (top, bottom, left, right); empty means none. SAME and VALID ignore pad_list: VALID pads nothing;
    SAME pads what is missing to (out - 1) stride + (k - 1) dilation + 1, half of it in front, rounded down. Output
    sizes: SAME ceil(in / stride); VALID and PAD floor((in + pads - (k - 1) dilation - 1) / stride) + 1.
    """
    image, kernel = ImageShape.of(x.spec), ImageShape.of(weight.spec)
    window = Window.of(_kernel(weight, kernel_size), stride, dilation, pad_mode, pad_list)
    _require_groups(image.channels, kernel, group)
    _require_result(x, weight, bias, kernel.batch, activation_type)
    out = ImageShape(image.batch, window.output_size(0, image.height), window.output_size(1, image.width), kernel.batch)
    return x.spec.with_shape(out.ordered_like(x.spec))


@operator(NodeType.CONV2D_TRANSPOSE_FUSION, quantized=True)
def conv2d_transpose(
    x: Image,
    weight: WeightImage,
    bias: Bias,
    *,
    kernel_size: Ints = (),
    stride: Ints = (),
    dilation: Ints = (),
    pad_mode: PadMode = PadMode.PAD,
    pad_list: Ints = (),
    group: int = 1,
    in_channel: int = 0,
    out_channel: int = 0,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
    output_paddings: Ints = (),
) -> TensorSpec:
    """y = f(transposed conv2d(x, weight) + bias): the gradient of a convolution, a bias per output channel, and f.

    f is the fused activation. Attributes and weight are those of CONV2D_FUSION: weight begins with the channels of the
    output, and pads are cut off from the result. SAME cuts off what (in - 1) stride + e has beyond in stride, half of
    it in front, rounded down. output_paddings is (height, width), one number for both, or empty for 0. Output sizes,
    with e = (k - 1) dilation + 1: SAME in stride + output padding; VALID and PAD (in - 1) stride + e - pads + output
    padding. The rules are those of TensorFlow Lite and MindSpore Lite.
    """
    image, kernel = ImageShape.of(x.spec), ImageShape.of(weight.spec)
    window = Window.of(_kernel(weight, kernel_size), stride, dilation, pad_mode, pad_list)
    extra = output_padding_pair(output_paddings)
    for axis in range(2):
        if extra[axis] and extra[axis] >= window.stride[axis]:
            refuse(f"output_paddings is {list(extra)}; each must be below the stride {list(window.stride)}")
    _require_groups(image.channels, kernel, group)
    _require_result(x, weight, bias, kernel.batch, activation_type)
    given = image.height, image.width
    sizes = [window.transposed_size(axis, given[axis], extra[axis]) for axis in range(2)]
    for size, known in zip(sizes, given, strict=True):
        if known != UNKNOWN_DIM and (size < 0 or (size == 0 and 0 not in given)):
            refuse(f"the output would have size {sizes}; use less padding")
    out = ImageShape(image.batch, sizes[0], sizes[1], kernel.batch)
    return x.spec.with_shape(out.ordered_like(x.spec))


@operator(NodeType.AVGPOOL_FUSION, quantized=True)
def avg_pool(
    x: PoolImage,
    *,
    kernel_size: Ints = (),
    strides: Ints = (),
    pad: Ints = (),
    pad_mode: PadMode = PadMode.PAD,
    round_mode: RoundMode = RoundMode.FLOOR,
    format: Format = Format.NONE,
    global_: bool = False,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
) -> TensorSpec:
    """y = f(mean of each window over its elements without padding), where f is the fused activation.

    x determines the layout; the attribute `format` is ignored, as NNRt always sends NCHW. kernel_size and strides are
    (height, width); empty strides mean 1. pad and pad_mode are pad_list and pad_mode of CONV2D_FUSION. global pools the
    whole height and width, and ignores these attributes. Output sizes are those of CONV2D_FUSION; with round_mode CEIL
    the PAD formula rounds up, but drops a window that would start after the input.
    """
    return _pooled(x, pooling_window(x.spec, kernel_size, strides, pad, pad_mode, round_mode, global_), activation_type)


@operator(NodeType.MAX_POOL_FUSION, quantized=True)
def max_pool(
    x: PoolImage,
    *,
    kernel_size: Ints = (),
    strides: Ints = (),
    pad: Ints = (),
    pad_mode: PadMode = PadMode.PAD,
    format: Format = Format.NONE,
    round_mode: RoundMode = RoundMode.FLOOR,
    global_: bool = False,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
) -> TensorSpec:
    """y = f(maximum of each window over its elements without padding), where f is the fused activation.

    Attributes, layout and sizes are those of AVGPOOL_FUSION.
    """
    return _pooled(x, pooling_window(x.spec, kernel_size, strides, pad, pad_mode, round_mode, global_), activation_type)


def pooling_window(
    spec: TensorSpec,
    kernel_size: Ints,
    strides: Ints,
    pad: Ints,
    pad_mode: PadMode,
    round_mode: RoundMode,
    global_: bool,
) -> Window | None:
    """Return the window of a pooling operator, or None for global pooling of an image of unknown size."""
    if global_:
        image = ImageShape.of(spec)
        if UNKNOWN_DIM in (image.height, image.width):
            return None
        return Window.of((image.height, image.width), (), (), PadMode.VALID, ())
    if not kernel_size:
        refuse("kernel_size is empty; give [height, width], or set global")
    window = Window.of(kernel_size, strides, (), pad_mode, pad, round_mode)
    for axis in range(2):
        if max(window.pad_list[2 * axis : 2 * axis + 2]) >= window.kernel[axis]:
            refuse(
                f"pad {list(pad)} reaches the kernel size {list(window.kernel)}; pad less, or windows hold no element"
            )
    return window


def output_padding_pair(output_paddings: Ints) -> tuple[int, int]:
    """Return (height, width) of output_paddings, which may be empty, one value for both, or two."""
    if len(output_paddings) == 1:
        output_paddings = output_paddings * 2
    return _pair("output_paddings", output_paddings, 0, least=0)


def _pooled(x: Operand, window: Window | None, activation_type: ActivationType) -> TensorSpec:
    require_fusable(activation_type, x.data_type)
    image = ImageShape.of(x.spec)
    height, width = (window.output_size(0, image.height), window.output_size(1, image.width)) if window else (1, 1)
    return x.spec.with_shape(ImageShape(image.batch, height, width, image.channels).ordered_like(x.spec))


def _kernel(weight: Operand, kernel_size: Ints) -> tuple[int, int]:
    shape = ImageShape.of(weight.spec)
    kernel = shape.height, shape.width
    if UNKNOWN_DIM in kernel:
        refuse(f"the height and width of {weight} must be known")
    if kernel_size and kernel_size != kernel:
        refuse(f"kernel_size is {list(kernel_size)} but {weight} has a kernel of {list(kernel)}; make them equal")
    return kernel


def _require_groups(channels: int, kernel: ImageShape, group: int) -> None:
    if group < 1:
        refuse(f"group is {group}; use 1 or more")
    if channels != UNKNOWN_DIM and channels % group:
        refuse(f"x has {channels} channels, which {group} groups do not divide")
    if kernel.batch != UNKNOWN_DIM and kernel.batch % group:
        refuse(f"weight makes {kernel.batch} channels, which {group} groups do not divide")
    if UNKNOWN_DIM not in (channels, kernel.channels) and kernel.channels * group != channels:
        refuse(f"weight takes {kernel.channels} channels in {group} groups but x has {channels}")


def _require_result(
    x: Operand, weight: Operand, bias: Operand, out_channels: int, activation_type: ActivationType
) -> None:
    require_fusable(activation_type, same_data_type(x, weight, bias))
    require_channels(out_channels, bias)


def _pair(name: str, values: Sequence[int], default: int, *, least: int) -> tuple[int, int]:
    height, width = _values(name, values, 2, default, least)
    return height, width


def _values(name: str, values: Sequence[int], count: int, default: int, least: int) -> tuple[int, ...]:
    if not values:
        return (default,) * count
    if len(values) != count or any(not least <= value <= MAX_DIM for value in values):
        refuse(f"{name} is {list(values)}; use {count} values of {least} or more, or leave it empty")
    return tuple(values)
