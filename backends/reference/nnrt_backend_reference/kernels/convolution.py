"""Convolutions and pooling: windows that slide over an image.

All are computed in the order batch, height, width, channels; an image in NCHW is turned before and after.
Sizes and paddings are those of `nnrt_hdi.ops.convolution`.
"""

import itertools

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from nnrt_backend_reference.kernels.activation import fused
from nnrt_backend_reference.kernels.arithmetic import quotient
from nnrt_backend_reference.kernels.kernel import AnyArray, AnyDType, Call, cast_all, kernel, require_memory
from nnrt_backend_reference.kernels.pieces import ask, blocks, blocks_before, product, rows_of_product
from nnrt_backend_reference.kernels.reduction import accumulator, lowest
from nnrt_hdi.enums import Format, NodeType
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.ops.convolution import Window, pooling_window
from nnrt_hdi.tensor import Shape

# Largest matrix of windows that a convolution makes at once.
BLOCK_BYTES = 1 << 25
# Longest window along an axis whose elements are summed in their own type, as a convolution's are.
SHORT = 8
# Positions of a window along an axis, or a single one, each with elements that are folded there.
Folds = list[tuple[int | slice, slice]]


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
    cuts = [window.transposed_cut(axis, sizes[axis]) for axis in range(2)]
    steps = [_overlaps(window, axis, cuts[axis], sizes[axis], out_sizes[axis]) for axis in range(2)]
    for (row, rows, out_rows), (column, columns, out_columns) in itertools.product(*steps):
        matrices = taps[:, :, None, :, row, column].swapaxes(-1, -2)
        y[:, :, out_rows, out_columns] += product(image[:, :, rows, columns], matrices)
    return _finished(call, np.moveaxis(y, 0, 3).reshape(batch, *out_sizes, channels) + bias)


@kernel(NodeType.AVGPOOL_FUSION)
def avg_pool(call: Call, x: AnyArray) -> AnyArray:
    """Mean of each window over its real elements; integers round towards zero."""
    window, height = _pooling_window(call), _height_axis(call)
    is_short = x.dtype.kind == "f" and max(window.kernel) <= SHORT
    total = _pooled(call, x, np.add, call.dtype if is_short else accumulator(x.dtype), 0)
    rows, columns = (_real_elements(window, axis, x.shape[height + axis]) for axis in range(2))
    counts = (rows[:, None] * columns).astype(total.dtype)
    mean = quotient(total, counts if height == 2 else counts[..., None])
    return fused(mean, call.attrs.activation_type)


@kernel(NodeType.MAX_POOL_FUSION)
def max_pool(call: Call, x: AnyArray) -> AnyArray:
    """Maximum of each window over its real elements."""
    return fused(_pooled(call, x, np.maximum, call.dtype, lowest(x.dtype)), call.attrs.activation_type)


def _pooled(call: Call, x: AnyArray, fold: np.ufunc, dtype: AnyDType, identity: float) -> AnyArray:
    """The real elements of each window folded into one: along one axis, and what that gives along the other."""
    window, height = _pooling_window(call), _height_axis(call)
    y = np.empty(call.outputs[0].shape, dtype)
    # First the axis that shrinks more or grows less, so that nothing has more elements than x or y.
    axes = sorted(range(2), key=lambda axis: y.shape[height + axis] / x.shape[height + axis])
    folds = [(height + axis, _folds(window, axis, x.shape[height + axis])) for axis in axes]
    for part in blocks_before(height, x.shape):
        image = x[part]
        for axis, pairs in folds:
            image = _folded(image, axis, y.shape[axis], pairs, fold, dtype, identity)
        y[part] = image
    return y


def _folded(
    x: AnyArray, axis: int, size: int, pairs: Folds, fold: np.ufunc, dtype: AnyDType, identity: float
) -> AnyArray:
    """x with the elements of its windows along an axis folded, which gets this size."""
    y = np.empty((*x.shape[:axis], size, *x.shape[axis + 1 :]), dtype)
    given, results = x.swapaxes(0, axis), y.swapaxes(0, axis)
    first, *others = pairs
    if first[0] == slice(0, size):
        results[...] = given[first[1]]
    else:
        results[...], others = identity, pairs
    for targets, lying in others:
        ask()
        if isinstance(targets, int):
            fold.reduce(given[lying], axis=0, dtype=dtype, out=results[targets])
        else:
            fold(results[targets], given[lying].astype(dtype, copy=False), out=results[targets])
    return y


def _folds(window: Window, axis: int, size: int) -> Folds:
    """What folds the windows along an axis of this size: position by position, or, if they are fewer, tap by tap.

    A tap that lies in the axis at every position comes first.
    """
    positions, (before, _) = window.output_size(axis, size), window.padding(axis, size)
    if positions < window.kernel[axis]:
        starts = (position * window.stride[axis] - before for position in range(positions))
        return [(at, slice(max(start, 0), start + window.kernel[axis])) for at, start in enumerate(starts)]
    overlaps = _overlaps(window, axis, before, positions, size)
    overlaps.sort(key=lambda overlap: overlap[1] != slice(0, positions))
    return [(targets, lying) for _, targets, lying in overlaps]


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


def _height_axis(call: Call) -> int:
    """The dimension of the height, behind which that of the width is."""
    return 2 if call.inputs[0].format is Format.NCHW else 1


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


def _overlaps(window: Window, axis: int, cut: int, positions: int, size: int) -> list[tuple[int, slice, slice]]:
    """Taps of a window along an axis of this size, each with the positions whose tap lies in it, and where those lie.

    Tap t at position p lies at p stride + t dilation - cut. Taps that nowhere lie in it are left out.
    """
    stride = window.stride[axis]
    found = []
    for tap in range(window.kernel[axis]):
        offset = tap * window.dilation[axis] - cut
        first = max(0, -(offset // stride))
        last = min(positions, -((offset - size) // stride))
        if first < last:
            lying = slice(offset + first * stride, offset + (last - 1) * stride + 1, stride)
            found.append((tap, slice(first, last), lying))
    return found


def _real_elements(window: Window, axis: int, size: int) -> AnyArray:
    """For each position of the window along an axis, how many of its elements are no padding."""
    before, _ = window.padding(axis, size)
    start = np.arange(window.output_size(axis, size)) * window.stride[axis] - before
    count: AnyArray = np.minimum(start + window.kernel[axis], size) - np.maximum(start, 0)
    return count
