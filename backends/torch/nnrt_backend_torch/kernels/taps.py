"""Convolutions in ways of our own, where torch would take too much memory or time: in pieces, and tap by tap."""

import itertools
import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from nnrt_backend_torch.kernels.kernel import Call
from nnrt_hdi.enums import DataType
from nnrt_hdi.ops.convolution import Window
from nnrt_hdi.steps import check_stop
from nnrt_hdi.tensor import NUMPY_DTYPES

# The most bytes of a matrix of windows, or of products, that torch makes.
WINDOWS_BYTES = 1 << 26


def double_conv2d(
    call: Call, image: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor, window: Window, padding: tuple[int, int]
) -> torch.Tensor:
    """Compute a convolution in FLOAT64, the type of quantized tensors, on a CPU.

    There torch makes a matrix of all windows of all images, and computes group by group. So some rows of an image are
    computed at a time, and groups of one channel together.
    """
    (batch, channels, height, width), (border_h, border_w) = image.shape, padding
    if border_h or border_w:
        shape = batch, channels, height + 2 * border_h, width + 2 * border_w
        call.require_memory(shape, NUMPY_DTYPES[DataType.FLOAT64])
        image = functional.pad(image, (border_w, border_w, border_h, border_h))
    groups = call.attrs.group
    if groups > 1 and taps.shape[1] == 1:
        return _depthwise(image, taps, bias, window)
    count, columns = (
        (size - extent) // stride + 1
        for size, extent, stride in zip(image.shape[2:], window.extent, window.stride, strict=True)
    )
    rows = max(1, WINDOWS_BYTES // (channels * math.prod(window.kernel) * columns * 8))
    results = []
    for part in torch.split(image, 1):
        pieces = []
        for first in range(0, count, rows):
            check_stop()
            start, length = first * window.stride[0], min(rows, count - first) - 1
            piece = part.narrow(2, start, length * window.stride[0] + window.extent[0])
            pieces.append(functional.conv2d(piece, taps, bias, window.stride, 0, window.dilation, groups))
        results.append(torch.cat(pieces, dim=2) if len(pieces) > 1 else pieces[0])
    return results[0] if len(results) == 1 else torch.cat(results)


def _depthwise(image: torch.Tensor, taps: torch.Tensor, bias: torch.Tensor, window: Window) -> torch.Tensor:
    """Multiply each channel by its own filters, [channels * multiplier, 1, height, width], one kernel tap at a time."""
    channels, (stride_h, stride_w), (dilation_h, dilation_w) = image.shape[1], window.stride, window.dilation
    rows, columns = (
        (size - extent) // stride * stride + 1
        for size, extent, stride in zip(image.shape[2:], window.extent, window.stride, strict=True)
    )
    results = []
    for filters, biases in zip(
        taps.reshape(channels, -1, *window.kernel).unbind(1), bias.reshape(channels, -1).unbind(1), strict=True
    ):
        y = biases[:, None, None]
        for row, column in itertools.product(*map(range, window.kernel)):
            check_stop()
            top, left = row * dilation_h, column * dilation_w
            part = image[:, :, top : top + rows : stride_h, left : left + columns : stride_w]
            factor = filters[:, row, column, None, None]
            y = y.addcmul_(part, factor) if row or column else torch.addcmul(y, part, factor)
        results.append(y)
    return results[0] if len(results) == 1 else torch.stack(results, dim=2).flatten(1, 2)


def transposed_by_taps(
    image: torch.Tensor,
    taps: torch.Tensor,
    window: Window,
    cuts: Sequence[int],
    sizes: tuple[int, int],
    groups: int,
) -> torch.Tensor:
    """Compute every pixel times the weight, added to the wanted part of the output, tap by tap.

    Tap t at position p is at index p stride + t dilation - cut. The weight is that of torch.
    """
    batch, channels = image.shape[:2]
    image = image.reshape(batch, groups, channels // groups, *image.shape[2:])
    taps = taps.reshape(groups, channels // groups, *taps.shape[1:])
    y = torch.zeros((batch, groups, taps.shape[2], *sizes), dtype=image.dtype, device=image.device)
    for row, column in itertools.product(*map(range, window.kernel)):
        check_stop()
        given, results = image, y
        for axis, tap in enumerate((row, column)):
            stride, offset = window.stride[axis], tap * window.dilation[axis] - cuts[axis]
            first, last = max(0, -(offset // stride)), min(image.shape[3 + axis], -((offset - sizes[axis]) // stride))
            if first >= last:
                break
            given = given.narrow(3 + axis, first, last - first)
            results = every(results, 3 + axis, offset + first * stride, last - first, stride)
        else:
            results += torch.einsum("bgihw,gio->bgohw", given, taps[:, :, :, row, column])
    return y.flatten(1, 2)


def every(x: torch.Tensor, dim: int, start: int, count: int, step: int) -> torch.Tensor:
    """Return `count` entries of a dimension, from `start` on, `step` apart."""
    return x[(slice(None),) * dim + (slice(start, start + (count - 1) * step + 1, step),)]
