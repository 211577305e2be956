"""Data moved but not changed: new shapes, orders, joins, parts, repetitions and borders."""

from collections.abc import Sequence

import numpy as np

from nnrt_hdi.enums import NodeType, PaddingMode
from nnrt_hdi.ops.operands import named_axes
from nnrt_hdi.ops.slicing import Masks, crop_starts, is_set, strided_cuts, strided_dims
from nnrt_hdi.tensor import MAX_DIM, UNKNOWN_DIM
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.lowering import Call, known_values, lowering
from nnrt_onnx_lowering.value import INT64, Value

# An index beyond every dimension.
FAR = int(np.iinfo(np.int64).max)


@lowering(NodeType.RESHAPE, moves=True)
def reshape(op: Onnx, call: Call, x: Value, shape: Value) -> Value:
    """Reshape x. 0 and -1 mean the same in ONNX and NNRt."""
    spec = call.outputs[0]
    if not spec.is_dynamic:
        return op.reshape(x, spec.shape)
    return op.Reshape(x, op.reshape(shape.cast(INT64), [spec.rank]))


@lowering(NodeType.FLATTEN, moves=True)
def flatten(op: Onnx, call: Call, x: Value) -> Value:
    """Flatten the dimensions before axis to rows, and the others to columns."""
    axis = call.attrs.axis
    return op.Flatten(x, axis=axis if axis >= 0 else axis + call.inputs[0].rank)


@lowering(NodeType.SQUEEZE, moves=True)
def squeeze(op: Onnx, call: Call, x: Value) -> Value:
    """Remove the dimensions of length 1 that axis names."""
    spec = call.inputs[0]
    named = named_axes(call.attrs.axis, spec.rank) or range(spec.rank)
    return op.squeeze(x, [axis for axis in named if spec.shape[axis] == 1])


@lowering(NodeType.UNSQUEEZE, moves=True)
def unsqueeze(op: Onnx, call: Call, x: Value) -> Value:
    """Insert dimensions of length 1."""
    return op.unsqueeze(x, [axis % call.outputs[0].rank for axis in call.attrs.axis])


@lowering(NodeType.EXPAND_DIMS, moves=True)
def expand_dims(op: Onnx, call: Call, x: Value, axis: Value) -> Value:
    """Insert a dimension of length 1."""
    if axis.elements is None:
        return op.Unsqueeze(x, op.reshape(axis.cast(INT64), [1]))
    return op.unsqueeze(x, [known_values(axis, "axis")[0] % call.outputs[0].rank])


@lowering(NodeType.TRANSPOSE, moves=True)
def transpose(_: Onnx, call: Call, x: Value, permutation: Value) -> Value:
    """Permute the dimensions, so that permutation[n] becomes the n-th; memory stays as it is."""
    return x.transposed([axis % call.inputs[0].rank for axis in known_values(permutation, "permutation")])


@lowering(NodeType.CONCAT, moves=True)
def concat(op: Onnx, call: Call, *parts: Value) -> Value:
    """Join the parts along axis."""
    return op.Concat(*parts, axis=call.attrs.axis % call.outputs[0].rank)


@lowering(NodeType.STACK, moves=True)
def stack(op: Onnx, call: Call, *parts: Value) -> Value:
    """Join the parts along a new dimension."""
    axis = call.attrs.axis % call.outputs[0].rank
    return op.Concat(*(op.unsqueeze(part, [axis]) for part in parts), axis=axis)


@lowering(NodeType.SPLIT, moves=True)
def split(op: Onnx, call: Call, x: Value) -> tuple[Value, ...]:
    """Cut x along axis into pieces of the outputs' lengths, or into equal pieces."""
    axis, count = call.attrs.axis % call.inputs[0].rank, len(call.outputs)
    lengths = [spec.shape[axis] for spec in call.outputs]
    if UNKNOWN_DIM in lengths:
        return op.multi_output("Split", count, x, axis=axis, num_outputs=count)
    return op.multi_output("Split", count, x, op.ints(lengths), axis=axis)


@lowering(NodeType.UNSTACK, moves=True)
def unstack(op: Onnx, call: Call, x: Value) -> tuple[Value, ...]:
    """Return the entries of x along axis."""
    axis, count = call.attrs.axis % call.inputs[0].rank, len(call.outputs)
    parts = op.multi_output("Split", count, x, op.ints([1] * count), axis=axis)
    return tuple(op.squeeze(part, [axis]) for part in parts)


@lowering(NodeType.SLICE_FUSION, moves=True)
def slice_(op: Onnx, call: Call, x: Value, begin: Value, size: Value) -> Value:
    """Return size[i] elements from begin[i] on, along each dimension i."""
    rank = call.inputs[0].rank
    along = [axis % rank for axis in call.attrs.axes] or range(rank)
    begin, size = (op.reshape(vector.cast(INT64), [len(along)]) for vector in (begin, size))
    return op.Slice(x, begin, begin + size, op.ints(along))


@lowering(NodeType.CROP, moves=True)
def crop(op: Onnx, call: Call, x: Value, shape: Value) -> Value:
    """Return a window of the output's size, along all dimensions from axis on."""
    rank = call.inputs[0].rank
    along = range(call.attrs.axis % rank, rank)
    starts = op.ints(crop_starts(call.attrs.offset, along))
    sizes = cut_out(op, op.reshape(shape.cast(INT64), [rank]), [0], [along.start], [rank])
    return op.Slice(x, starts, starts + sizes, op.ints(along))


def cut_out(
    op: Onnx, x: Value, along: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int] = ()
) -> Value:
    """Return x from starts to ends along some dimensions, or x where there are none."""
    if not along:
        return x
    return op.Slice(x, op.ints(starts), op.ints(ends), op.ints(along), op.ints(steps or [1] * len(along)))


@lowering(NodeType.STRIDED_SLICE, moves=True)
def strided_slice(op: Onnx, call: Call, x: Value, begin: Value, end: Value, strides: Value) -> Value:
    """Slice x along the dimensions that have entries, remove the dimensions to shrink and insert the new ones."""
    masks = Masks(**vars(call.attrs))
    entries = [_entries(vector, call.inputs[1].element_count) for vector in (begin, end, strides)]
    # An unknown dimension counts as longer than any other, so that counting from its end can be recognized.
    shape = tuple(MAX_DIM if dim == UNKNOWN_DIM else dim for dim in call.inputs[0].shape)
    cuts = strided_cuts(shape, list(zip(*entries, strict=True)), masks)
    if all(vector.elements is not None for vector in (begin, end, strides)):
        parts = [cut.part for cut in cuts if cut.part is not None]
        bounds = [_bounds(part, call.inputs[0].shape[axis]) for axis, part in enumerate(parts)]
        changed = [axis for axis, part in enumerate(parts) if part != slice(None)]
        starts, ends, steps = zip(*(bounds[axis] for axis in changed), strict=True) if changed else ((), (), ())
        y = cut_out(op, op.plain(x), changed, starts, ends, steps)
    else:
        y = _cut_in_a_run(op, call, op.plain(x), [begin, end, strides], masks)
    keeps_shrunk = call.outputs[0].rank == len(cuts)
    old = [cut for cut in cuts if cut.part is not None]
    y = op.squeeze(y, [] if keeps_shrunk else [at for at, cut in enumerate(old) if cut.is_shrunk])
    kept = [cut for cut in cuts if keeps_shrunk or not cut.is_shrunk]
    return op.unsqueeze(y, [at for at, cut in enumerate(kept) if cut.part is None])


def _entries(vector: Value, count: int) -> Sequence[int | None]:
    """Return the elements of a vector, or None for each where only a run knows them."""
    return (None,) * count if vector.elements is None else vector.elements.reshape(-1).tolist()


def _cut_in_a_run(op: Onnx, call: Call, x: Value, vectors: Sequence[Value], masks: Masks) -> Value:
    """Cut x at positions that only a run knows; ONNX counts them as Python does."""
    count = call.inputs[1].element_count
    places = strided_dims(call.inputs[0].rank, count, masks)
    cut = [(number, at) for number, at in places if None not in (number, at)]
    if not cut:
        return x
    numbers, along = zip(*cut, strict=True)
    begin, end, stride = (op.reshape(vector.cast(INT64), [count]) for vector in vectors)
    starts, ends, steps = (op.Gather(vector, np.array(numbers)) for vector in (begin, end, stride))

    def marked(mask: int) -> Value | None:
        """Return for each dimension to cut whether its bit in a mask is set, or None if no bit is set."""
        bits = np.array([is_set(mask, number) for number in numbers])
        return op.constant(bits) if bits.any() else None

    single, is_first, is_last = map(marked, (masks.shrink_axis_mask, masks.begin_mask, masks.end_mask))
    if single is not None:
        steps = op.Where(single, 1, steps)
    is_back = op.Less(steps, 0)
    if is_first is not None:
        starts = op.Where(is_first, op.Where(is_back, op.ints([FAR]), 0), starts)
    if is_last is not None:
        ends = op.Where(is_last, op.Where(is_back, op.ints([-FAR]), FAR), ends)
    if single is not None:
        behind = op.Where(op.Equal(starts, -1), op.ints([FAR]), starts + 1)
        ends = op.Where(single, behind, ends)
    return op.Slice(x, starts, ends, op.ints(along), steps)


def _bounds(part: slice, size: int) -> tuple[int, int, int]:
    """Return start, end and step for ONNX, where none of them can be left out."""
    step = 1 if part.step is None else part.step
    start = (0 if step > 0 else FAR) if part.start is None else part.start
    end = (FAR if step > 0 else -FAR) if part.stop is None else part.stop
    if size == UNKNOWN_DIM and start > MAX_DIM // 2 and start != FAR:  # An index counted from the end.
        start -= MAX_DIM
        end = start + 1 or FAR
    return start, end, step


@lowering(NodeType.TILE_FUSION, moves=True)
def tile(op: Onnx, call: Call, x: Value, multiples: Value) -> Value:
    """Repeat x, with dimensions of length 1 in front where there are more multiples than dimensions."""
    count, dims, rank = call.inputs[1].element_count, call.attrs.dims, call.outputs[0].rank
    if not rank:
        return x
    repeats = op.reshape(multiples.cast(INT64), [count])
    if len(dims) == count and count:  # Inserts each multiple at its dimension among ones.
        places = op.constant(np.array(dims)[:, None] % rank)
        repeats = op.ScatterND(op.ints([1] * rank), places, repeats)
    return op.Tile(op.unsqueeze(x, range(rank - call.inputs[0].rank)), repeats)


@lowering(NodeType.BROADCAST_TO, moves=True)
def broadcast_to(op: Onnx, call: Call, x: Value) -> Value:
    """Repeat x along its dimensions of length 1. ONNX's Expand keeps a dimension where 1 is given."""
    return op.Expand(x, op.ints([1 if dim == UNKNOWN_DIM else dim for dim in call.attrs.shape]))


@lowering(NodeType.PAD_FUSION, moves=True)
def pad(op: Onnx, call: Call, x: Value, paddings: Value) -> Value:
    """Add a border to x: a constant, or x mirrored without (REFLECT) or with (SYMMETRIC) its edge."""
    mode, rank = call.attrs.padding_mode, call.inputs[0].rank
    if not rank:
        return x
    if mode is PaddingMode.SYMMETRIC:
        for axis, (before, after) in enumerate(np.array(known_values(paddings, "paddings")).reshape(rank, 2).tolist()):
            x = _mirrored(op, x, axis, before, after)
        return x
    if paddings.elements is None:
        pads = op.reshape(op.plain(paddings.cast(INT64).transposed([1, 0])), [2 * rank])
    else:
        pads = op.ints(paddings.elements.T.reshape(-1).tolist())
    if mode is PaddingMode.REFLECT:
        return op.Pad(x, pads, mode="reflect")
    return op.Pad(x, pads, op.scalar(call.attrs.constant_value, x.dtype))


def _mirrored(op: Onnx, x: Value, axis: int, before: int, after: int) -> Value:
    """Return x between mirror images of its first and of its last elements along an axis."""
    parts = [x]
    if before:
        parts.insert(0, cut_out(op, x, [axis], [before - 1], [-FAR], [-1]))
    if after:
        parts.append(cut_out(op, x, [axis], [-1], [-1 - after], [-1]))
    return op.Concat(*parts, axis=axis) if len(parts) > 1 else x


@lowering(NodeType.SHAPE, moves=True)
def shape_of(op: Onnx, call: Call, x: Value) -> Value:
    """Return the dimensions of x."""
    return op.sizes(x).cast(call.dtype)


@lowering(NodeType.RANK, moves=True)
def rank_of(op: Onnx, call: Call, _: Value) -> Value:
    """Return the number of dimensions of x."""
    return op.scalar(call.inputs[0].rank, call.dtype)
