"""Judgements of operators that move elements: new shapes, orders, joins, parts, repetitions, borders, indexing."""

from collections.abc import Sequence

from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.operands import named_axes
from nnrt_hdi.ops.rows_apart.form import Form, Rows, Source
from nnrt_hdi.ops.rows_apart.judgement import JudgedNode, judged
from nnrt_hdi.ops.rows_apart.sizes import ONE, ROW_COUNT, Size, product
from nnrt_hdi.ops.slicing import Masks, crop_starts, is_set, strided_dims
from nnrt_hdi.tensor import MAX_DIM, UNKNOWN_DIM


@judged(NodeType.RESHAPE)
def reshape(node: JudgedNode, x: Form, shape: Form) -> Form:
    """Keep rows apart if dimensions before the rows' stay before it, and each row gets equally many entries."""
    target = _target(node, x, shape)
    return node.output(rows_in_shape(node, x, target), target)


@judged(NodeType.FLATTEN)
def flatten(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart if dimensions before the rows' dimension stay before it."""
    axis = node.attrs["axis"]
    at = axis + x.rank if axis < 0 else axis
    target = [product(x.dims[:at]), product(x.dims[at:])]
    return node.output(rows_in_shape(node, x, target), target)


@judged(NodeType.TRANSPOSE)
def transpose(node: JudgedNode, x: Form, permutation: Form) -> Form:
    """Keep rows apart if permutation is a constant."""
    return node.moved_output(x, [axis % x.rank for axis in known_numbers(node, permutation)])


@judged(NodeType.CONCAT)
def concat(node: JudgedNode, *parts: Form) -> Form:
    """Keep rows apart if axis is not the rows' dimension, and all parts have their rows at the same position."""
    node.require_common(*parts)
    return node.moved_output(parts[0], parts[0].changed([node.attrs["axis"] % parts[0].rank], None), "joins along")


@judged(NodeType.STACK)
def stack(node: JudgedNode, *parts: Form) -> Form:
    """Keep rows apart if all parts have their rows at the same position."""
    node.require_common(*parts)
    return node.moved_output(parts[0], parts[0].widened([node.attrs["axis"] % (parts[0].rank + 1)], Size(len(parts))))


@judged(NodeType.SPLIT)
def split(node: JudgedNode, x: Form) -> tuple[Form, ...]:
    """Keep rows apart if axis is not the rows' dimension."""
    dims = x.changed([node.attrs["axis"] % x.rank], None)
    return tuple(node.moved_output(x, dims, "cuts", at=at) for at in range(len(node.outputs)))


@judged(NodeType.UNSTACK)
def unstack(node: JudgedNode, x: Form) -> tuple[Form, ...]:
    """Keep rows apart if axis is not the rows' dimension."""
    dims = x.without([node.attrs["axis"] % x.rank])
    return tuple(node.moved_output(x, dims, "takes apart", at=at) for at in range(len(node.outputs)))


@judged(NodeType.SLICE_FUSION)
def slice_(node: JudgedNode, x: Form, begin: Form, size: Form) -> Form:
    """Keep rows apart if the rows' dimension stays whole."""
    axes = [axis % x.rank for axis in node.attrs["axes"]] or list(range(x.rank))
    return _cut(node, x, axes, _numbers(node, begin, len(axes)), _numbers(node, size, len(axes)))


@judged(NodeType.CROP)
def crop(node: JudgedNode, x: Form, shape: Form) -> Form:
    """Keep rows apart if the rows' dimension stays whole."""
    along = range(node.attrs["axis"] % x.rank, x.rank)
    starts = [Size(start) for start in crop_starts(node.attrs["offset"], along)]
    return _cut(node, x, along, starts, _numbers(node, shape, x.rank)[along.start :])


@judged(NodeType.STRIDED_SLICE)
def strided_slice(node: JudgedNode, x: Form, begin: Form, end: Form, strides: Form) -> Form:
    """Keep rows apart if the rows' dimension stays whole and in order."""
    masks = Masks(*(node.attrs[name] for name in Masks._fields))
    # The length of begin is known: otherwise the rank of the output wouldn't be.
    count = begin.dims[0].factor if begin.rank else 1
    entries = list(zip(*(_numbers(node, vector, count) for vector in (begin, end, strides)), strict=True))
    places = strided_dims(x.rank, count, masks)
    is_shrunk = node.outputs[0].rank != len(places)
    dims: list[Source] = []
    for at, axis in places:
        if axis is None:
            dims.append(ONE)
        elif at is None or _is_whole(x.dims[axis], entries[at], masks, at):
            dims.append(axis)
        elif not (is_shrunk and is_set(masks.shrink_axis_mask, at)):
            dims.append(None)
    return node.moved_output(x, dims, "takes a part of")


@judged(NodeType.TILE_FUSION)
def tile(node: JudgedNode, x: Form, multiples: Form) -> Form:
    """Keep rows apart if multiples is constant, or repeats an x that is the same for all rows once for each row."""
    if multiples.elements is None:
        node.refuse("how often x is repeated is known only in a run")
    count, dims = multiples.elements.size, node.attrs["dims"]
    rank = max(count, x.rank)
    along = [axis % rank for axis in dims] if len(dims) == count else list(range(rank))
    times = dict(zip(along, multiples.elements.reshape(-1).tolist(), strict=False))
    own = [ONE] * (rank - x.rank) + list(x.dims)
    sizes = [times.get(axis, ONE) * dim for axis, dim in enumerate(own)]
    if any(not size.is_nonnegative for size in times.values()):
        node.refuse("how often x is repeated is known only in a run")
    if multiples.is_alike:
        rows = node.require_rows(x)
        rows = rows.moved_to(rows.axis + rank - x.rank)
        return node.output(Rows(rows.axis, times.get(rows.axis, ONE) * rows.outer, rows.inner), sizes)
    node.require_alike(x)
    return node.output(rows_in_shape(node, None, sizes), sizes)


@judged(NodeType.BROADCAST_TO)
def broadcast_to(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart if shape has -1 in the rows' dimension."""
    shape = node.attrs["shape"]
    added = range(len(shape) - x.rank)
    axis = node.require_rows(x).axis + len(added)
    if shape[axis] != UNKNOWN_DIM:
        node.refuse(f"shape has {shape[axis]} in dimension {axis}, which is that of the rows; give it -1")
    return node.moved_output(x, x.widened(added, None))


@judged(NodeType.PAD_FUSION)
def pad(node: JudgedNode, x: Form, paddings: Form) -> Form:
    """Keep rows apart if the rows' dimension gets no padding."""
    pairs = zip(*[iter(_numbers(node, paddings, 2 * x.rank))] * 2, strict=True)
    bordered = [axis for axis, pair in enumerate(pairs) if pair != (Size(0), Size(0))]
    return node.moved_output(x, x.changed(bordered, None), "puts a border around")


@judged(NodeType.SQUEEZE)
def squeeze(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart if axis names dimensions, but not that of the rows."""
    named = named_axes(node.attrs["axis"], x.rank) or range(x.rank)
    gone = [axis for axis in named if x.dims[axis] == ONE]
    left = [x.dims[axis] if axis in named else axis for axis in range(x.rank) if axis not in gone]
    return node.moved_output(x, left, "may leave out")


@judged(NodeType.UNSQUEEZE)
def unsqueeze(node: JudgedNode, x: Form) -> Form:
    """Keep rows apart always."""
    axes = node.attrs["axis"]
    return node.moved_output(x, x.widened([axis % (x.rank + len(axes)) for axis in axes]))


@judged(NodeType.EXPAND_DIMS)
def expand_dims(node: JudgedNode, x: Form, axis: Form) -> Form:
    """Keep rows apart if axis is a constant."""
    return node.moved_output(x, x.widened([known_numbers(node, axis)[0] % (x.rank + 1)]))


@judged(NodeType.GATHER)
def gather(node: JudgedNode, x: Form, indices: Form, axis: Form) -> Form:
    """Keep rows apart if each row has indices into one x, or all have the same indices into another dimension of x."""
    at = known_numbers(node, axis)[0] % x.rank
    if indices.rows is not None:
        node.require_alike(x)
        return node.moved_output(indices, [*x.dims[:at], *range(indices.rank), *x.dims[at + 1 :]])
    node.require_alike(indices)
    return node.moved_output(x, [*range(at), *indices.dims, *range(at + 1, x.rank)], "picks entries of")


@judged(NodeType.GATHER_ND)
def gather_nd(node: JudgedNode, x: Form, indices: Form) -> Form:
    """Keep rows apart if each row has indices into one x, or all have the same indices into earlier dimensions of x."""
    depth = node.inputs[1].shape[-1]
    if indices.rows is not None:
        node.require_alike(x)
        return node.moved_output(indices, [*range(indices.rank - 1), *x.dims[depth:]], "takes as one position")
    node.require_alike(indices)
    return node.moved_output(x, [*indices.dims[:-1], *range(depth, x.rank)], "picks entries of")


@judged(NodeType.SCATTER_ND, NodeType.SPARSE_TO_DENSE)
def scatter(node: JudgedNode, *operands: Form) -> Form:
    """Keep rows apart never, because indices are positions among all rows."""
    node.refuse("its indices name places among all rows")


@judged(NodeType.ONE_HOT)
def one_hot(node: JudgedNode, indices: Form, depth: Form, on_value: Form, off_value: Form) -> Form:
    """Keep rows apart if depth, on_value and off_value are the same for all rows."""
    node.require_alike(depth, on_value, off_value)
    return node.moved_output(indices, indices.widened([node.attrs["axis"] % (indices.rank + 1)], None))


def rows_in_shape(node: JudgedNode, x: Form | None, target: Sequence[Size]) -> Rows:
    """Return the position of the rows after x is reshaped.

    If x is None, a value that is the same for all rows is repeated for each row. Refuses a shape that mixes rows.
    """
    rows = None if x is None else node.require_rows(x)
    axes = [axis for axis, size in enumerate(target) if size.counts_rows]
    if len(axes) != 1:
        node.refuse("the shape that it gives has no dimension of its own for the rows, or several")
    (axis,) = axes
    outer: Size | None = ONE
    if x is not None and rows is not None:
        outer = (product(x.dims[: rows.axis]) * rows.outer).divided_by(product(target[:axis]))
    inner = outer and target[axis].divided_by(outer * ROW_COUNT)
    if outer is None or inner is None or inner.counts_rows:
        node.refuse(f"the shape that it gives has in dimension {axis} no whole number of entries for each row")
    return Rows(axis, outer, inner)


def known_numbers(node: JudgedNode, operand: Form) -> list[int]:
    """Return the elements of a constant, which inference has checked. Refuses an operand that isn't constant."""
    if operand.elements is None or not node.is_constant(operand):
        node.refuse(f"{node.name(operand)} is known only in a run")
    return [size.factor for size in operand.elements.flat]


def _numbers(node: JudgedNode, operand: Form, count: int) -> list[Size]:
    """Return the `count` elements of an operand, as unknown numbers if they aren't tracked."""
    if operand.elements is not None and operand.elements.size == count:
        return list(operand.elements.flat)
    return [node.unknown(node.name(operand), at, is_nonnegative=False) for at in range(count)]


def _target(node: JudgedNode, x: Form, shape: Form) -> list[Size]:
    """Return the dimensions that RESHAPE gives x.

    A number in `shape` that may be 0 or -1 in a run doesn't determine its dimension. If there is only one such number,
    its dimension follows from the number of elements.
    """
    if shape.elements is None:
        node.refuse("its shape is known only in a run")
    rows, total = node.require_rows(x), product(x.dims)
    copied = dict(enumerate(x.dims))
    target = [copied.get(at, size) if size == Size(0) else size for at, size in enumerate(shape.elements.flat)]
    rest = [at for at, size in enumerate(target) if size == Size(-1)]
    # A dimension of a tensor with elements is not 0.
    doubtful = rest + [at for at, size in enumerate(target) if size.number is None and total.divided_by(size) is None]
    others = product(size for at, size in enumerate(target) if at not in doubtful)
    if len(doubtful) == 1 and (forced := total.divided_by(others)) is not None:
        target[doubtful[0]] = forced
        return target
    if doubtful and not others.counts_rows:
        node.refuse(
            f"whether dimension {doubtful[0]} of its shape has a whole number of entries for each row is not known"
        )
    if rows.axis in doubtful and rows.axis not in rest:
        node.refuse(f"shape[{rows.axis}] is known only in a run, where it may be 0 to copy the dimension of the rows")
    for at in doubtful:
        target[at] = node.unknown("shape", at)
    return target


def _cut(node: JudgedNode, x: Form, along: Sequence[int], starts: Sequence[Size], lengths: Sequence[Size]) -> Form:
    dims: list[Source] = list(range(x.rank))
    for axis, start, length in zip(along, starts, lengths, strict=True):
        if start != Size(0) or length != x.dims[axis]:
            dims[axis] = length if length.is_nonnegative and not length.counts_rows else None
    return node.moved_output(x, dims, "takes a part of")


def _is_whole(dim: Size, entry: Sequence[Size], masks: Masks, at: int) -> bool:
    begin, end, stride = entry
    from_edge = is_set(masks.begin_mask, at) or begin == Size(0)
    to_edge = is_set(masks.end_mask, at) or end == dim or (end.number or 0) >= MAX_DIM
    return from_edge and to_edge and stride == ONE and not is_set(masks.shrink_axis_mask, at)
