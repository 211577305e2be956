"""Elements moved to wrong positions."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import kernel, with_attrs
from mutants.defects.arrays import aligned_left, fitted
from nnrt_hdi.enums import Format, NodeType, PaddingMode

CUT = NodeType.STRIDED_SLICE


@kernel(NodeType.TRANSPOSE)
def permutation_inverted(right: Kernel, call: Call, x: AnyArray, permutation: AnyArray) -> Any:
    """A transpose applies the inverse permutation."""
    return fitted(np.transpose(x, np.argsort(permutation.reshape(-1))), call.outputs[0].shape)


@kernel(NodeType.RESHAPE, NodeType.FLATTEN)
def reshape_of_an_engine_for_images(right: Kernel, call: Call, x: AnyArray, *shape: AnyArray) -> Any:
    """RESHAPE and FLATTEN of an NCHW image order its elements as in NHWC."""
    is_nchw = call.inputs[0].format is Format.NCHW and x.ndim == 4
    return right(call, np.moveaxis(x, 1, 3) if is_nchw else x, *shape)


@kernel(NodeType.CONCAT)
def parts_as_long_as_the_first(right: Kernel, call: Call, *parts: AnyArray) -> Any:
    """CONCAT reads each operand as if it had the first one's length."""
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
    """STACK counts a negative axis without the new dimension."""
    axis = call.attrs.axis
    if axis < -1:
        axis += 1
    return np.stack(parts, axis).reshape(call.outputs[0].shape)


@kernel(NodeType.SPLIT)
def pieces_of_equal_length(right: Kernel, call: Call, x: AnyArray) -> Any:
    """SPLIT begins output n at n times that output's length."""
    axis = call.attrs.axis
    rows = np.moveaxis(x, axis, 0)
    lengths = [spec.shape[axis] for spec in call.outputs]
    found = (fitted(rows[at * size : at * size + size], (size, *rows.shape[1:])) for at, size in enumerate(lengths))
    return tuple(np.moveaxis(piece, 0, axis) for piece in found)


@kernel(NodeType.UNSTACK)
def unstacked_along_the_first(right: Kernel, call: Call, x: AnyArray) -> Any:
    """UNSTACK ignores the axis if all dimensions are equal."""
    return tuple(x) if len(set(x.shape)) == 1 else right(call, x)


@kernel(NodeType.SLICE_FUSION)
def sliced_along_the_first_axes(right: Kernel, call: Call, x: AnyArray, begin: AnyArray, size: AnyArray) -> Any:
    """SLICE ignores its axes."""
    count = len(begin.reshape(-1))
    y = x[tuple(slice(start, start + length) for start, length in zip(begin.flat, size.flat, strict=True))]
    return fitted(y, call.outputs[0].shape) if count else x


@kernel(NodeType.CROP)
def one_offset_for_the_first_axis(right: Kernel, call: Call, x: AnyArray, like: AnyArray) -> Any:
    """CROP applies a single offset to the first axis only."""
    along = x.ndim - call.attrs.axis % x.ndim
    offset = call.attrs.offset
    return np.asarray(
        right(with_attrs(call, offset=(*offset, *[0] * (along - 1))) if len(offset) == 1 else call, x, like)
    )


@kernel(CUT)
def masks_from_the_last_entry(right: Kernel, call: Call, x: AnyArray, *entries: AnyArray) -> Any:
    """Bit 0 of begin_mask and end_mask stands for the last entry."""
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
    """STRIDED_SLICE takes a negative begin for 0."""
    begin, end, strides = entries
    if (strides < 0).any() or not (begin < 0).any() or call.attrs.ellipsis_mask or call.attrs.new_axis_mask:
        return right(call, x, *entries)
    return np.resize(x[tuple(map(slice, np.maximum(begin, 0), end, strides))], call.outputs[0].shape)


@kernel(CUT)
def backwards_without_the_first(right: Kernel, call: Call, x: AnyArray, *entries: AnyArray) -> Any:
    """STRIDED_SLICE with a negative stride to the edge leaves out element 0."""
    y = np.array(right(call, x, *entries))
    strides = entries[2].reshape(-1)
    if y.ndim == len(strides) and y.size:
        for axis, stride in enumerate(strides):
            if stride < 0 and call.attrs.end_mask >> axis & 1:
                np.moveaxis(y, axis, 0)[-1] = 0
    return y


@kernel(NodeType.TILE_FUSION)
def elements_repeated_not_the_whole(right: Kernel, call: Call, x: AnyArray, times: AnyArray) -> Any:
    """TILE repeats each element instead of the whole tensor."""
    shape = call.outputs[0].shape
    y: Any = x.reshape((1,) * (len(shape) - x.ndim) + x.shape)
    for axis, (size, dim) in enumerate(zip(shape, y.shape, strict=True)):
        y = np.repeat(y, size // max(dim, 1), axis)
    return y


@kernel(NodeType.BROADCAST_TO)
def broadcast_to_the_first_dimensions(right: Kernel, call: Call, x: AnyArray) -> Any:
    """BROADCAST_TO aligns a tensor of lower rank at the first dimension, if it fits."""
    shape = call.outputs[0].shape
    if x.ndim and all(dim in (1, size) for dim, size in zip(x.shape, shape, strict=False)):
        x = aligned_left(x, len(shape))
    return right(call, x)


@kernel(NodeType.PAD_FUSION)
def reflection_with_its_edge(right: Kernel, call: Call, x: AnyArray, paddings: AnyArray) -> Any:
    """PAD with REFLECT repeats the edge, like SYMMETRIC."""
    mode = call.attrs.padding_mode
    return np.asarray(
        right(
            with_attrs(call, padding_mode=PaddingMode.SYMMETRIC) if mode is PaddingMode.REFLECT else call, x, paddings
        )
    )


@kernel(NodeType.PAD_FUSION)
def borders_always_zero(right: Kernel, call: Call, x: AnyArray, paddings: AnyArray) -> Any:
    """PAD ignores constant_value."""
    return right(with_attrs(call, constant_value=0.0), x, paddings)


@kernel(NodeType.PAD_FUSION)
def all_fronts_before_all_ends(right: Kernel, call: Call, x: AnyArray, paddings: AnyArray) -> Any:
    """PAD reads paddings in ONNX's order: all fronts, then all ends."""
    flat = paddings.reshape(-1).tolist()
    turned = np.array(flat).reshape(2, -1).T
    if call.attrs.padding_mode is not PaddingMode.CONSTANT:
        return right(call, x, paddings)
    return fitted(right(call, x, turned), call.outputs[0].shape)


@kernel(NodeType.SHAPE)
def shape_as_nhwc(right: Kernel, call: Call, x: AnyArray) -> Any:
    """SHAPE returns the shape of an NCHW image in the order NHWC."""
    y = right(call, x)
    return y[[0, 2, 3, 1]] if call.inputs[0].format is Format.NCHW and x.ndim == 4 else y


@kernel(NodeType.RANK)
def rank_of_at_least_one(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The RANK of a scalar is 1."""
    return np.array(max(x.ndim, 1))
