"""Convolutions and pooling: windows that slide over an image.

All are computed in the order batch, height, width, channels; an image in NCHW is turned before and after.
Sizes and paddings are those of `nnrt_hdi.ops.convolution`.
"""

import itertools
import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnrt_backend_reference.kernels.activation import fused
from nnrt_backend_reference.kernels.arithmetic import quotient
from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, cast_all, kernel, require_memory
from nnrt_backend_reference.kernels.pieces import PIECE_STEPS, ask, blocks, product, rows_of_product
from nnrt_backend_reference.kernels.reduction import accumulator, lowest
from nnrt_hdi.enums import Format, NodeType
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.ops.convolution import Window, pooling_window
from nnrt_hdi.tensor import Shape

# Largest matrix of windows that a convolution makes at once.
BLOCK_BYTES = 1 << 25


@kernel(NodeType.CONV2D_FUSION)
def conv2d(call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> AnyArray:
    """Every window of x times the weight, as one matrix product per group."""
    image, taps, bias = _channels_last(call, x, weight, bias)
    if not taps.size:  # There are no channels to sum over, but the kernel may be large.
        return _finished(call, np.broadcast_to(bias, _nhwc(call)))
    window = _window(call, taps)
    windows = _windows(call, image, window, 0)
    groups = call.attrs.group
    y = _depthwise(windows, taps) if groups > 1 and taps.shape[3] == 1 else _grouped(windows, taps, groups)
    return _finished(call, y + bias)


@kernel(NodeType.CONV2D_TRANSPOSE_FUSION)
def conv2d_transpose(call: Call, x: AnyArray, weight: AnyArray, bias: AnyArray) -> AnyArray:
    """Every pixel of x times the weight, added to the output where the window lies, tap by tap."""
    image, taps, bias = _channels_last(call, x, weight, bias)
    if not taps.size:
        return _finished(call, np.broadcast_to(bias, _nhwc(call)))
    window = _window(call, taps)
    groups = call.attrs.group
    batch, *sizes, _ = image.shape
    _, *out_sizes, channels = _nhwc(call)
    # All with the groups in front: [groups, batch, height, width, channels / groups].
    image = np.moveaxis(image.reshape(batch, *sizes, groups, taps.shape[3]), 3, 0)
    taps = taps.reshape(groups, 1, channels // groups, *taps.shape[1:])
    y = np.zeros((groups, batch, *out_sizes, channels // groups), call.dtype)
    steps = [_overlaps(window, axis, sizes[axis], out_sizes[axis]) for axis in range(2)]
    for (row, rows, out_rows), (column, columns, out_columns) in itertools.product(*steps):
        matrices = taps[:, :, None, :, row, column].swapaxes(-1, -2)
        y[:, :, out_rows, out_columns] += product(image[:, :, rows, columns], matrices)
    return _finished(call, np.moveaxis(y, 0, 3).reshape(batch, *out_sizes, channels) + bias)


@kernel(NodeType.AVGPOOL_FUSION)
def avg_pool(call: Call, x: AnyArray) -> AnyArray:
    """Mean of each window over its real elements; integers round towards zero."""
    (image,) = _channels_last(call, x)
    window = _pooling_window(call)
    windows = _windows(call, image, window, 0)
    total = _folded(windows, np.add, accumulator(x.dtype))
    rows, columns = (_real_elements(window, axis, image.shape[1 + axis]) for axis in range(2))
    counts = (rows[:, None] * columns)[..., None].astype(total.dtype)
    return _finished(call, quotient(total, counts))


@kernel(NodeType.MAX_POOL_FUSION)
def max_pool(call: Call, x: AnyArray) -> AnyArray:
    """Maximum of each window; the padding is lower than everything."""
    (image,) = _channels_last(call, x)
    windows = _windows(call, image, _pooling_window(call), lowest(x.dtype))
    return _finished(call, _folded(windows, np.maximum, x.dtype))


def _folded(windows: AnyArray, fold: np.ufunc, dtype: AnyDType) -> AnyArray:
    """The elements of each window folded into one: tap by tap along the image, unless windows are few and large."""
    *positions, height, width = windows.shape
    if height * width > math.prod(positions):
        y = np.empty(positions, dtype)
        for part in blocks(y.shape, PIECE_STEPS // (height * width)):
            fold.reduce(windows[part], axis=(4, 5), dtype=dtype, out=y[part])
        return y
    y = windows[..., 0, 0].astype(dtype)
    for row, column in itertools.islice(itertools.product(range(height), range(width)), 1, None):
        ask()
        fold(y, windows[..., row, column], out=y)
    return y


def _channels_last(call: Call, *arrays: AnyArray) -> list[AnyArray]:
    """Images as [batch, height, width, channels] and vectors as they are, in the type to compute in."""
    turned = (
        np.moveaxis(array, 1, 3) if spec.rank == 4 and spec.format is Format.NCHW else array
        for spec, array in zip(call.inputs, arrays, strict=True)
    )
    return cast_all(call.dtype, *turned)


def _finished(call: Call, y: AnyArray) -> AnyArray:
    """The result with its activation, in the layout of the first input."""
    y = fused(y, call.attrs.activation_type)
    return np.moveaxis(y, 3, 1) if call.inputs[0].format is Format.NCHW else y


def _nhwc(call: Call) -> Shape:
    """The shape of the output, which has the layout of the first input, with its channels last."""
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
    """A view of every window: [batch, out height, out width, channels, kernel height, kernel width]."""
    _, out_height, out_width, _ = _nhwc(call)
    (stride_h, stride_w), (dilation_h, dilation_w) = window.stride, window.dilation
    views = sliding_window_view(_padded(call, image, window, border), window.extent, axis=(1, 2))
    views = views[:, ::stride_h, ::stride_w, :, ::dilation_h, ::dilation_w]
    return views[:, :out_height, :out_width]


def _padded(call: Call, image: AnyArray, window: Window, border: float) -> AnyArray:
    """The image with the border that its windows reach into."""
    batch, height, width, channels = image.shape
    (top, bottom), (left, right) = window.padding(0, height), window.padding(1, width)
    if not (top or bottom or left or right):
        return image
    shape = batch, top + height + bottom, left + width + right, channels
    require_memory(call, shape, image.dtype)
    padded = np.full_like(image, border, shape=shape)  # Lies in memory as the image does.
    padded[:, top : top + height, left : left + width] = image
    return padded


def _grouped(windows: AnyArray, taps: AnyArray, groups: int) -> AnyArray:
    """[..., height, width, in channels] by [out channels, height, width, in channels / groups]."""
    batch, height, width, channels, *kernel_size = windows.shape
    positions = batch, height, width
    inner = channels // groups
    # [groups, batch, height, width, kernel height, kernel width, in channels / groups]
    columns = windows.reshape(*positions, groups, inner, *kernel_size).transpose(3, 0, 1, 2, 5, 6, 4)
    matrices = taps.reshape(groups, len(taps) // groups, -1).swapaxes(1, 2)
    y = np.empty((groups, *positions, matrices.shape[2]), windows.dtype)
    row_bytes = max(1, channels * taps[0, ..., 0].size * y.itemsize)
    rows = rows_of_product(matrices.shape[1], len(taps), y.dtype)
    for position in blocks(positions, min(BLOCK_BYTES // row_bytes, rows)):
        part = (slice(None), *position)
        block = y[part]
        block[...] = (columns[part].reshape(groups, -1, matrices.shape[1]) @ matrices).reshape(block.shape)
    return np.moveaxis(y, 0, 3).reshape(*positions, len(taps))


def _depthwise(windows: AnyArray, taps: AnyArray) -> AnyArray:
    """Each channel by its own filters, [channels * multiplier, height, width, 1], one kernel tap at a time."""
    *positions, channels, height, width = windows.shape
    filters = taps.reshape(channels, -1, height, width)
    # As the image lies in memory, so that each step runs along it.
    results = [np.zeros_like(windows[..., 0, 0]) for _ in range(filters.shape[1])]
    product = np.empty_like(results[0])
    for row, column in itertools.product(range(height), range(width)):
        ask()
        for out, result in enumerate(results):
            np.multiply(windows[..., row, column], filters[:, out, row, column], out=product)
            result += product
    return results[0] if len(results) == 1 else np.stack(results, axis=-1).reshape(*positions, -1)


def _overlaps(window: Window, axis: int, size: int, out_size: int) -> list[tuple[int, slice, slice]]:
    """Taps of a transposed window along an axis, each with the pixels whose target is in the output, and the targets.

    A tap's offset + p stride is the target of pixel p. Taps without any are left out.
    """
    stride, cut = window.stride[axis], window.transposed_cut(axis, size)
    found = []
    for tap in range(window.kernel[axis]):
        offset = tap * window.dilation[axis] - cut
        first = max(0, -(offset // stride))
        last = min(size, -((offset - out_size) // stride))
        if first < last:
            targets = slice(offset + first * stride, offset + (last - 1) * stride + 1, stride)
            found.append((tap, slice(first, last), targets))
    return found


def _real_elements(window: Window, axis: int, size: int) -> AnyArray:
    """For each position of the window along an axis, how many of its elements are no padding."""
    before, _ = window.padding(axis, size)
    start = np.arange(window.output_size(axis, size)) * window.stride[axis] - before
    count: AnyArray = np.minimum(start + window.kernel[axis], size) - np.maximum(start, 0)
    return count
