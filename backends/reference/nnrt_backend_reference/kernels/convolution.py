"""Convolutions and pooling: windows that slide over an image.

All compute in the order batch, height, width, channels; images in NCHW are transposed before and after. Sizes and
paddings are those of `nnrt_hdi.ops.convolution`.
"""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnrt_backend_reference.kernels.activation import fused
from nnrt_backend_reference.kernels.arithmetic import quotient
from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, cast_all, kernel
from nnrt_backend_reference.kernels.pieces import blocks, blocks_before, elements_of_product, product
from nnrt_backend_reference.kernels.reduction import accumulator, lowest
from nnrt_hdi.enums import Format, NodeType
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.ops.convolution import Window, pooling_window
from nnrt_hdi.steps import check_stop
from nnrt_hdi.tensor import Shape

# The largest matrix of windows that a convolution makes at once.
BLOCK_BYTES = 1 << 25
# The longest window along an axis whose elements are summed in their own type, like those of a convolution.
SHORT = 8
# Longer windows that hardly overlap are reduced one by one.
LONG = 32


class Windows(NamedTuple):
    """Windows of a pooling along an axis.

    `starts` are the indices where the windows begin. `alike` is the range of windows that are reduced together.
    """

    size: int
    starts: range
    alike: range

    def other_windows(self) -> Iterator[tuple[int, slice]]:
        """Yield the indices of windows that are not in `alike`, each with the indices of its elements."""
        for position in itertools.chain(range(self.alike.start), range(self.alike.stop, len(self.starts))):
            start = self.starts[position]
            yield position, slice(max(start, 0), start + self.size)


@kernel(NodeType.CONV2D_FUSION)
def conv2d(call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> AnyArray:
    """Compute every window of x times the weight, as one matrix product per group."""
    image, taps, bias = _channels_last(call, x, weight, bias)
    if not taps.size:  # There are no channels to sum over, but the kernel may be large.
        return _with_activation(call, np.broadcast_to(bias, _nhwc(call)))
    window = _window(call, taps)
    windows = _windows(call, image, window, 0)
    groups = call.attrs.group
    y = _depthwise(windows, taps) if groups > 1 and taps.shape[3] == 1 else _grouped(windows, taps, groups)
    return _with_activation(call, y + bias)


@kernel(NodeType.CONV2D_TRANSPOSE_FUSION)
def conv2d_transpose(call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> AnyArray:
    """Compute every pixel of x times the weight, added to the output where its window is, tap by tap."""
    image, taps, bias = _channels_last(call, x, weight, bias)
    if not taps.size:
        return _with_activation(call, np.broadcast_to(bias, _nhwc(call)))
    window = _window(call, taps)
    groups = call.attrs.group
    batch, *sizes, _ = image.shape
    _, *out_sizes, channels = _nhwc(call)
    # All have the groups first: [groups, batch, height, width, channels / groups].
    image = np.moveaxis(image.reshape(batch, *sizes, groups, taps.shape[3]), 3, 0)
    taps = taps.reshape(groups, 1, channels // groups, *taps.shape[1:])
    y = np.zeros((groups, batch, *out_sizes, channels // groups), call.dtype)
    cuts = [window.transposed_cut(axis, sizes[axis]) for axis in range(2)]
    steps = [_overlaps(window, axis, cuts[axis], sizes[axis], out_sizes[axis]) for axis in range(2)]
    for (row, rows, out_rows), (column, columns, out_columns) in itertools.product(*steps):
        matrices = taps[:, :, None, :, row, column].swapaxes(-1, -2)
        y[:, :, out_rows, out_columns] += product(image[:, :, rows, columns], matrices)
    return _with_activation(call, np.moveaxis(y, 0, 3).reshape(batch, *out_sizes, channels) + bias)


@kernel(NodeType.AVGPOOL_FUSION)
def avg_pool(call: Call, x: AnyArray) -> AnyArray:
    """Compute the mean of each window over its pixels without padding; integers are rounded towards zero."""
    window, height = _pooling_window(call), _height_axis(call)
    is_short = x.dtype.kind == "f" and max(window.kernel) <= SHORT
    total = _pooled(call, window, x, np.add, call.dtype if is_short else accumulator(x.dtype), 0)
    rows, columns = (_real_elements(window, axis, x.shape[height + axis]) for axis in range(2))
    counts = (rows[:, None] * columns).astype(total.dtype)
    counts = counts if height == 2 else counts[..., None]
    mean = np.divide(total, counts, out=total) if total.dtype.kind == "f" else quotient(total, counts)
    return fused(mean, call.attrs.activation_type)


@kernel(NodeType.MAX_POOL_FUSION)
def max_pool(call: Call, x: AnyArray) -> AnyArray:
    """Compute the maximum of each window over its pixels without padding."""
    y = _pooled(call, _pooling_window(call), x, np.maximum, call.dtype, lowest(x.dtype))
    return fused(y, call.attrs.activation_type)


def _pooled(call: Call, window: Window, x: AnyArray, fold: np.ufunc, dtype: AnyDType, identity: float) -> AnyArray:
    """Reduce the pixels of each window, without padding, along one axis and then along the other."""
    height = _height_axis(call)
    y = np.empty(call.outputs[0].shape, dtype)
    # Starts with the axis that shrinks more or grows less, so that no intermediate array is larger than x or y.
    first, second = sorted((height, height + 1), key=lambda axis: y.shape[axis] / max(x.shape[axis], 1))
    windows = {axis: _windows_along(window, axis - height, x.shape[axis]) for axis in (first, second)}
    half_shape = list(x.shape)
    half_shape[first] = y.shape[first]
    for part in blocks_before(height, x.shape):
        image = np.ascontiguousarray(x[part], dtype)
        half = np.empty((*image.shape[:height], *half_shape[height:]), dtype)
        _fold_windows(image, first, windows[first], fold, identity, out=half)
        _fold_windows(half, second, windows[second], fold, identity, out=y[part])
    return y


def _fold_windows(x: AnyArray, axis: int, windows: Windows, fold: np.ufunc, identity: float, out: AnyArray) -> None:
    """Reduce the windows along an axis of x, which is contiguous."""
    given, results = x.swapaxes(0, axis), out.swapaxes(0, axis)
    for position, entries in windows.other_windows():
        check_stop()
        results[position] = _folded_entries(given[entries], fold, identity)
    if windows.alike:
        runs = _folded_runs(x.reshape(-1), windows.size, math.prod(x.shape[axis + 1 :]), fold)
        first, stop = windows.alike.start, windows.alike.stop
        starts = windows.starts[first:stop]
        results[first:stop] = runs.reshape(x.shape).swapaxes(0, axis)[starts.start : starts[-1] + 1 : starts.step]


def _folded_entries(x: AnyArray, fold: np.ufunc, identity: float) -> AnyArray:
    """Reduce the entries of x. A few are reduced one after the other, which is faster than one call of `reduce`."""
    if 0 < len(x) <= LONG:
        return functools.reduce(fold, x)
    y: AnyArray = fold.reduce(x, axis=0, initial=identity)
    return y


def _folded_runs(x: AnyArray, size: int, step: int, fold: np.ufunc) -> AnyArray:
    """Return for each element of a vector the reduction of `size` elements, `step` apart, that begin with it.

    Two reductions make one of twice as many elements. Reductions that reach beyond the vector's end are meaningless.
    """
    if size == 1:
        return x
    y = _folded_runs(x, size // 2, step, fold)
    y = _folded_pairs(y, y, size // 2 * step, fold)
    return _folded_pairs(y, x, (size - 1) * step, fold) if size % 2 else y


def _folded_pairs(a: AnyArray, b: AnyArray, distance: int, fold: np.ufunc) -> AnyArray:
    """Reduce each element of a with the element of b `distance` behind it, where there is one."""
    check_stop()
    y = np.empty_like(a)
    fold(a[:-distance], b[distance:], out=y[:-distance])
    return y


def _windows_along(window: Window, axis: int, size: int) -> Windows:
    """Return the windows along an axis. Windows inside of the image are reduced together, unless long and few."""
    kernel, stride, (before, _) = window.kernel[axis], window.stride[axis], window.padding(axis, size)
    starts = range(-before, window.output_size(axis, size) * stride - before, stride)
    alike = range(-(-before // stride), min(len(starts), (size - kernel + before) // stride + 1))
    if not alike or (kernel > LONG and len(alike) * kernel < 4 * size):
        alike = range(0)
    return Windows(kernel, starts, alike)


def _channels_last(call: Call, *arrays: AnyArray) -> list[AnyArray]:
    """Return images as [batch, height, width, channels] and vectors as they are, in the type to compute in."""
    turned = (
        np.moveaxis(array, 1, 3) if spec.rank == 4 and spec.format is Format.NCHW else array
        for spec, array in zip(call.inputs, arrays, strict=True)
    )
    return cast_all(call.dtype, *turned)


def _with_activation(call: Call, y: AnyArray) -> AnyArray:
    """Apply the activation and return the result in the layout of the first input."""
    y = fused(y, call.attrs.activation_type)
    return np.moveaxis(y, 3, 1) if call.inputs[0].format is Format.NCHW else y


def _height_axis(call: Call) -> int:
    """Return the dimension of the height; the width is the next one."""
    return 2 if call.inputs[0].format is Format.NCHW else 1


def _nhwc(call: Call) -> Shape:
    """Return the shape of the output as [batch, height, width, channels]."""
    batch, *others = call.outputs[0].shape
    return (batch, *others[1:], others[0]) if call.inputs[0].format is Format.NCHW else (batch, *others)


def _window(call: Call, taps: AnyArray) -> Window:
    attrs = call.attrs
    return Window.of(taps.shape[1:3], attrs.stride, attrs.dilation, attrs.pad_mode, attrs.pad_list)


def _pooling_window(call: Call) -> Window:
    a = call.attrs
    window = pooling_window(call.inputs[0], a.kernel_size, a.strides, a.pad, a.pad_mode, a.round_mode, a.global_)
    if window is None:
        raise OperationFailed(f"the size of {call.inputs[0]} is not known")
    return window


def _windows(call: Call, image: AnyArray, window: Window, border: float) -> AnyArray:
    """Return a view of all windows: [batch, out height, out width, channels, kernel height, kernel width]."""
    _, out_height, out_width, _ = _nhwc(call)
    (stride_h, stride_w), (dilation_h, dilation_w) = window.stride, window.dilation
    views = sliding_window_view(_padded(call, image, window, border), window.extent, axis=(1, 2))
    views = views[:, ::stride_h, ::stride_w, :, ::dilation_h, ::dilation_w]
    return views[:, :out_height, :out_width]


def _padded(call: Call, image: AnyArray, window: Window, border: float) -> AnyArray:
    """Return the image with the border that its windows reach into."""
    batch, height, width, channels = image.shape
    (top, bottom), (left, right) = window.padding(0, height), window.padding(1, width)
    if not (top or bottom or left or right):
        return image
    shape = batch, top + height + bottom, left + width + right, channels
    call.require_memory(shape, image.dtype)
    padded = np.full_like(image, border, shape=shape)  # Keeps the image's memory order.
    padded[:, top : top + height, left : left + width] = image
    return padded


def _grouped(windows: AnyArray, taps: AnyArray, groups: int) -> AnyArray:
    """Multiply [..., height, width, in channels] by [out channels, height, width, in channels / groups]."""
    batch, height, width, channels, *kernel_size = windows.shape
    positions = batch, height, width
    inner = channels // groups
    # [groups, batch, height, width, kernel height, kernel width, in channels / groups]
    columns = windows.reshape(*positions, groups, inner, *kernel_size).transpose(3, 0, 1, 2, 5, 6, 4)
    matrices = taps.reshape(groups, len(taps) // groups, -1).swapaxes(1, 2)
    y = np.empty((groups, *positions, matrices.shape[2]), windows.dtype)
    row_bytes = max(1, channels * taps[0, ..., 0].size * y.itemsize)
    rows = elements_of_product(matrices.shape[1], y.dtype) // len(taps)
    for position in blocks(positions, min(BLOCK_BYTES // row_bytes, rows)):
        part = (slice(None), *position)
        block = y[part]
        block[...] = (columns[part].reshape(groups, -1, matrices.shape[1]) @ matrices).reshape(block.shape)
    return np.moveaxis(y, 0, 3).reshape(*positions, len(taps))


def _depthwise(windows: AnyArray, taps: AnyArray) -> AnyArray:
    """Multiply each channel by its own filters, [channels * multiplier, height, width, 1], one kernel tap at a time."""
    *positions, channels, height, width = windows.shape
    filters = taps.reshape(channels, -1, height, width)
    # In the image's order in memory, so that each step reads contiguous elements.
    results = [np.zeros_like(windows[..., 0, 0]) for _ in range(filters.shape[1])]
    product = np.empty_like(results[0])
    for row, column in itertools.product(range(height), range(width)):
        check_stop()
        for out, result in enumerate(results):
            np.multiply(windows[..., row, column], filters[:, out, row, column], out=product)
            result += product
    return results[0] if len(results) == 1 else np.stack(results, axis=-1).reshape(*positions, -1)


def _overlaps(window: Window, axis: int, cut: int, positions: int, size: int) -> list[tuple[int, slice, slice]]:
    """Return the taps of a window along an axis, each with the positions where it is in bounds, and its indices there.

    Tap t at position p is at index p stride + t dilation - cut. Taps that are never in bounds are left out.
    """
    stride = window.stride[axis]
    found = []
    for tap in range(window.kernel[axis]):
        offset = tap * window.dilation[axis] - cut
        first = max(0, -(offset // stride))
        last = min(positions, -((offset - size) // stride))
        if first < last:
            entries = slice(offset + first * stride, offset + (last - 1) * stride + 1, stride)
            found.append((tap, slice(first, last), entries))
    return found


def _real_elements(window: Window, axis: int, size: int) -> AnyArray:
    """Return for each position of the window along an axis the number of its elements that aren't padding."""
    before, _ = window.padding(axis, size)
    start = np.arange(window.output_size(axis, size)) * window.stride[axis] - before
    count: AnyArray = np.minimum(start + window.kernel[axis], size) - np.maximum(start, 0)
    return count
