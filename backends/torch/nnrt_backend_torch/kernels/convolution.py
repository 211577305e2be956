"""Convolutions and pooling: windows that slide over an image.

Sizes and paddings are those of `nnrt_hdi.ops.convolution`. Convolutions compute in the order batch, channels, height,
width, as torch does; images in NHWC are views of it.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch.nn import functional

from nnrt_backend_torch.kernels.activation import activated
from nnrt_backend_torch.kernels.arithmetic import quotient_uint64
from nnrt_backend_torch.kernels.kernel import DTYPES, LOWEST, Call, computable, in_order, kernel
from nnrt_backend_torch.kernels.linear import factors
from nnrt_backend_torch.kernels.pieces import reduced_runs
from nnrt_backend_torch.kernels.taps import WINDOWS_BYTES, double_conv2d, every, transposed_by_taps
from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.ops.convolution import Window, pooling_window
from nnrt_hdi.ops.operands import UNSIGNED_INTEGERS
from nnrt_hdi.steps import check_stop
from nnrt_hdi.tensor import NUMPY_DTYPES, TensorSpec

# The largest stride, dilation and padding with which no position passes 32 bits.
MOST = 1 << 15
# The longest window along an axis whose elements are summed in their own type, like those of a convolution.
SHORT = 8
# The longest window along an axis that is reduced element by element, each of all windows together.
LONG = 32


class Fold(NamedTuple):
    """Reduction of many elements to one: of two tensors, and along dimensions in a wider type."""

    combine: Callable[..., torch.Tensor]
    reduce: Callable[[torch.Tensor, int | tuple[int, ...], bool, torch.dtype], torch.Tensor]


MAXIMUM = Fold(torch.maximum, lambda x, dim, keepdim, _: torch.amax(x, dim, keepdim))
SUM = Fold(torch.add, lambda x, dim, keepdim, dtype: torch.sum(x, dim, keepdim, dtype=dtype))


class TransposedAxis(NamedTuple):
    """Parameters of torch's transposed convolution along an axis, and what to do with its result.

    `cut` elements at the front of the result aren't wanted, `missing` zeros behind it are; torch makes `made` elements.
    """

    padding: int
    output_padding: int
    cut: int
    missing: int
    made: int


@kernel(NodeType.CONV2D_FUSION)
def conv2d(call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute the sum of every window of x times the weight, plus the bias."""
    image, taps, bias = _channels_first(call, x, weight, bias)
    if not taps.numel():  # There are no channels to sum over.
        return _in_layout(call, _only_bias(call, bias))
    window, (height, width), groups = _window(call, taps), _out_sizes(call), call.attrs.group
    padding = _even_padding(window, image)
    if padding is None:
        image, padding = _padded(call, image, window), (0, 0)
    # A longer stride than the image has no second position.
    lengths = (size + 2 * border for size, border in zip(image.shape[2:], padding, strict=True))
    stride = _pair(min(step, length) for step, length in zip(window.stride, lengths, strict=True))
    window = replace(window, stride=stride, dilation=_plain_dilation(window))
    _require_ordinary(window, padding)
    if image.device.type == "cpu" and image.dtype is torch.float64:
        y = double_conv2d(call, image, taps, bias, window, padding)
    else:
        y = functional.conv2d(image, taps, bias, window.stride, padding, window.dilation, groups)
    return _in_layout(call, activated(call, y[:, :, :height, :width]))


@kernel(NodeType.CONV2D_TRANSPOSE_FUSION)
def conv2d_transpose(call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Compute every pixel of x times the weight, added to the output where its window is, plus the bias."""
    image, taps, bias = _channels_first(call, x, weight, bias)
    if not (taps.numel() and image.numel()):
        return _in_layout(call, _only_bias(call, bias))
    window, (height, width), groups = _window(call, taps), _out_sizes(call), call.attrs.group
    # torch's weight begins with the channels of the input.
    taps = taps.reshape(groups, -1, *taps.shape[1:]).transpose(1, 2).flatten(end_dim=1)
    cuts = [window.transposed_cut(axis, image.shape[2 + axis]) for axis in range(2)]
    # An image of one position has no steps.
    stride = _pair(1 if size == 1 else step for step, size in zip(window.stride, image.shape[2:], strict=True))
    window = replace(window, stride=stride, dilation=_plain_dilation(window))
    rows, columns = (
        _transposed_axis(window, axis, size, cuts[axis], wanted)
        for axis, (size, wanted) in enumerate(zip(image.shape[2:], (height, width), strict=True))
    )
    if not _is_ordinary(call, image, taps, window, rows, columns):
        y = transposed_by_taps(image, taps, window, cuts, (height, width), groups) + bias[:, None, None]
        return _in_layout(call, activated(call, y))
    is_whole = not (rows.missing or columns.missing)
    y = functional.conv_transpose2d(
        image,
        taps,
        bias if is_whole else None,
        window.stride,
        (rows.padding, columns.padding),
        (rows.output_padding, columns.output_padding),
        groups,
        window.dilation,
    )
    y = y[:, :, rows.cut : rows.cut + height, columns.cut : columns.cut + width]
    if not is_whole:
        y = functional.pad(y, (0, columns.missing, 0, rows.missing)) + bias[:, None, None]
    return _in_layout(call, activated(call, y))


@kernel(NodeType.AVGPOOL_FUSION)
def avg_pool(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute the mean of each window over its pixels without padding; integers are rounded towards zero."""
    window, is_real = _pooling_window(call), x.dtype.is_floating_point
    is_short = is_real and max(window.kernel) <= SHORT
    if is_short and (padding := _pool_padding(call, x, window)) is not None:
        y = functional.avg_pool2d(_turned(call, x), window.kernel, window.stride, padding, count_include_pad=False)
        height, width = _out_sizes(call)
        return _in_layout(call, activated(call, y[:, :, :height, :width]))
    dtype = call.dtype if is_short or x.device.type == "mps" else torch.float64
    total = _pooled(call, window, computable(x), SUM, dtype if is_real else torch.int64, 0)
    counts = _counts(call, window, total)
    if is_real:
        return activated(call, total.div_(counts))
    if call.inputs[0].data_type is DataType.UINT64:
        return activated(call, quotient_uint64(total, counts))
    return activated(call, torch.div(total, counts, rounding_mode="trunc"))


@kernel(NodeType.MAX_POOL_FUSION)
def max_pool(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute the maximum of each window over its pixels without padding."""
    window = _pooling_window(call)
    if x.dtype.is_floating_point and (padding := _pool_padding(call, x, window)) is not None:
        y = functional.max_pool2d(_turned(call, x), window.kernel, window.stride, padding)
        height, width = _out_sizes(call)
        return _in_layout(call, activated(call, y[:, :, :height, :width]))
    x = x if x.dtype.is_floating_point else in_order(x)
    y = _pooled(call, window, x, MAXIMUM, x.dtype, _lowest(call.inputs[0].data_type))
    return activated(call, y ^ LOWEST if call.inputs[0].data_type is DataType.UINT64 else y)


def _channels_first(call: Call, *tensors: torch.Tensor) -> list[torch.Tensor]:
    """Return images as [batch, channels, height, width] and vectors as they are, in the type to compute in."""
    turned = [
        tensor.permute(0, 3, 1, 2) if _is_nhwc(spec) else tensor
        for spec, tensor in zip(call.inputs, factors(call, *tensors), strict=True)
    ]
    # On CPUs torch computes wrong sums of images with one channel whose strides are those of NHWC, if the output is 1
    # wide. Strides of a dimension of length 1 mean nothing; these calls make them those of NCHW.
    return [
        tensor.squeeze(1).unsqueeze(1) if tensor.ndim == 4 and tensor.shape[1] == 1 else tensor for tensor in turned
    ]


def _turned(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Return the first operand as [batch, channels, height, width]."""
    return x.permute(0, 3, 1, 2) if _is_nhwc(call.inputs[0]) else x


def _in_layout(call: Call, y: torch.Tensor) -> torch.Tensor:
    """Return [batch, channels, height, width] in the layout of the output."""
    return y.permute(0, 2, 3, 1) if _is_nhwc(call.inputs[0]) else y


def _is_nhwc(spec: TensorSpec) -> bool:
    return spec.rank == 4 and spec.format is not Format.NCHW


def _height_axis(call: Call) -> int:
    """Return the dimension of the height; the width is the next one."""
    return 1 if _is_nhwc(call.inputs[0]) else 2


def _out_sizes(call: Call) -> tuple[int, int]:
    """Return the height and width of the output."""
    height, shape = _height_axis(call), call.outputs[0].shape
    return shape[height], shape[height + 1]


def _only_bias(call: Call, bias: torch.Tensor) -> torch.Tensor:
    """Return the result for an image of zeros."""
    height, width = _out_sizes(call)
    return activated(call, bias.clone())[:, None, None].expand(call.outputs[0].shape[0], -1, height, width)


def _window(call: Call, taps: torch.Tensor) -> Window:
    attrs = call.attrs
    return Window.of(taps.shape[2:], attrs.stride, attrs.dilation, attrs.pad_mode, attrs.pad_list)


def _pooling_window(call: Call) -> Window:
    a = call.attrs
    window = pooling_window(call.inputs[0], a.kernel_size, a.strides, a.pad, a.pad_mode, a.round_mode, a.global_)
    if window is None:
        raise OperationFailed(f"the size of {call.inputs[0]} is not known")
    return window


def _plain_dilation(window: Window) -> tuple[int, int]:
    """Return the dilation; 1 along an axis with one tap, where it means nothing."""
    return _pair(1 if taps == 1 else step for step, taps in zip(window.dilation, window.kernel, strict=True))


def _pair(numbers: Iterable[int]) -> tuple[int, int]:
    height, width = numbers
    return height, width


def _require_ordinary(window: Window, padding: tuple[int, int]) -> None:
    """Refuse numbers with which torch's libraries crash, because they compute positions in 32 bits."""
    if (largest := max(*window.stride, *window.dilation, *padding)) > MOST:
        raise OperationFailed(f"its stride, dilation or padding is {largest}; torch computes up to {MOST} here")


def _even_padding(window: Window, image: torch.Tensor) -> tuple[int, int] | None:
    """Return the padding of height and width that torch adds on both sides, or None if it must differ.

    All windows are inside. There may be more than are wanted.
    """
    padding = []
    for axis, size in enumerate(image.shape[2:]):
        before, after = _needed_padding(window, axis, size)
        # oneDNN, which torch uses on CPUs, crashes if a window has no element of the image (its issue 5942).
        is_met = before == 0 or (before < window.extent[axis] and window.dilation[axis] <= size)
        if after > before or not is_met or not size:
            return None
        padding.append(before)
    return padding[0], padding[1]


def _needed_padding(window: Window, axis: int, size: int) -> tuple[int, int]:
    """Return the padding before an axis, and that behind it which windows reach into; negative if they end before."""
    before, _ = window.padding(axis, size)
    covered = (window.output_size(axis, size) - 1) * window.stride[axis] + window.extent[axis]
    return before, covered - size - before


def _padded(call: Call, image: torch.Tensor, window: Window) -> torch.Tensor:
    """Return the image with the border of zeros that its windows reach into."""
    (top, bottom), (left, right) = (_needed_padding(window, axis, image.shape[2 + axis]) for axis in range(2))
    bottom, right = max(bottom, 0), max(right, 0)
    batch, channels, height, width = image.shape
    shape = batch, channels, top + height + bottom, left + width + right
    call.require_memory(shape, NUMPY_DTYPES[call.inputs[0].data_type])
    return functional.pad(image, (left, right, top, bottom))


def _is_ordinary(
    call: Call, image: torch.Tensor, taps: torch.Tensor, window: Window, rows: TransposedAxis, columns: TransposedAxis
) -> bool:
    """Return whether torch computes a transposed convolution in time and memory of its operands and result.

    oneDNN crashes with long strides, or takes time quadratic in them. Elsewhere torch makes a matrix of all products.
    """
    height, width = _out_sizes(call)
    made, wanted = rows.made * columns.made, height * width
    has_steps = any(step > max(extent, LONG) for step, extent in zip(window.stride, window.extent, strict=True))
    products_bytes = taps.shape[1] * math.prod(window.kernel) * math.prod(image.shape[2:]) * image.element_size()
    is_double = image.dtype is torch.float64
    return (
        not has_steps
        and made <= 4 * wanted + WINDOWS_BYTES // 64
        and max(*window.extent, rows.padding, columns.padding) <= MOST
        and not (is_double and products_bytes > WINDOWS_BYTES)
    )


def _transposed_axis(window: Window, axis: int, size: int, before: int, wanted: int) -> TransposedAxis:
    """Return how torch makes `wanted` elements of an axis of this size, behind the first `before` ones."""
    full = (size - 1) * window.stride[axis] + window.extent[axis]
    after = full - before - wanted  # Negative if there are zeros behind.
    if 0 <= before - after < max(window.stride[axis], window.dilation[axis]):
        return TransposedAxis(before, before - after, 0, 0, wanted)
    # torch cuts as much off the front as off the end.
    padding = max(min(before, after), 0)
    return TransposedAxis(padding, 0, before - padding, min(max(-after, 0), wanted), full - 2 * padding)


def _pool_padding(call: Call, x: torch.Tensor, window: Window) -> tuple[int, int] | None:
    """Return the padding for torch's pooling functions, or None if these don't fit, or are slower.

    On CPUs the functions are slow for images in NCHW.
    """
    padding = _even_padding(window, _turned(call, x)) if x.is_cuda and max(window.kernel) <= LONG else None
    fits = padding and all(2 * before <= size for before, size in zip(padding, window.kernel, strict=True))
    return padding if fits else None


def _pooled(
    call: Call, window: Window, x: torch.Tensor, fold: Fold, dtype: torch.dtype, identity: float
) -> torch.Tensor:
    """Reduce the pixels of each window, without padding, along one axis and then along the other."""
    height = _height_axis(call)
    axes = height, height + 1
    sizes = _out_sizes(call)
    if sizes == (1, 1) and x.numel() and all(_is_all(window, axis, x.shape[axes[axis]]) for axis in range(2)):
        return fold.reduce(x, axes, True, dtype)
    # Starts with the axis that shrinks more or grows less, so that no intermediate tensor is larger than x or y.
    for axis in sorted(range(2), key=lambda axis: sizes[axis] / max(x.shape[axes[axis]], 1)):
        x = _fold_windows(x, axes[axis], window, axis, fold, dtype, identity)
    return x


def _is_all(window: Window, axis: int, size: int) -> bool:
    """Return whether the only window covers the whole axis."""
    before, after = _needed_padding(window, axis, size)
    return before == 0 and after >= 0


def _fold_windows(
    x: torch.Tensor, dim: int, window: Window, axis: int, fold: Fold, dtype: torch.dtype, identity: float
) -> torch.Tensor:
    """Reduce the windows along a dimension of x, all together or, if they are long and few, one by one."""
    size = x.shape[dim]
    kernel, stride, count = window.kernel[axis], window.stride[axis], window.output_size(axis, size)
    before, _ = window.padding(axis, size)
    shape = [*x.shape[:dim], count, *x.shape[dim + 1 :]]
    if LONG < kernel <= size:
        after = (count - 1) * stride + kernel - size - before  # Negative if the last windows end before.
        wide = torch.full(
            (*x.shape[:dim], before + size + max(after, 0), *x.shape[dim + 1 :]), identity, dtype=dtype, device=x.device
        )
        wide.narrow(dim, before, size).copy_(x)
        return every(reduced_runs(wide, dim, kernel, fold.combine), dim, 0, count, stride).contiguous()
    if kernel > size:
        y = torch.full(shape, identity, dtype=dtype, device=x.device)
        for position, start in enumerate(range(-before, count * stride - before, stride)):
            check_stop()
            first, stop = max(start, 0), min(start + kernel, size)
            if first < stop:
                y.select(dim, position).copy_(fold.reduce(x.narrow(dim, first, stop - first), dim, False, dtype))
        return y
    parts = []
    for offset in range(-before, kernel - before):
        # The windows whose element at this offset is a pixel.
        first, stop = max(0, -(offset // stride)), min(count, -((offset - size) // stride))
        if first < stop:
            parts.append((first, stop, every(x, dim, first * stride + offset, stop - first, stride)))
    # An element that all windows have comes first, so that it sets all results.
    parts.sort(key=lambda part: part[0] - part[1])
    if parts and parts[0][1] - parts[0][0] == count:
        y = parts.pop(0)[2].to(dtype, copy=True)
    else:
        y = torch.full(shape, identity, dtype=dtype, device=x.device)
    for first, stop, part in parts:
        check_stop()
        results = y.narrow(dim, first, stop - first)
        fold.combine(results, part, out=results)
    return y


def _counts(call: Call, window: Window, like: torch.Tensor) -> torch.Tensor | int:
    """Return how many elements of each window aren't padding, in the type of a tensor, to broadcast with it."""
    height = _height_axis(call)
    sizes = call.inputs[0].shape[height : height + 2]
    padding = [_needed_padding(window, axis, size) for axis, size in enumerate(sizes)]
    if all(before <= 0 and after <= 0 for before, after in padding):
        return window.kernel[0] * window.kernel[1]
    along = []
    for axis, size in enumerate(sizes):
        stride, before = window.stride[axis], padding[axis][0]
        start = torch.arange(window.output_size(axis, size), dtype=torch.int64, device=like.device) * stride - before
        along.append((start + window.kernel[axis]).clamp(max=size) - start.clamp(min=0))
    counts = along[0][:, None] * along[1]
    # No integers are divided by 0, which is the number of elements of a window over an image without any.
    counts = counts.to(like.dtype) if like.dtype.is_floating_point else counts.clamp(min=1)
    return counts if height == 2 else counts[..., None]


def _lowest(data_type: DataType) -> float:
    """Return the lowest number of a data type; of UINT64, after `in_order`."""
    if data_type is DataType.UINT64:
        return LOWEST
    if data_type in UNSIGNED_INTEGERS:
        return 0
    dtype = DTYPES[data_type]
    return -torch.inf if dtype.is_floating_point else torch.iinfo(dtype).min
