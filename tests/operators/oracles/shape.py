"""Oracles of data movement."""

from collections.abc import Iterable

import numpy as np
from onnx import TensorProto

from nnrt_hdi.enums import Format, NodeType, PaddingMode

from .oracle import AnyArray, Attrs, Onnx, oracle


@oracle(NodeType.RESHAPE)
def reshape(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return model.op("Reshape", "x0", model.constant(arrays[1].astype(np.int64)))


@oracle(NodeType.TRANSPOSE)
def transpose(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return model.op("Transpose", "x0", perm=[int(axis) % arrays[0].ndim for axis in arrays[1]])


@oracle(NodeType.CONCAT)
def concat(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    return model.op("Concat", *(f"x{index}" for index in range(len(arrays))), axis=attrs.get("axis", 0))


@oracle(NodeType.PAD_FUSION)
def pad(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    mode = attrs.get("padding_mode", PaddingMode.CONSTANT)
    pads = model.constant(arrays[1].T.reshape(-1).astype(np.int64))
    value = model.constant(np.array(attrs.get("constant_value", 0.0), arrays[0].dtype))
    if mode == PaddingMode.CONSTANT:
        return model.op("Pad", "x0", pads, value)
    return model.op("Pad", "x0", pads, mode="reflect")


@oracle(NodeType.SQUEEZE)
def squeeze(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    named = attrs.get("axis") or range(arrays[0].ndim)
    axes = [axis for axis in named if arrays[0].shape[axis] == 1]
    return model.op("Squeeze", "x0", model.constant(np.array(axes, np.int64)))


@oracle(NodeType.UNSQUEEZE)
def unsqueeze(model: Onnx, _: list[AnyArray], attrs: Attrs, __: Format) -> str:
    return model.op("Unsqueeze", "x0", model.constant(np.array(attrs["axis"])))


@oracle(NodeType.EXPAND_DIMS)
def expand_dims(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return model.op("Unsqueeze", "x0", model.constant(arrays[1].astype(np.int64).reshape(1)))


@oracle(NodeType.FLATTEN)
def flatten(model: Onnx, _: list[AnyArray], attrs: Attrs, __: Format) -> str:
    return model.op("Flatten", "x0", axis=attrs.get("axis", 1))


@oracle(NodeType.STACK)
def stack(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    sequence = model.op("SequenceConstruct", *(f"x{index}" for index in range(len(arrays))))
    return model.op("ConcatFromSequence", sequence, axis=attrs.get("axis", 0), new_axis=1)


@oracle(NodeType.SPLIT)
def split(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> tuple[str, ...]:
    axis, sizes = attrs.get("axis", 0), attrs.get("size_splits")
    if not sizes:
        return model.ops("Split", "x0", outputs=attrs["output_num"], axis=axis, num_outputs=attrs["output_num"])
    return model.ops("Split", "x0", model.constant(np.array(sizes)), outputs=len(sizes), axis=axis)


@oracle(NodeType.UNSTACK)
def unstack(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> tuple[str, ...]:
    axis = attrs.get("axis", 0)
    count = arrays[0].shape[axis]
    parts = model.ops("Split", "x0", outputs=count, axis=axis, num_outputs=count)
    return tuple(model.op("Squeeze", part, model.constant(np.array([axis]))) for part in parts)


@oracle(NodeType.SLICE_FUSION)
def slice_(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    axes = attrs.get("axes") or range(arrays[0].ndim)
    return _slice(model, arrays[1], arrays[1] + arrays[2], axes)


@oracle(NodeType.CROP)
def crop(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    x, sizes = arrays[:2]
    cut = x.ndim - attrs.get("axis", 0) % x.ndim
    offset = np.array(attrs.get("offset") or (0,))
    starts = np.broadcast_to(offset[-cut:], cut)
    return _slice(model, starts, starts + sizes[-cut:], range(x.ndim - cut, x.ndim))


@oracle(NodeType.STRIDED_SLICE)
def strided_slice(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    """Build a strided slice without an ellipsis.

    test_slicing.py compares all masks with TensorFlow Lite.
    """
    count, far = len(arrays[1]), np.iinfo(np.int64).max
    begin_mask, end_mask, new, shrunk = (
        [bool(attrs.get(name, 0) >> entry & 1) for entry in range(count)]
        for name in ("begin_mask", "end_mask", "new_axis_mask", "shrink_axis_mask")
    )
    cut = [entry for entry in range(count) if not new[entry]]
    begin, end, strides = (array.astype(np.int64) for array in arrays[1:])
    begin = np.where(begin_mask, np.where(strides > 0, 0, far), begin)
    end = np.where(end_mask, np.where(strides > 0, far, -far), end)
    end = np.where(shrunk, np.where(begin == -1, far, begin + 1), end)
    y = _slice(model, begin[cut], end[cut], range(len(cut)), strides[cut])
    kept = [entry for entry in range(count) if not shrunk[entry]]
    squeezed, inserted = (
        np.array([at for at, entry in enumerate(entries) if is_set[entry]], np.int64)
        for entries, is_set in ((cut, shrunk), (kept, new))
    )
    if squeezed.size:  # without axes ONNX squeezes all
        y = model.op("Squeeze", y, model.constant(squeezed))
    return model.op("Unsqueeze", y, model.constant(inserted))


def _slice(model: Onnx, starts: AnyArray, ends: AnyArray, axes: Iterable[int], steps: AnyArray | None = None) -> str:
    vectors = [starts, ends, np.array([*axes]), np.ones_like(starts) if steps is None else steps]
    return model.op("Slice", "x0", *(model.constant(vector.astype(np.int64)) for vector in vectors))


@oracle(NodeType.TILE_FUSION)
def tile(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    x, multiples, dims = arrays[0], arrays[1].astype(np.int64), attrs.get("dims", ())
    if len(dims) == len(multiples):
        repeats = np.ones(x.ndim, np.int64)
        repeats[list(dims)] = multiples
        return model.op("Tile", "x0", model.constant(repeats))
    padded = model.op("Unsqueeze", "x0", model.constant(np.arange(len(multiples) - x.ndim)))
    return model.op("Tile", padded, model.constant(multiples))


@oracle(NodeType.BROADCAST_TO)
def broadcast_to(model: Onnx, _: list[AnyArray], attrs: Attrs, __: Format) -> str:
    # A 1 in ONNX's shape keeps the dimension of x.
    shape = [1 if dim == -1 else dim for dim in attrs.get("shape", ())]
    return model.op("Expand", "x0", model.constant(np.array(shape, np.int64)))


@oracle(NodeType.SHAPE)
def shape_of(model: Onnx, _: list[AnyArray], __: Attrs, ___: Format) -> str:
    return model.op("Cast", model.op("Shape", "x0"), to=TensorProto.INT32)


@oracle(NodeType.RANK)
def rank_of(model: Onnx, _: list[AnyArray], __: Attrs, ___: Format) -> str:
    return model.op("Cast", model.op("Size", model.op("Shape", "x0")), to=TensorProto.INT32)
