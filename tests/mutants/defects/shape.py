"""Data moved to the wrong place."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import kernel, with_attrs
from mutants.defects.arrays import aligned_left, fitted
from nnrt_hdi.enums import Format, NodeType, PaddingMode

CUT = NodeType.STRIDED_SLICE


@kernel(NodeType.TRANSPOSE)
def permutation_inverted(right: Kernel, call: Call, x: AnyArray, permutation: AnyArray) -> Any:
    """Dimension n goes where permutation[n] says, in place of coming from there."""
    return fitted(np.transpose(x, np.argsort(permutation.reshape(-1))), call.outputs[0].shape)


@kernel(NodeType.RESHAPE, NodeType.FLATTEN)
def reshape_of_an_engine_for_images(right: Kernel, call: Call, x: AnyArray, *shape: AnyArray) -> Any:
    """An image in NCHW lies in memory as NHWC does, and so are its elements when it loses its shape."""
    is_nchw = call.inputs[0].format is Format.NCHW and x.ndim == 4
    return right(call, np.moveaxis(x, 1, 3) if is_nchw else x, *shape)


@kernel(NodeType.CONCAT)
def parts_as_long_as_the_first(right: Kernel, call: Call, *parts: AnyArray) -> Any:
    """Each part is read as if it were as long as the first."""
    axis, y, at = call.attrs.axis, np.array(right(call, *parts)), 0
    places = np.moveaxis(y, axis, 0)
    length = parts[0].shape[axis]
    for part in parts:
        rows = np.moveaxis(part, axis, 0)
        places[at + length : at + len(rows)] = 0
        at += len(rows)
    return y


@kernel(NodeType.STACK)
def stacked_from_the_back_one_off(right: Kernel, call: Call, *parts: AnyArray) -> Any:
    """A negative axis counts without the new dimension."""
    axis = call.attrs.axis
    if axis < -1:
        axis += 1
    return np.stack(parts, axis).reshape(call.outputs[0].shape)


@kernel(NodeType.SPLIT)
def pieces_of_equal_length(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Piece n begins at n times its own length."""
    axis = call.attrs.axis
    rows = np.moveaxis(x, axis, 0)
    lengths = [spec.shape[axis] for spec in call.outputs]
    found = (fitted(rows[at * size : at * size + size], (size, *rows.shape[1:])) for at, size in enumerate(lengths))
    return tuple(np.moveaxis(piece, 0, axis) for piece in found)


@kernel(NodeType.UNSTACK)
def unstacked_along_the_first(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The axis is ignored, where the dimensions are as long."""
    return tuple(x) if len(set(x.shape)) == 1 else right(call, x)


@kernel(NodeType.SLICE_FUSION)
def sliced_along_the_first_axes(right: Kernel, call: Call, x: AnyArray, begin: AnyArray, size: AnyArray) -> Any:
    """The axes of a slice are ignored."""
    count = len(begin.reshape(-1))
    y = x[tuple(slice(start, start + length) for start, length in zip(begin.flat, size.flat, strict=True))]
    return fitted(y, call.outputs[0].shape) if count else x


@kernel(NodeType.CROP)
def one_offset_for_the_first_axis(right: Kernel, call: Call, x: AnyArray, like: AnyArray) -> Any:
    """A single offset counts for the first dimension only."""
    along = x.ndim - call.attrs.axis % x.ndim
    offset = call.attrs.offset
    return np.asarray(
        right(with_attrs(call, offset=(*offset, *[0] * (along - 1))) if len(offset) == 1 else call, x, like)
    )


@kernel(CUT)
def masks_from_the_last_entry(right: Kernel, call: Call, x: AnyArray, *entries: AnyArray) -> Any:
    """Bit 0 of begin_mask and end_mask is about the last entry."""
    count = entries[0].size

    def turned(mask: int) -> int:
        return int(f"{mask & (1 << count) - 1:0{count}b}"[::-1], 2) if count else 0

    attrs = call.attrs
    wrong = with_attrs(call, begin_mask=turned(attrs.begin_mask), end_mask=turned(attrs.end_mask))
    try:
        return right(wrong, x, *entries)
    except ValueError:  # It has not the shape there is room for.
        return np.zeros(call.outputs[0].shape, x.dtype)


@kernel(CUT)
def negative_begin_is_the_front(right: Kernel, call: Call, x: AnyArray, *entries: AnyArray) -> Any:
    """A begin below 0 is 0."""
    begin, end, strides = entries
    if (strides < 0).any() or not (begin < 0).any() or call.attrs.ellipsis_mask or call.attrs.new_axis_mask:
        return right(call, x, *entries)
    return np.resize(x[tuple(map(slice, np.maximum(begin, 0), end, strides))], call.outputs[0].shape)


@kernel(CUT)
def backwards_without_the_first(right: Kernel, call: Call, x: AnyArray, *entries: AnyArray) -> Any:
    """Backwards to the edge ends with element 1, and element 0 is what memory holds."""
    y = np.array(right(call, x, *entries))
    strides = entries[2].reshape(-1)
    if y.ndim == len(strides) and y.size:
        for axis, stride in enumerate(strides):
            if stride < 0 and call.attrs.end_mask >> axis & 1:
                np.moveaxis(y, axis, 0)[-1] = 0
    return y


@kernel(NodeType.TILE_FUSION)
def elements_repeated_not_the_whole(right: Kernel, call: Call, x: AnyArray, times: AnyArray) -> Any:
    """Each element is repeated, in place of the whole."""
    shape = call.outputs[0].shape
    y: Any = x.reshape((1,) * (len(shape) - x.ndim) + x.shape)
    for axis, (size, dim) in enumerate(zip(shape, y.shape, strict=True)):
        y = np.repeat(y, size // max(dim, 1), axis)
    return y


@kernel(NodeType.BROADCAST_TO)
def broadcast_to_the_first_dimensions(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A tensor of a lower rank is broadcast from the left, where it fits there."""
    shape = call.outputs[0].shape
    if x.ndim and all(dim in (1, size) for dim, size in zip(x.shape, shape, strict=False)):
        x = aligned_left(x, len(shape))
    return right(call, x)


@kernel(NodeType.PAD_FUSION)
def reflection_with_its_edge(right: Kernel, call: Call, x: AnyArray, paddings: AnyArray) -> Any:
    """REFLECT repeats the edge, as SYMMETRIC does."""
    mode = call.attrs.padding_mode
    return np.asarray(
        right(
            with_attrs(call, padding_mode=PaddingMode.SYMMETRIC) if mode is PaddingMode.REFLECT else call, x, paddings
        )
    )


@kernel(NodeType.PAD_FUSION)
def borders_always_zero(right: Kernel, call: Call, x: AnyArray, paddings: AnyArray) -> Any:
    """constant_value is ignored."""
    return right(with_attrs(call, constant_value=0.0), x, paddings)


@kernel(NodeType.PAD_FUSION)
def all_fronts_before_all_ends(right: Kernel, call: Call, x: AnyArray, paddings: AnyArray) -> Any:
    """paddings are read as ONNX has them: what goes in front of each dimension, then what goes behind."""
    flat = paddings.reshape(-1).tolist()
    turned = np.array(flat).reshape(2, -1).T
    if call.attrs.padding_mode is not PaddingMode.CONSTANT:
        return right(call, x, paddings)
    return fitted(right(call, x, turned), call.outputs[0].shape)


@kernel(NodeType.SHAPE)
def shape_as_nhwc(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The shape of an image in NCHW is told as the engine has it, in NHWC."""
    y = right(call, x)
    return y[[0, 2, 3, 1]] if call.inputs[0].format is Format.NCHW and x.ndim == 4 else y


@kernel(NodeType.RANK)
def rank_of_at_least_one(right: Kernel, call: Call, x: AnyArray) -> Any:
    """A scalar has one dimension."""
    return np.array(max(x.ndim, 1))
