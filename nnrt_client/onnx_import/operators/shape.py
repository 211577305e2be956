"""Operators that move data: reshape, transpose, concatenate, split, slice, repeat and pad."""

from collections.abc import Sequence

import numpy as np

from nnrt_client.enums import Format, OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder, require_moderate
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.operators.padding import known_number, pad_by, pad_in_run
from nnrt_client.onnx_import.operators.slicing import slice_between, split_in_run
from nnrt_client.onnx_import.shapes.dims import Dim, Dims, Number, broadcast, product
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value

Ints = tuple[int, ...]


@onnx_operator("Reshape", moves=True)
def reshape(op: NodeBuilder, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    """RESHAPE; SQUEEZE to a scalar."""
    if shape.elements is None:
        if -1 in shape.shape:
            refuse(f"its shape {shape} has a length that is known only in a run")
        return op.apply(OperationType.RESHAPE, x, shape)
    target: list[Number] = []
    for at, dim in enumerate(shape.elements.tolist()):
        if dim == 0 and not allowzero:
            if at >= x.rank:
                refuse(f"its shape keeps dimension {at} of {x}")
            dim = x.dims[at]
        target.append(dim)
    if target.count(-1) > 1 or any(isinstance(dim, int) and dim < -1 for dim in target):
        refuse(f"its shape is {target}; use at most one -1")
    if -1 in target:
        target[target.index(-1)] = _inferred_dim(x.dims, target)
    return op.reshape(x, target, shape)


def _inferred_dim(dims: Dims, target: Sequence[Number]) -> Number:
    """Return the dimension that stands for -1 in `target`: the number of elements divided by its other dimensions."""
    total, given = product(dims), product(dim for dim in target if dim != -1)
    common = [dim for dim in dims if not isinstance(dim, int)]
    for dim in target:
        if dim in common:
            # An unknown dimension on both sides cancels out.
            common.remove(dim)
            rest = list(dims)
            rest.remove(dim)
            others = list(target)
            others.remove(dim)
            return _inferred_dim(tuple(rest), others)
    return total // given if given != 0 else 0


@onnx_operator("Transpose", moves=True)
def transpose(op: NodeBuilder, x: Value, *, perm: Ints | None = None) -> Value:
    """TRANSPOSE."""
    order = list(range(x.rank))[::-1] if perm is None else list(perm)
    if sorted(order) != list(range(x.rank)):
        refuse(f"its perm is {order}, but x is {x}")
    return op.transpose(x, order)


@onnx_operator("Flatten", moves=True)
def flatten(op: NodeBuilder, x: Value, *, axis: int = 1) -> Value:
    """RESHAPE; FLATTEN if rows and columns are both known only in a run."""
    at = axis + x.rank if axis < 0 else axis
    target = (product(x.dims[:at]), product(x.dims[at:]))
    if all(isinstance(dim, Dim) for dim in target) and target[0] != x.dims[0]:
        return op.apply(OperationType.FLATTEN, x, axis=at, dims=target)
    return op.reshape(x, target)


@onnx_operator("Squeeze", until=12, moves=True)
def squeeze_by_attribute(op: NodeBuilder, x: Value, *, axes: Ints = ()) -> Value:
    """SQUEEZE."""
    return _squeeze(op, x, axes)


@onnx_operator("Squeeze", since=13, moves=True)
def squeeze(op: NodeBuilder, x: Value, axes: Value | None = None) -> Value:
    """SQUEEZE."""
    return _squeeze(op, x, () if axes is None else op.ints("axes", axes))


def _squeeze(op: NodeBuilder, x: Value, axes: Sequence[int]) -> Value:
    named = [axis % x.rank for axis in axes] or [at for at, dim in enumerate(x.dims) if dim == 1]
    if not axes and -1 in x.shape:
        refuse(f"which dimensions of {x} are 1 is known only in a run; name them")
    if any(isinstance(x.dims[at], int) and x.dims[at] != 1 for at in named):
        refuse(f"its axes are {list(axes)}, but x is {x}")
    return op.squeeze(x, named)


@onnx_operator("Unsqueeze", until=12, moves=True)
def unsqueeze_by_attribute(op: NodeBuilder, x: Value, *, axes: Ints) -> Value:
    """UNSQUEEZE."""
    return op.unsqueeze(x, axes)


@onnx_operator("Unsqueeze", since=13, moves=True)
def unsqueeze(op: NodeBuilder, x: Value, axes: Value) -> Value:
    """UNSQUEEZE."""
    return op.unsqueeze(x, op.ints("axes", axes))


@onnx_operator("Concat", is_quantizable=True)
def concat(op: NodeBuilder, *parts: Value, axis: int) -> Value:
    """CONCAT; no operation for a single part."""
    # NNRt has no tensors without elements, and they add nothing to the result.
    given = [part for part in parts if 0 not in part.dims]
    if not given:
        refuse("none of its parts has elements")
    formats = {part.tensor.desc.format for part in given} - {Format.NONE}
    if len(formats) > 1:
        given = [op.nchw(part) for part in given]
    return given[0] if len(given) == 1 else op.apply(OperationType.CONCAT, *given, axis=axis, quant=op.quant)


@onnx_operator("Split", until=12)
def split_by_attribute(op: NodeBuilder, x: Value, *, axis: int = 0, split: Ints = ()) -> tuple[Value, ...]:
    """SPLIT."""
    return _split(op, x, axis, split, len(op.outputs))


@onnx_operator("Split", since=13)
def split(
    op: NodeBuilder, x: Value, split: Value | None = None, *, axis: int = 0, num_outputs: int | None = None
) -> tuple[Value, ...]:
    """SPLIT; STRIDED_SLICE for each part if the sizes are known only in a run."""
    if split is not None and split.ints is None:
        return split_in_run(op, x, axis, split)
    sizes = () if split is None else tuple(op.ints("split", split))
    return _split(op, x, axis, sizes, num_outputs or len(op.outputs))


def _split(op: NodeBuilder, x: Value, axis: int, sizes: Ints, count: int) -> tuple[Value, ...]:
    size = x.dims[axis]
    if not 1 <= count <= len(op.outputs):
        refuse(f"it splits {x} into {count} parts, but has {len(op.outputs)} outputs")
    if not sizes and isinstance(size, int):
        part = -(-size // count)
        sizes = (*(part,) * (count - 1), size - part * (count - 1))
    if 0 not in sizes:
        return op.apply_to_several(OperationType.SPLIT, x, axis=axis, output_num=count, size_splits=sizes)
    # NNRt has no tensor for a part without elements; a constant stands for it, which Concat drops.
    full = tuple(length for length in sizes if length)
    parts = iter(op.apply_to_several(OperationType.SPLIT, x, axis=axis, output_num=len(full), size_splits=full))
    at = axis % x.rank
    empty = np.empty([0 if here == at else max(size, 1) for here, size in enumerate(x.shape)], x.dtype)
    return tuple(next(parts) if length else op.constant(empty) for length in sizes)


@onnx_operator("Slice", until=9)
def slice_by_attributes(op: NodeBuilder, x: Value, *, starts: Ints, ends: Ints, axes: Ints = ()) -> Value:
    """STRIDED_SLICE."""
    return slice_between(op, x, starts, ends, axes or tuple(range(len(starts))), (1,) * len(starts))


@onnx_operator("Slice", since=10, moves=True)
def slice_(
    op: NodeBuilder, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    """STRIDED_SLICE; positions may be known only in a run."""
    count = starts.dims[0]
    if not isinstance(count, int):
        refuse(f"how many starts {starts} there are is known only in a run")
    along = range(count) if axes is None else op.ints("axes", axes)
    by = [1] * count if steps is None else steps.ints or steps
    return slice_between(op, x, starts.ints or starts, ends.ints or ends, along, by)


@onnx_operator("Shape", until=14)
def shape_of_all(op: NodeBuilder, x: Value) -> Value:
    """SHAPE; a constant if the shape is known before a run."""
    return op.shape(x)


@onnx_operator("Shape", since=15)
def shape_of(op: NodeBuilder, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    """SHAPE and STRIDED_SLICE; a constant if the shape is known before a run."""
    from_, to, _ = slice(start, end).indices(x.rank)
    return op.shape(x) if (from_, to) == (0, x.rank) else slice_between(op, op.shape(x), [from_], [to], [0], [1])


@onnx_operator("Size")
def size_of(op: NodeBuilder, x: Value) -> Value:
    """REDUCE_PROD of SHAPE; a constant if the shape is known before a run."""
    return op.apply(OperationType.REDUCE_PROD, op.shape(x), np.zeros(1, np.int64))


@onnx_operator("Expand", since=8)
def expand(op: NodeBuilder, x: Value, shape: Value) -> Value:
    """BROADCAST_TO; MUL by FILL of 1 for dimensions that are known only in a run."""
    wanted = shape.elements
    if wanted is not None:
        target = broadcast(x.dims, tuple(wanted.tolist()))
        own = (None,) * (len(target) - x.rank) + x.dims
        if all(isinstance(dim, int) or dim == mine for dim, mine in zip(target, own, strict=True)):
            numbers = [dim if isinstance(dim, int) else -1 for dim in target]
            return op.apply(OperationType.BROADCAST_TO, x, shape=numbers, dims=target)
    filled = op.filled(op.number(1, x.dtype), x.dtype, shape)
    y = op.apply(OperationType.MUL, x, filled)
    if wanted is not None:
        y.dims = tuple(mine if isinstance(mine, int) else dim for mine, dim in zip(y.dims, target, strict=True))
    return y


@onnx_operator("Tile")
def tile(op: NodeBuilder, x: Value, repeats: Value) -> Value:
    """TILE."""
    return op.apply(OperationType.TILE, x, repeats)


@onnx_operator("Pad", until=10)
def pad_by_attributes(op: NodeBuilder, x: Value, *, pads: Ints, mode: str = "constant", value: float = 0.0) -> Value:
    """PAD, or GATHER for the mode 'edge'; STRIDED_SLICE for negative pads."""
    return pad_by(op, x, pads, mode, value)


@onnx_operator("Pad", since=11)
def pad(
    op: NodeBuilder,
    x: Value,
    pads: Value,
    value: Value | None = None,
    axes: Value | None = None,
    *,
    mode: str = "constant",
) -> Value:
    """PAD, or GATHER for the modes 'edge' and 'wrap'; STRIDED_SLICE for negative pads; WHERE for some values.

    WHERE, with a second PAD, is needed for a value that only a run knows, or that FLOAT32 can't hold exactly.
    """
    number = known_number(value)
    if number is None and value is not None and mode == "constant":
        ones = op.filled(op.number(1, np.dtype(np.float32)), np.dtype(np.float32), op.shape_vector(x), x.dims)
        is_x, y = (pad(op, part, pads, None, axes) for part in (ones, x))
        is_inside = op.apply(OperationType.NOT_EQUAL, is_x, op.number(0, is_x.dtype))
        return op.apply(OperationType.WHERE, is_inside, y, op.reshape(value, ()), dims=y.dims)
    named = None if axes is None else [axis % x.rank for axis in op.ints("axes", axes)]
    if pads.ints is None:
        return pad_in_run(op, x, pads, named, mode, number or 0)
    given = pads.ints
    if named is not None:
        borders = np.zeros((2, x.rank), np.int64)
        borders[:, named] = np.reshape(given, (2, -1))
        given = borders.reshape(-1).tolist()
    return pad_by(op, x, given, mode, number or 0)


@onnx_operator("Trilu", since=14)
def trilu(op: NodeBuilder, x: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    """WHERE by a constant mask; if only a run knows sizes or k, by GREATER_EQUAL or LESS_EQUAL of counted indices."""
    rows, columns = x.shape[-2:]
    known = [0] if k is None else k.ints
    zero = op.number(0, x.dtype)
    if -1 in (rows, columns) or known is None:
        shift = (
            op.reshape(k, ()) if k is not None and known is None else op.number((known or [0])[0], np.dtype(np.int64))
        )
        row = op.apply(OperationType.ADD, op.unsqueeze(op.indices(x, -2), [1]), shift)
        type_ = OperationType.GREATER_EQUAL if upper else OperationType.LESS_EQUAL
        is_kept = op.apply(type_, op.indices(x, -1), row, dims=x.dims[-2:])
        return op.apply(OperationType.WHERE, is_kept, x, zero, dims=x.dims)
    require_moderate(x.dims[-2:])
    ones = np.ones((rows, columns), np.bool_)
    mask = np.triu(ones, known[0]) if upper else np.tril(ones, known[0])
    return op.apply(OperationType.WHERE, mask, x, zero)
