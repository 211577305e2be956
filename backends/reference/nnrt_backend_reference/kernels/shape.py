"""Data moved, not changed: new shapes, orders, joins, parts, repetitions and borders."""

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
    """The elements of x, in their order, in the shape of the output."""
    y: AnyArray = x.reshape(call.outputs[0].shape)
    return y


@kernel(NodeType.TRANSPOSE)
def transpose(_: Call, x: AnyArray, permutation: AnyArray) -> AnyArray:
    """x with dimension permutation[n] as the n-th."""
    return np.transpose(x, permutation.reshape(-1).tolist())


@kernel(NodeType.CONCAT)
def concat(call: Call, *parts: AnyArray) -> AnyArray:
    """The parts behind each other along axis."""
    return np.concatenate(parts, axis=call.attrs.axis)


@kernel(NodeType.STACK)
def stack(call: Call, *parts: AnyArray) -> AnyArray:
    """The parts behind each other along a new dimension."""
    return np.stack(parts, axis=call.attrs.axis)


@kernel(NodeType.SPLIT)
def split(call: Call, x: AnyArray) -> tuple[AnyArray, ...]:
    """x cut along axis into pieces as long as the outputs."""
    lengths = [spec.shape[call.attrs.axis] for spec in call.outputs]
    return tuple(np.split(x, np.cumsum(lengths[:-1]), axis=call.attrs.axis))


@kernel(NodeType.UNSTACK)
def unstack(call: Call, x: AnyArray) -> tuple[AnyArray, ...]:
    """The entries of x along axis."""
    return tuple(np.moveaxis(x, call.attrs.axis, 0))


@kernel(NodeType.SLICE_FUSION)
def slice_(call: Call, x: AnyArray, begin: AnyArray, size: AnyArray) -> AnyArray:
    """size[i] elements from begin[i] on."""
    along = [axis % x.ndim for axis in call.attrs.axes] or range(x.ndim)
    return cut_out(x, window(x.shape, along, begin.reshape(-1).tolist(), size.reshape(-1).tolist()))


@kernel(NodeType.CROP)
def crop(call: Call, x: AnyArray, _: AnyArray) -> AnyArray:
    """A window as large as the output, along all dimensions from axis on."""
    along = range(call.attrs.axis % x.ndim, x.ndim)
    starts = crop_starts(call.attrs.offset, along)
    return cut_out(x, window(x.shape, along, starts, call.outputs[0].shape[along.start :]))


def cut_out(x: AnyArray, starts_and_lengths: Sequence[tuple[int, int]]) -> AnyArray:
    """A window into x."""
    return x[tuple(slice(start, start + length) for start, length in starts_and_lengths)]


@kernel(NodeType.STRIDED_SLICE)
def strided_slice(call: Call, x: AnyArray, begin: AnyArray, end: AnyArray, strides: AnyArray) -> AnyArray:
    """x cut along the dimensions of entries. New and shrunk ones have length 1: reshaping adds and drops them."""
    entries = list(zip(*(vector.reshape(-1).tolist() for vector in (begin, end, strides)), strict=True))
    cuts = strided_cuts(x.shape, entries, Masks(**vars(call.attrs)))
    return x[tuple(cut.part for cut in cuts if cut.part is not None)].reshape(call.outputs[0].shape)


@kernel(NodeType.TILE_FUSION)
def tile(call: Call, x: AnyArray, _: AnyArray) -> AnyArray:
    """x repeated as often as it takes to fill the output."""
    shape = call.outputs[0].shape
    dims = (1,) * (len(shape) - x.ndim) + call.inputs[0].shape
    return np.tile(x, [size // dim for size, dim in zip(shape, dims, strict=True)])


@kernel(NodeType.BROADCAST_TO)
def broadcast_to(call: Call, x: AnyArray) -> AnyArray:
    """x repeated along its dimensions of length 1."""
    return np.broadcast_to(x, call.outputs[0].shape)


@kernel(NodeType.PAD_FUSION)
def pad(call: Call, x: AnyArray, paddings: AnyArray) -> AnyArray:
    """x with a border that holds a constant, or mirrors x without (REFLECT) or with (SYMMETRIC) its edge."""
    mode = call.attrs.padding_mode
    if not x.ndim:
        return x
    if mode is PaddingMode.CONSTANT:
        return np.pad(x, paddings.tolist(), constant_values=x.dtype.type(call.attrs.constant_value))
    return np.pad(x, paddings.tolist(), mode="reflect" if mode is PaddingMode.REFLECT else "symmetric")


@kernel(NodeType.SHAPE)
def shape_of(call: Call, x: AnyArray) -> AnyArray:
    """The dimensions of x."""
    return np.array(x.shape, call.outputs[0].numpy_dtype)


@kernel(NodeType.RANK)
def rank_of(_: Call, x: AnyArray) -> AnyArray:
    """The number of dimensions of x."""
    return np.array(x.ndim)
