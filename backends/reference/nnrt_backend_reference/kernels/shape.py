"""Data moved but not changed: new shapes, orders, joins, parts, repetitions and borders."""

from collections.abc import Sequence

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, Call, kernel
from nnrt_hdi.enums import NodeType, PaddingMode
from nnrt_hdi.ops.slicing import Masks, crop_starts, strided_cuts, window


@kernel(NodeType.SQUEEZE)
@kernel(NodeType.UNSQUEEZE)
@kernel(NodeType.EXPAND_DIMS)
@kernel(NodeType.FLATTEN)
@kernel(NodeType.RESHAPE)
def reshape(call: Call, x: AnyArray, *_: AnyArray) -> AnyArray:
    """Reshape x to the shape of the output."""
    y: AnyArray = x.reshape(call.outputs[0].shape)
    return y


@kernel(NodeType.TRANSPOSE)
def transpose(_: Call, x: AnyArray, permutation: AnyArray) -> AnyArray:
    """Permute the dimensions, so that permutation[n] becomes the n-th."""
    return np.transpose(x, permutation.reshape(-1).tolist())


@kernel(NodeType.CONCAT)
def concat(call: Call, *parts: AnyArray) -> AnyArray:
    """Join the parts along axis."""
    return np.concatenate(parts, axis=call.attrs.axis)


@kernel(NodeType.STACK)
def stack(call: Call, *parts: AnyArray) -> AnyArray:
    """Join the parts along a new dimension."""
    return np.stack(parts, axis=call.attrs.axis)


@kernel(NodeType.SPLIT)
def split(call: Call, x: AnyArray) -> tuple[AnyArray, ...]:
    """Cut x along axis into pieces of the outputs' lengths."""
    lengths = [spec.shape[call.attrs.axis] for spec in call.outputs]
    return tuple(np.split(x, np.cumsum(lengths[:-1]), axis=call.attrs.axis))


@kernel(NodeType.UNSTACK)
def unstack(call: Call, x: AnyArray) -> tuple[AnyArray, ...]:
    """Return the entries of x along axis."""
    return tuple(np.moveaxis(x, call.attrs.axis, 0))


@kernel(NodeType.SLICE_FUSION)
def slice_(call: Call, x: AnyArray, begin: AnyArray, size: AnyArray) -> AnyArray:
    """Return size[i] elements from begin[i] on, along each dimension i."""
    along = [axis % x.ndim for axis in call.attrs.axes] or range(x.ndim)
    return cut_out(x, window(x.shape, along, begin.reshape(-1).tolist(), size.reshape(-1).tolist()))


@kernel(NodeType.CROP)
def crop(call: Call, x: AnyArray, _: AnyArray) -> AnyArray:
    """Return a window of the output's size, along all dimensions from axis on."""
    along = range(call.attrs.axis % x.ndim, x.ndim)
    starts = crop_starts(call.attrs.offset, along)
    return cut_out(x, window(x.shape, along, starts, call.outputs[0].shape[along.start :]))


def cut_out(x: AnyArray, starts_and_lengths: Sequence[tuple[int, int]]) -> AnyArray:
    """Return a window of x."""
    return x[tuple(slice(start, start + length) for start, length in starts_and_lengths)]


@kernel(NodeType.STRIDED_SLICE)
def strided_slice(call: Call, x: AnyArray, begin: AnyArray, end: AnyArray, strides: AnyArray) -> AnyArray:
    """Slice x along the dimensions that have entries, then add new dimensions and remove shrunk ones by reshaping."""
    entries = list(zip(*(vector.reshape(-1).tolist() for vector in (begin, end, strides)), strict=True))
    cuts = strided_cuts(x.shape, entries, Masks(**vars(call.attrs)))
    return x[tuple(cut.part for cut in cuts if cut.part is not None)].reshape(call.outputs[0].shape)


@kernel(NodeType.TILE_FUSION)
def tile(call: Call, x: AnyArray, _: AnyArray) -> AnyArray:
    """Repeat x as often as needed to fill the output."""
    shape = call.outputs[0].shape
    dims = (1,) * (len(shape) - x.ndim) + call.inputs[0].shape
    return np.tile(x, [size // dim for size, dim in zip(shape, dims, strict=True)])


@kernel(NodeType.BROADCAST_TO)
def broadcast_to(call: Call, x: AnyArray) -> AnyArray:
    """Repeat x along its dimensions of length 1."""
    return np.broadcast_to(x, call.outputs[0].shape)


@kernel(NodeType.PAD_FUSION)
def pad(call: Call, x: AnyArray, paddings: AnyArray) -> AnyArray:
    """Add a border to x: a constant, or x mirrored without (REFLECT) or with (SYMMETRIC) its edge."""
    mode = call.attrs.padding_mode
    if not x.ndim:
        return x
    if mode is PaddingMode.CONSTANT:
        return np.pad(x, paddings.tolist(), constant_values=x.dtype.type(call.attrs.constant_value))
    return np.pad(x, paddings.tolist(), mode="reflect" if mode is PaddingMode.REFLECT else "symmetric")


@kernel(NodeType.SHAPE)
def shape_of(call: Call, x: AnyArray) -> AnyArray:
    """Return the dimensions of x."""
    return np.array(x.shape, call.outputs[0].numpy_dtype)


@kernel(NodeType.RANK)
def rank_of(_: Call, x: AnyArray) -> AnyArray:
    """Return the number of dimensions of x."""
    return np.array(x.ndim)
