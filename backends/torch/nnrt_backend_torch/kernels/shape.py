"""Data moved but not changed: new shapes, orders, joins, parts, repetitions and borders."""

from collections.abc import Sequence

import torch
from torch.nn import functional

from nnrt_backend_torch.kernels.kernel import Call, bits, element, kernel, numbers, on_device
from nnrt_hdi.enums import NodeType, PaddingMode
from nnrt_hdi.ops.slicing import Masks, crop_starts, strided_cuts, window


@kernel(NodeType.SQUEEZE)
@kernel(NodeType.UNSQUEEZE)
@kernel(NodeType.EXPAND_DIMS, on_host=(1,))
@kernel(NodeType.FLATTEN)
@kernel(NodeType.RESHAPE, on_host=(1,))
def reshape(call: Call, x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
    """Reshape x to the shape of the output."""
    return x.reshape(call.outputs[0].shape)


@kernel(NodeType.TRANSPOSE, on_host=(1,))
def transpose(_: Call, x: torch.Tensor, permutation: torch.Tensor) -> torch.Tensor:
    """Permute the dimensions, so that permutation[n] becomes the n-th."""
    return x.permute(numbers(permutation))


@kernel(NodeType.CONCAT)
def concat(call: Call, *parts: torch.Tensor) -> torch.Tensor:
    """Join the parts along axis."""
    return torch.cat(parts, call.attrs.axis)


@kernel(NodeType.STACK)
def stack(call: Call, *parts: torch.Tensor) -> torch.Tensor:
    """Join the parts along a new dimension."""
    return torch.stack(parts, call.attrs.axis)


@kernel(NodeType.SPLIT)
def split(call: Call, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Cut x along axis into pieces of the outputs' lengths."""
    axis = call.attrs.axis
    return tuple(x.split_with_sizes([spec.shape[axis] for spec in call.outputs], axis))


@kernel(NodeType.UNSTACK)
def unstack(call: Call, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the entries of x along axis."""
    return x.unbind(call.attrs.axis)


@kernel(NodeType.SLICE_FUSION, on_host=(1, 2))
def slice_(call: Call, x: torch.Tensor, begin: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """Return size[i] elements from begin[i] on, along each dimension i."""
    along = [axis % x.ndim for axis in call.attrs.axes] or range(x.ndim)
    return cut_out(x, window(x.shape, along, numbers(begin), numbers(size)))


@kernel(NodeType.CROP, on_host=(1,))
def crop(call: Call, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return a window of the output's size, along all dimensions from axis on."""
    along = range(call.attrs.axis % x.ndim, x.ndim)
    starts = crop_starts(call.attrs.offset, along)
    return cut_out(x, window(x.shape, along, starts, call.outputs[0].shape[along.start :]))


def cut_out(x: torch.Tensor, starts_and_lengths: Sequence[tuple[int, int]]) -> torch.Tensor:
    """Return a window of x."""
    return x[tuple(slice(start, start + length) for start, length in starts_and_lengths)]


@kernel(NodeType.STRIDED_SLICE, on_host=(1, 2, 3))
def strided_slice(
    call: Call, x: torch.Tensor, begin: torch.Tensor, end: torch.Tensor, strides: torch.Tensor
) -> torch.Tensor:
    """Slice x along the dimensions that have entries, then add new dimensions and remove shrunk ones by reshaping."""
    entries = list(zip(*map(numbers, (begin, end, strides)), strict=True))
    cuts = strided_cuts(x.shape, entries, Masks(**vars(call.attrs)))
    parts = [cut.part for cut in cuts if cut.part is not None]
    places = [range(size)[part] for size, part in zip(x.shape, parts, strict=True)]
    backwards = [axis for axis, place in enumerate(places) if place.step < 0]
    # Torch takes no negative steps. No range is empty, because the result has elements.
    forwards = [place[::-1] if place.step < 0 else place for place in places]
    y = x[tuple(slice(place.start, place.stop, place.step) for place in forwards)]
    return (_flipped(y, *backwards) if backwards else y).reshape(call.outputs[0].shape)


@kernel(NodeType.TILE_FUSION, on_host=(1,))
def tile(call: Call, x: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Repeat x as often as needed to fill the output."""
    shape = call.outputs[0].shape
    dims = (1,) * (len(shape) - x.ndim) + call.inputs[0].shape
    if all(dim in (1, size) for size, dim in zip(shape, dims, strict=True)):
        return x.expand(shape)
    return x.repeat([size // dim for size, dim in zip(shape, dims, strict=True)])


@kernel(NodeType.BROADCAST_TO)
def broadcast_to(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Repeat x along its dimensions of length 1."""
    return x.expand(call.outputs[0].shape)


@kernel(NodeType.PAD_FUSION, on_host=(1,))
def pad(call: Call, x: torch.Tensor, paddings: torch.Tensor) -> torch.Tensor:
    """Add a border to x: a constant, or x mirrored without (REFLECT) or with (SYMMETRIC) its edge."""
    mode, widths = call.attrs.padding_mode, numbers(paddings)
    pairs = list(zip(widths[::2], widths[1::2], strict=True))
    if mode is PaddingMode.CONSTANT:
        innermost_first = [width for pair in reversed(pairs) for width in pair]
        return functional.pad(x, innermost_first, value=element(call.attrs.constant_value, x.dtype))
    for axis, pair in enumerate(pairs):
        if any(pair):
            x = _mirrored(x, axis, pair, edge=1 if mode is PaddingMode.REFLECT else 0)
    return x


def _mirrored(x: torch.Tensor, axis: int, pair: tuple[int, int], edge: int) -> torch.Tensor:
    """Add elements before and after x, mirrored at its edge, which is left out if `edge` is 1."""
    before, after = pair
    first = x.narrow(axis, edge, before)
    last = x.narrow(axis, x.shape[axis] - edge - after, after)
    return torch.cat((_flipped(first, axis), x, _flipped(last, axis)), axis)


def _flipped(x: torch.Tensor, *axes: int) -> torch.Tensor:
    return bits(x).flip(axes).view(x.dtype)


@kernel(NodeType.SHAPE)
def shape_of(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Return the dimensions of x."""
    return on_device(call, torch.tensor(call.inputs[0].shape, dtype=call.dtype))


@kernel(NodeType.RANK)
def rank_of(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Return the number of dimensions of x."""
    return torch.full((), call.inputs[0].rank, dtype=call.dtype, device=call.device)
