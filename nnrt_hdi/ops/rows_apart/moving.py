"""Operators that move elements: new shapes, orders, joins, parts, repetitions, borders, and picks by index."""

from collections.abc import Sequence

from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.operands import named_axes
from nnrt_hdi.ops.rows_apart.form import Form, Rows
from nnrt_hdi.ops.rows_apart.judgement import Judged, inserted, judged, with_new, without
from nnrt_hdi.ops.rows_apart.sizes import ONE, ROW_COUNT, Size, product
from nnrt_hdi.ops.slicing import Masks, crop_starts, is_set, strided_places
from nnrt_hdi.tensor import MAX_DIM, UNKNOWN_DIM


@judged(NodeType.RESHAPE)
def reshape(node: Judged, x: Form, shape: Form) -> Form:
    """if what is before the rows stays before them, and their dimension has a whole number of entries for each"""
    node.require_rows(x)
    target = _target(node, x, shape)
    return node.made(in_shape(node, x, target), target)


@judged(NodeType.FLATTEN)
def flatten(node: Judged, x: Form) -> Form:
    """if what is before the rows stays before them"""
    node.require_rows(x)
    axis = node.attrs["axis"]
    at = axis + x.rank if axis < 0 else axis
    target = [product(x.dims[:at]), product(x.dims[at:])]
    return node.made(in_shape(node, x, target), target)


@judged(NodeType.TRANSPOSE)
def transpose(node: Judged, x: Form, permutation: Form) -> Form:
    """if permutation is a constant"""
    order = [axis % x.rank for axis in known_numbers(node, permutation)]
    rows = node.require_rows(x)
    return node.made(rows.at(order.index(rows.axis)), [x.dims[axis] for axis in order])


@judged(NodeType.CONCAT)
def concat(node: Judged, *parts: Form) -> Form:
    """if axis is another dimension than that of the rows, and each part has something for each row"""
    rows, first = node.require_common(*parts), parts[0]
    along = node.attrs["axis"] % first.rank
    node.require_other(rows, along, "joins along")
    return node.made(rows, [None if at == along else dim for at, dim in enumerate(first.dims)])


@judged(NodeType.STACK)
def stack(node: Judged, *parts: Form) -> Form:
    """if each part has something for each row"""
    rows, first = node.require_common(*parts), parts[0]
    at = node.attrs["axis"] % (first.rank + 1)
    return node.made(with_new(rows, [at]), inserted(first.dims, [at], Size(len(parts))))


@judged(NodeType.SPLIT)
def split(node: Judged, x: Form) -> tuple[Form, ...]:
    """if axis is another dimension than that of the rows"""
    rows, along = node.require_rows(x), node.attrs["axis"] % x.rank
    node.require_other(rows, along, "cuts")
    dims = [None if at == along else dim for at, dim in enumerate(x.dims)]
    return tuple(node.made(rows, dims, at=at) for at in range(len(node.outputs)))


@judged(NodeType.UNSTACK)
def unstack(node: Judged, x: Form) -> tuple[Form, ...]:
    """if axis is another dimension than that of the rows"""
    rows, along = node.require_rows(x), node.attrs["axis"] % x.rank
    node.require_other(rows, along, "takes apart")
    dims = [dim for at, dim in enumerate(x.dims) if at != along]
    return tuple(node.made(without(rows, [along]), dims, at=at) for at in range(len(node.outputs)))


@judged(NodeType.SLICE_FUSION)
def slice_(node: Judged, x: Form, begin: Form, size: Form) -> Form:
    """if the dimension of the rows stays whole"""
    axes = [axis % x.rank for axis in node.attrs["axes"]] or list(range(x.rank))
    return _cut(node, x, axes, _numbers(node, begin, len(axes)), _numbers(node, size, len(axes)))


@judged(NodeType.CROP)
def crop(node: Judged, x: Form, shape: Form) -> Form:
    """if the dimension of the rows stays whole"""
    along = range(node.attrs["axis"] % x.rank, x.rank)
    starts = [Size(start) for start in crop_starts(node.attrs["offset"], along)]
    return _cut(node, x, list(along), starts, _numbers(node, shape, x.rank)[along.start :])


@judged(NodeType.STRIDED_SLICE)
def strided_slice(node: Judged, x: Form, begin: Form, end: Form, strides: Form) -> Form:
    """if the dimension of the rows stays whole, forwards"""
    rows, attrs = node.require_rows(x), node.attrs
    masks = Masks(*(attrs[name] for name in Masks._fields))
    # The length of begin is known, else the rank of the output would not be.
    count = begin.dims[0].factor if begin.rank else 1
    entries = list(zip(*(_numbers(node, vector, count) for vector in (begin, end, strides)), strict=True))
    places = strided_places(x.rank, count, masks)
    if node.outputs[0].rank != len(places):
        places = [(at, axis) for at, axis in places if at is None or not _is_shrunk(masks, at, axis)]
    dims: list[Size | None] = []
    for at, axis in places:
        is_whole = axis is not None and (at is None or _is_whole(x.dims[axis], entries[at], masks, at))
        dims.append(ONE if axis is None else x.dims[axis] if is_whole else None)
        if axis == rows.axis and not is_whole:
            node.require_other(rows, rows.axis, "takes a part of")
    found = [place for place, (_, axis) in enumerate(places) if axis == rows.axis]
    if not found:
        node.require_other(rows, rows.axis, "takes an entry of")
    return node.made(rows.at(found[0]), dims)


@judged(NodeType.TILE_FUSION)
def tile(node: Judged, x: Form, multiples: Form) -> Form:
    """if how often is a constant, or the number of the rows for something that is the same for all"""
    if multiples.elements is None:
        node.refuse("how often x is repeated is known only in a run")
    count, dims = multiples.elements.size, node.attrs["dims"]
    rank = max(count, x.rank)
    along = [axis % rank for axis in dims] if len(dims) == count else list(range(rank))
    times = dict(zip(along, multiples.elements.reshape(-1).tolist(), strict=False))
    own = [ONE] * (rank - x.rank) + list(x.dims)
    sizes = [times.get(axis, ONE) * dim for axis, dim in enumerate(own)]
    if any(not size.is_size for size in times.values()):
        node.refuse("how often x is repeated is known only in a run")
    if multiples.is_alike:
        rows = node.require_rows(x)
        rows = rows.at(rows.axis + rank - x.rank)
        return node.made(Rows(rows.axis, times.get(rows.axis, ONE) * rows.outer, rows.inner), sizes)
    node.require_alike(x)
    return node.made(counted_rows(node, sizes), sizes)


@judged(NodeType.BROADCAST_TO)
def broadcast_to(node: Judged, x: Form) -> Form:
    """if shape has -1 in the dimension of the rows"""
    rows, shape = node.require_rows(x), node.attrs["shape"]
    added = len(shape) - x.rank
    axis = rows.axis + added
    if shape[axis] != UNKNOWN_DIM:
        node.refuse(f"shape has {shape[axis]} in dimension {axis}, which is that of the rows; give it -1")
    own = [None] * added + list(x.dims)
    return node.made(rows.at(axis), own)


@judged(NodeType.PAD_FUSION)
def pad(node: Judged, x: Form, paddings: Form) -> Form:
    """if the dimension of the rows gets no border"""
    rows = node.require_rows(x)
    pairs = list(zip(*[iter(_numbers(node, paddings, 2 * x.rank))] * 2, strict=True))
    is_kept = [pair == (Size(0), Size(0)) for pair in pairs]
    if not is_kept[rows.axis]:
        node.require_other(rows, rows.axis, "puts a border around")
    return node.made(rows, [dim if kept else None for dim, kept in zip(x.dims, is_kept, strict=True)])


@judged(NodeType.SQUEEZE)
def squeeze(node: Judged, x: Form) -> Form:
    """if axis names dimensions, and not that of the rows"""
    rows = node.require_rows(x)
    named = named_axes(node.attrs["axis"], x.rank) or range(x.rank)
    for axis in named:
        node.require_other(rows, axis, "may leave out")
    gone = [axis for axis in named if x.dims[axis] == ONE]
    return node.made(without(rows, gone), [dim for at, dim in enumerate(x.dims) if at not in gone])


@judged(NodeType.UNSQUEEZE)
def unsqueeze(node: Judged, x: Form) -> Form:
    """always"""
    axes = node.attrs["axis"]
    added = [axis % (x.rank + len(axes)) for axis in axes]
    return node.made(with_new(node.require_rows(x), added), inserted(x.dims, added))


@judged(NodeType.EXPAND_DIMS)
def expand_dims(node: Judged, x: Form, axis: Form) -> Form:
    """if axis is a constant"""
    added = [known_numbers(node, axis)[0] % (x.rank + 1)]
    return node.made(with_new(node.require_rows(x), added), inserted(x.dims, added))


@judged(NodeType.GATHER)
def gather(node: Judged, x: Form, indices: Form, axis: Form) -> Form:
    """if each row has its own indices into something that is the same for all, or the same into other dimensions"""
    at = known_numbers(node, axis)[0] % x.rank
    dims = [*x.dims[:at], *indices.dims, *x.dims[at + 1 :]]
    if indices.rows is not None:
        node.require_alike(x)
        return node.made(indices.rows.at(at + indices.rows.axis), dims)
    node.require_alike(indices)
    rows = node.require_rows(x)
    node.require_other(rows, at, "picks entries of")
    return node.made(rows if rows.axis < at else rows.at(rows.axis - 1 + indices.rank), dims)


@judged(NodeType.GATHER_ND)
def gather_nd(node: Judged, x: Form, indices: Form) -> Form:
    """if each row has its own indices into something that is the same for all, or the same into dimensions before"""
    depth = node.inputs[1].shape[-1]
    dims = [*indices.dims[:-1], *x.dims[depth:]]
    if indices.rows is not None:
        node.require_alike(x)
        node.require_other(indices.rows, indices.rank - 1, "takes as one position")
        return node.made(indices.rows, dims)
    node.require_alike(indices)
    rows = node.require_rows(x)
    if rows.axis < depth:
        node.require_other(rows, rows.axis, "picks entries of")
    return node.made(rows.at(rows.axis - depth + indices.rank - 1), dims)


@judged(NodeType.SCATTER_ND, NodeType.SPARSE_TO_DENSE)
def scatter(node: Judged, *operands: Form) -> Form:
    """never: indices name places among all rows"""
    node.refuse("its indices name places among all rows")


@judged(NodeType.ONE_HOT)
def one_hot(node: Judged, indices: Form, depth: Form, on_value: Form, off_value: Form) -> Form:
    """if depth and values are the same for all rows"""
    node.require_alike(depth, on_value, off_value)
    at = node.attrs["axis"] % (indices.rank + 1)
    return node.made(with_new(node.require_rows(indices), [at]), [*indices.dims[:at], None, *indices.dims[at:]])


def in_shape(node: Judged, x: Form, target: Sequence[Size]) -> Rows:
    """The place of the rows where the elements of x, in their order, are in another shape. Refuses one that mixes."""
    rows = node.require_rows(x)
    before = product(x.dims[: rows.axis]) * rows.outer
    axes = [axis for axis, size in enumerate(target) if size.counts_rows]
    if len(axes) != 1:
        node.refuse("the shape that it gives has no dimension of its own for the rows, or several")
    (axis,) = axes
    outer = before.over(product(target[:axis]))
    inner = None if outer is None else target[axis].over(outer * ROW_COUNT)
    if outer is None or inner is None or inner.counts_rows:
        node.refuse(f"the shape that it gives has in dimension {axis} no whole number of entries for each row")
    return Rows(axis, outer, inner)


def counted_rows(node: Judged, dims: Sequence[Size]) -> Rows:
    """The place of the rows in something that is the same for all, repeated as often as there are rows."""
    axes = [axis for axis, size in enumerate(dims) if size.counts_rows]
    inner = dims[axes[0]].over(ROW_COUNT)
    if len(axes) > 1 or inner is None or inner.counts_rows:
        node.refuse("the shape that it gives has no dimension of its own for the rows, or several")
    return Rows(axes[0], ONE, inner)


def known_numbers(node: Judged, operand: Form) -> list[int]:
    """The elements of a constant that decides which dimensions become what. Inference has found them right."""
    if operand.elements is None or not node.is_constant(operand):
        node.refuse(f"{node.name(operand)} is known only in a run")
    return [size.factor for size in operand.elements.flat]


def _numbers(node: Judged, operand: Form, count: int) -> list[Size]:
    """So many elements of an operand; unknown ones where nothing is known."""
    if operand.elements is not None and operand.elements.size == count:
        return list(operand.elements.flat)
    return [node.unknown(node.name(operand), at, is_size=False) for at in range(count)]


def _target(node: Judged, x: Form, shape: Form) -> list[Size]:
    """The dimensions that RESHAPE gives x.

    A number that may be 0 or -1 in a run stands for another size then. The elements say which, if it is the only one.
    """
    if shape.elements is None:
        node.refuse("its shape is known only in a run")
    rows, total = node.require_rows(x), product(x.dims)
    copied = dict(enumerate(x.dims))
    target = [copied.get(at, size) if size == Size(0) else size for at, size in enumerate(shape.elements.flat)]
    rest = [at for at, size in enumerate(target) if size == Size(-1)]
    # What is a dimension of something that has elements is not 0.
    doubtful = rest + [at for at, size in enumerate(target) if size.number is None and total.over(size) is None]
    others = product(size for at, size in enumerate(target) if at not in doubtful)
    if len(doubtful) == 1 and (forced := total.over(others)) is not None:
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


def _cut(node: Judged, x: Form, along: Sequence[int], starts: Sequence[Size], lengths: Sequence[Size]) -> Form:
    rows, dims = node.require_rows(x), list[Size | None](x.dims)
    for axis, start, length in zip(along, starts, lengths, strict=True):
        is_whole = start == Size(0) and length == x.dims[axis]
        if axis == rows.axis and not is_whole:
            node.require_other(rows, axis, "takes a part of")
        dims[axis] = length if length.is_size and not length.counts_rows else None
    return node.made(rows, dims)


def _is_shrunk(masks: Masks, at: int, axis: int | None) -> bool:
    return axis is not None and is_set(masks.shrink_axis_mask, at)


def _is_whole(dim: Size, entry: Sequence[Size], masks: Masks, at: int) -> bool:
    begin, end, stride = entry
    from_edge = is_set(masks.begin_mask, at) or begin == Size(0)
    to_edge = is_set(masks.end_mask, at) or end == dim or (end.number or 0) >= MAX_DIM
    return from_edge and to_edge and stride == ONE and not is_set(masks.shrink_axis_mask, at)
