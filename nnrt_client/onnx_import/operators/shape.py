"""Data moved, not changed: new shapes, orders, joins, parts, repetitions and borders."""

import math
from collections.abc import Sequence

import numpy as np

from nnrt_client.enums import Format, OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder, require_moderate
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.shapes.dims import Dims, Number, broadcast, product, unlike
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.enums import PaddingMode
from nnrt_hdi.tensor import Array

Ints = tuple[int, ...]

# As far as NNRt's positions reach; beyond it is all the same to the end of a dimension.
_FARTHEST = 2**31 - 1


@onnx_operator("Reshape", moves=True)
def reshape(op: NodeBuilder, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    """RESHAPE, to a shape that is known before a run as far as it may be; SQUEEZE to a scalar."""
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
        target[target.index(-1)] = _rest(x.dims, target)
    return op.reshape(x, target, shape)


def _rest(dims: Dims, target: Sequence[Number]) -> Number:
    """The rest of a number of elements, for the dimension that is -1."""
    total, given = product(dims), product(dim for dim in target if dim != -1)
    common = [dim for dim in dims if not isinstance(dim, int)]
    for dim in target:
        if dim in common:
            # Dimensions on both sides say nothing of the rest.
            common.remove(dim)
            rest = list(dims)
            rest.remove(dim)
            others = list(target)
            others.remove(dim)
            return _rest(tuple(rest), others)
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
    """RESHAPE."""
    at = axis + x.rank if axis < 0 else axis
    return op.reshape(x, (product(x.dims[:at]), product(x.dims[at:])))


@onnx_operator("Squeeze", until=12, moves=True)
def squeeze_by_attribute(op: NodeBuilder, x: Value, *, axes: Ints = ()) -> Value:
    """SQUEEZE."""
    return _squeezed(op, x, axes)


@onnx_operator("Squeeze", since=13, moves=True)
def squeeze(op: NodeBuilder, x: Value, axes: Value | None = None) -> Value:
    """SQUEEZE."""
    return _squeezed(op, x, () if axes is None else op.ints("axes", axes))


def _squeezed(op: NodeBuilder, x: Value, axes: Sequence[int]) -> Value:
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
    """CONCAT; nothing for a single part."""
    # Of no elements nothing is left.
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
    """SPLIT."""
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
    # A part without elements is no tensor, but Concat may well take it.
    full = tuple(length for length in sizes if length)
    parts = iter(op.apply_to_several(OperationType.SPLIT, x, axis=axis, output_num=len(full), size_splits=full))
    at = axis % x.rank
    empty = np.empty([0 if here == at else max(size, 1) for here, size in enumerate(x.shape)], x.dtype)
    return tuple(next(parts) if length else op.constant(empty) for length in sizes)


@onnx_operator("Slice", until=9)
def slice_by_attributes(op: NodeBuilder, x: Value, *, starts: Ints, ends: Ints, axes: Ints = ()) -> Value:
    """STRIDED_SLICE."""
    return _sliced(op, x, starts, ends, axes or tuple(range(len(starts))), (1,) * len(starts))


@onnx_operator("Slice", since=10, moves=True)
def slice_(
    op: NodeBuilder, x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None
) -> Value:
    """STRIDED_SLICE, also to positions that are known only in a run."""
    count = starts.dims[0]
    if not isinstance(count, int):
        refuse(f"how many starts {starts} there are is known only in a run")
    along = range(count) if axes is None else op.ints("axes", axes)
    by = [1] * count if steps is None else op.ints("steps", steps)
    return _sliced(op, x, starts.ints or starts, ends.ints or ends, along, by)


def _sliced(
    op: NodeBuilder,
    x: Value,
    starts: Sequence[int] | Value,
    ends: Sequence[int] | Value,
    axes: Sequence[int],
    steps: Sequence[int],
) -> Value:
    axes = [axis % x.rank for axis in axes]
    count = max(axes) + 1
    strides = np.ones(count, np.int64)
    strides[axes] = steps
    whole = sum(1 << at for at in range(count) if at not in axes)
    y = op.apply(
        OperationType.STRIDED_SLICE,
        x,
        _positions(op, starts, axes, count),
        _positions(op, ends, axes, count),
        strides,
        begin_mask=whole,
        end_mask=whole,
    )
    # How much of an unknown dimension is left depends on how much there is.
    y.dims = tuple(dim if isinstance(dim, int) or at not in axes else unlike() for at, dim in enumerate(y.dims))
    return y


def _positions(op: NodeBuilder, given: Sequence[int] | Value, axes: Sequence[int], count: int) -> Array | Value:
    """A position for each dimension up to the last that is cut."""
    if isinstance(given, Value):
        if list(axes) == list(range(count)):
            return given
        # Each dimension takes its position, or the 0 that is put in front.
        padded = op.apply(OperationType.CONCAT, np.zeros(1, given.dtype), given)
        order = [axes.index(at) + 1 if at in axes else 0 for at in range(count)]
        return op.apply(OperationType.GATHER, padded, np.array(order, np.int64), np.array(0, np.int64))
    positions = np.zeros(count, np.int64)
    positions[list(axes)] = np.clip(np.array(given, dtype=object).astype(np.float64), -_FARTHEST, _FARTHEST)
    return positions


@onnx_operator("Shape", until=14)
def shape_of_all(op: NodeBuilder, x: Value) -> Value:
    """SHAPE, unless it is known before a run."""
    return op.shape(x)


@onnx_operator("Shape", since=15)
def shape_of(op: NodeBuilder, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    """SHAPE, and STRIDED_SLICE of it, unless it is known before a run."""
    from_, to, _ = slice(start, end).indices(x.rank)
    return op.shape(x) if (from_, to) == (0, x.rank) else _sliced(op, op.shape(x), [from_], [to], [0], [1])


@onnx_operator("Size")
def size_of(op: NodeBuilder, x: Value) -> Value:
    """REDUCE_PROD of SHAPE, unless it is known before a run."""
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
    """PAD, or GATHER for the mode edge; STRIDED_SLICE where it takes away."""
    return _padded(op, x, pads, mode, value)


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
    """PAD, or GATHER for the modes edge and wrap; STRIDED_SLICE where it takes away."""
    number: float = 0
    if value is not None:
        if value.array is None or value.array.size != 1:
            refuse("its constant_value is known only in a run")
        number = value.array.reshape(-1)[0].item()
        if float(np.float32(number)) != number and not math.isnan(number):
            refuse(f"its constant_value is {number}, which FLOAT32 can't hold")
    if pads.ints is None and axes is None and mode == "constant":
        pairs = op.transpose(op.reshape(pads, (2, x.rank)), [1, 0])
        return op.apply(OperationType.PAD, x, pairs, constant_value=float(number))
    given = op.ints("pads", pads)
    if axes is not None:
        named = [axis % x.rank for axis in op.ints("axes", axes)]
        borders = np.zeros((2, x.rank), np.int64)
        borders[:, named] = np.reshape(given, (2, -1))
        given = borders.reshape(-1).tolist()
    return _padded(op, x, given, mode, number)


def _padded(op: NodeBuilder, x: Value, pads: Sequence[int], mode: str, value: float) -> Value:
    if len(pads) != 2 * x.rank:
        refuse(f"its pads are {list(pads)}, but x is {x}")
    pairs = np.reshape(np.array(pads, np.int64), (2, -1)).T
    if mode not in ("constant", "reflect", "edge", "wrap"):
        refuse(f"its mode is {mode!r}; use 'constant', 'reflect', 'edge' or 'wrap'")
    if pairs.min(initial=0) < 0:
        taken = np.minimum(pairs, 0)
        ends = [_FARTHEST if not behind else int(behind) for behind in taken[:, 1]]
        x = _sliced(op, x, (-taken[:, 0]).tolist(), ends, range(x.rank), [1] * x.rank)
        pairs = np.maximum(pairs, 0)
    if not pairs.any():
        return x
    if mode in ("edge", "wrap"):
        return _repeated(op, x, pairs, mode)
    kind = PaddingMode.CONSTANT if mode == "constant" else PaddingMode.REFLECT
    constant = {"constant_value": float(value)} if mode == "constant" else {}
    dims = tuple(dim if not pair.any() else dim + int(pair.sum()) for dim, pair in zip(x.dims, pairs, strict=True))
    return op.apply(OperationType.PAD, x, pairs, padding_mode=kind, dims=dims, quant=op.quant, **constant)


def _repeated(op: NodeBuilder, x: Value, pairs: Array, mode: str) -> Value:
    """Borders that are elements of x: its edge again and again, or all from the other side on."""
    for axis, (before, behind) in enumerate(pairs.tolist()):
        size = x.shape[axis]
        if not (before or behind):
            continue
        require_moderate((size, before + behind))
        places = np.arange(-before, size + behind)
        places = places % size if mode == "wrap" else np.clip(places, 0, size - 1)
        x = op.apply(OperationType.GATHER, x, places, np.array(axis, np.int64))
    return x


@onnx_operator("Trilu", since=14)
def trilu(op: NodeBuilder, x: Value, k: Value | None = None, *, upper: int = 1) -> Value:
    """WHERE by a constant mask; by GREATER_EQUAL or LESS_EQUAL of counted places where sizes or k come with the run."""
    rows, columns = x.shape[-2:]
    known = [0] if k is None else k.ints
    zero = op.number(0, x.dtype)
    if -1 in (rows, columns) or known is None:
        shift = (
            op.reshape(k, ()) if k is not None and known is None else op.number((known or [0])[0], np.dtype(np.int64))
        )
        row = op.apply(OperationType.ADD, op.unsqueeze(op.places(x, -2), [1]), shift)
        type_ = OperationType.GREATER_EQUAL if upper else OperationType.LESS_EQUAL
        is_kept = op.apply(type_, op.places(x, -1), row, dims=x.dims[-2:])
        return op.apply(OperationType.WHERE, is_kept, x, zero, dims=x.dims)
    require_moderate(x.dims[-2:])
    ones = np.ones((rows, columns), np.bool_)
    mask = np.triu(ones, known[0]) if upper else np.tril(ones, known[0])
    return op.apply(OperationType.WHERE, mask, x, zero)
