"""Elements read or written by their index. Indices may be negative in ONNX, but not in NNRt."""

import math

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.operators.steps import pick_steps
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import Array

_INT64 = np.dtype(np.int64)
# Most numbers in a constant of positions.
_MOST_POSITIONS = 1 << 20


@onnx_operator("Gather")
def gather(op: NodeBuilder, x: Value, indices: Value, *, axis: int = 0) -> Value:
    """GATHER; indices that may be negative first get ADD and MOD of the dimension."""
    return op.apply(OperationType.GATHER, x, _nonnegative_indices(op, x, indices, axis), np.array(axis, np.int64))


@onnx_operator("GatherND", since=11)
def gather_nd(op: NodeBuilder, x: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    """GATHER_ND; a batch_dims other than 0 is refused."""
    if batch_dims:
        refuse(f"its batch_dims is {batch_dims}; NNRt's GATHER_ND has none")
    return op.apply(OperationType.GATHER_ND, x, _nonnegative_tuples(op, x, indices))


@onnx_operator("GatherElements", since=11)
def gather_elements(op: NodeBuilder, x: Value, indices: Value, *, axis: int = 0) -> Value:
    """GATHER_ND; the indices of the other dimensions are constants, or counted in a run."""
    return op.apply(OperationType.GATHER_ND, x, _full_positions(op, x, indices, axis))


@onnx_operator("ScatterND", since=11)
def scatter_nd(op: NodeBuilder, x: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    """SCATTER_ND, and WHERE, or ADD for the reduction 'add'."""
    return _scatter(op, x, _nonnegative_tuples(op, x, indices), updates, reduction)


@onnx_operator("ScatterElements", since=11)
def scatter_elements(
    op: NodeBuilder, x: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Value:
    """SCATTER_ND, and WHERE or ADD; the indices of the other dimensions are constants, or counted in a run."""
    return _scatter(op, x, _full_positions(op, x, indices, axis), updates, reduction)


@onnx_operator("Scatter", since=9, until=10)
def scatter(op: NodeBuilder, x: Value, indices: Value, updates: Value, *, axis: int = 0) -> Value:
    """Import like ScatterElements."""
    return scatter_elements(op, x, indices, updates, axis=axis)


@onnx_operator("OneHot", since=9)
def one_hot(op: NodeBuilder, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    """ONE_HOT, after ADD of the depth to negative indices, with WHERE."""
    indices, depth = op.cast(indices, _INT64), op.cast(depth, _INT64)
    counted = op.reshape(depth, ())
    # Indices below -depth or above depth - 1 are out of range: they must stay so.
    limits = op.apply(OperationType.NEG, counted)
    is_near = op.apply(
        OperationType.LOGICAL_AND,
        op.apply(OperationType.GREATER_EQUAL, indices, limits),
        op.apply(OperationType.LESS, indices, op.number(0, _INT64)),
    )
    indices = op.apply(OperationType.WHERE, is_near, op.apply(OperationType.ADD, indices, counted), indices)
    off, on = (op.apply(OperationType.GATHER, values, np.array(at, np.int64), np.array(0, np.int64)) for at in (0, 1))
    return op.apply(OperationType.ONE_HOT, indices, counted, on, off, axis=axis)


@onnx_operator("TopK", until=9)
def top_k_by_attribute(op: NodeBuilder, x: Value, *, k: int, axis: int = -1) -> tuple[Value, ...]:
    """TOP_K, and CAST of the indices."""
    return _top_k(op, x, op.number(k, _INT64), axis, is_largest=True, is_sorted=True)


@onnx_operator("TopK", since=10)
def top_k(
    op: NodeBuilder, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> tuple[Value, ...]:
    """TOP_K, and CAST of the indices; for the smallest elements between NEG."""
    return _top_k(
        op,
        x,
        op.number(k.ints[0], _INT64) if k.ints else op.reshape(k, ()),
        axis,
        is_largest=bool(largest),
        is_sorted=bool(sorted),
    )


def _top_k(op: NodeBuilder, x: Value, k: Value, axis: int, *, is_largest: bool, is_sorted: bool) -> tuple[Value, ...]:
    if not is_largest:
        turned = op.apply(OperationType.NEG, _as_signed(op, x))
        values, order = op.apply_to_several(OperationType.TOP_K, turned, k, axis=axis, sorted=is_sorted)
        values = op.cast(op.apply(OperationType.NEG, values), x.dtype)
    else:
        values, order = op.apply_to_several(OperationType.TOP_K, x, k, axis=axis, sorted=is_sorted)
    return values, op.cast(order, _INT64)


@onnx_operator("ArgMax", "ArgMin", doc={"ArgMax": "ARG_MAX and CAST.", "ArgMin": "ARG_MAX of NEG, and CAST."})
def arg_max(op: NodeBuilder, x: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
    size = x.dims[axis]
    if op.type == "ArgMin":
        x = op.apply(OperationType.NEG, _as_signed(op, x))
    if not select_last_index:
        found = op.apply(OperationType.ARG_MAX, x, axis=axis, keep_dims=bool(keepdims))
        return op.cast(found, _INT64)
    # The last index is the first one in the reversed dimension.
    if not isinstance(size, int):
        refuse(f"it counts from the end of dimension {axis} of {x}; fix it")
    order = np.arange(size, dtype=np.int64)[::-1].copy()
    turned = op.apply(OperationType.GATHER, x, order, np.array(axis, np.int64))
    found = op.cast(op.apply(OperationType.ARG_MAX, turned, axis=axis, keep_dims=bool(keepdims)), _INT64)
    return op.apply(OperationType.SUB, op.number(size - 1, _INT64), found)


@onnx_operator("CumSum", since=11)
def cum_sum(op: NodeBuilder, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    """MATMUL with a triangular matrix of ones, between TRANSPOSE; a run makes it if only a run knows the dimension."""
    (along,) = op.ints("axis", axis)
    along %= x.rank
    size = x.dims[along]
    if isinstance(size, int) and size * size > _MOST_POSITIONS:
        refuse(f"it adds up dimension {along} of {x}; use one of at most {math.isqrt(_MOST_POSITIONS)}")
    if isinstance(size, int):
        ones = np.triu(np.ones((size, size), x.dtype), 1 if exclusive else 0)
        triangle: Value = op.constant(ones.T.copy() if reverse else ones)
    else:
        places = op.indices(x, along)
        rows, columns = op.unsqueeze(places, [0 if reverse else 1]), op.unsqueeze(places, [1 if reverse else 0])
        compared = OperationType.LESS if exclusive else OperationType.LESS_EQUAL
        triangle = op.cast(op.apply(compared, rows, columns, dims=(size, size)), x.dtype)
    order = [at for at in range(x.rank) if at != along] + [along]
    row = op.transpose(x, order) if x.rank > 1 else op.unsqueeze(x, [0])
    y = op.apply(OperationType.MATMUL, row, triangle, dims=row.dims)
    return op.transpose(y, np.argsort(order).tolist()) if x.rank > 1 else op.squeeze(y, [0])


def _as_signed(op: NodeBuilder, x: Value) -> Value:
    """Cast unsigned integers to INT64, so that they can be negated."""
    return op.cast(x, _INT64) if x.dtype.kind == "u" else x


def _nonnegative_indices(op: NodeBuilder, x: Value, indices: Value, axis: int) -> Value:
    """Replace negative indices along an axis, which count from its end, by nonnegative ones."""
    size = x.dims[axis]
    if indices.array is not None:
        if (indices.array >= 0).all():
            return indices
        if isinstance(size, int):
            return op.constant(np.where(indices.array < 0, indices.array + size, indices.array))
    if isinstance(size, int):
        length: Value = op.number(size, indices.dtype)
    else:
        length = op.cast(op.size(x, axis), indices.dtype)
    return op.apply(OperationType.MOD, op.apply(OperationType.ADD, indices, length), length)


def _nonnegative_tuples(op: NodeBuilder, x: Value, indices: Value) -> Value:
    """Replace negative indices by nonnegative ones, in tuples [..., n] that index the first n dimensions of x."""
    if indices.array is not None and (indices.array >= 0).all():
        return indices
    depth = indices.dims[-1]
    if not isinstance(depth, int):
        refuse(f"how many dimensions of {x} its indices {indices} are for is known only in a run")
    sizes = x.shape[:depth]
    if -1 in sizes:
        first = op.apply(OperationType.GATHER, op.shape(x), np.arange(depth), np.array(0))
        lengths = op.cast(first, indices.dtype)
    else:
        lengths = op.constant(np.array(sizes, indices.dtype))
    return op.apply(OperationType.MOD, op.apply(OperationType.ADD, indices, lengths), lengths)


def _full_positions(op: NodeBuilder, x: Value, indices: Value, axis: int) -> Value:
    """Return positions in x [..., rank]: for each index its own position in `indices`, with the index at the axis."""
    shape = indices.shape
    own = op.unsqueeze(op.cast(_nonnegative_indices(op, x, indices, axis), _INT64), [-1])
    if -1 in shape:
        zeros = op.apply(OperationType.MUL, own, op.number(0, _INT64), dims=own.dims)
        places = [own if at == axis % x.rank else _own_positions(op, indices, at, zeros) for at in range(x.rank)]
        return own if x.rank == 1 else op.apply(OperationType.CONCAT, *places, axis=-1)
    if math.prod(shape) * len(shape) > _MOST_POSITIONS:
        refuse(f"the positions of its indices {indices} are constants; use fewer of them")
    grid = np.moveaxis(np.indices(shape, np.int64), 0, -1)
    at = axis % len(shape)
    parts: list[Value | Array] = [grid[..., :at], own, grid[..., at + 1 :]]
    given = [part for part in parts if isinstance(part, Value) or part.size]
    return own if len(given) == 1 else op.apply(OperationType.CONCAT, *given, axis=-1)


def _own_positions(op: NodeBuilder, indices: Value, axis: int, zeros: Value) -> Value:
    """Return the position of each index along an axis of `indices`, in the shape of `zeros`, [..., 1]."""
    row = op.unsqueeze(op.indices(indices, axis), [at for at in range(zeros.rank) if at != axis])
    return op.apply(OperationType.ADD, zeros, row, dims=zeros.dims)


def _scatter(op: NodeBuilder, x: Value, positions: Value, updates: Value, reduction: str) -> Value:
    if reduction not in ("none", "add"):
        refuse(f"its reduction is {reduction!r}; NNRt's SCATTER_ND only adds")
    shape = op.shape_vector(x)
    placed = op.apply(OperationType.SCATTER_ND, positions, updates, shape, dims=x.dims)
    if reduction == "add":
        return op.apply(OperationType.ADD, x, placed)
    number = np.dtype(np.int32)
    if -1 in updates.shape:
        marks = op.filled(op.number(1, number), number, op.shape(updates), updates.dims)
    else:
        marks = op.full(updates.dims, 1, number)
    marked = op.apply(OperationType.SCATTER_ND, positions, marks, shape, dims=x.dims)
    is_new = op.apply(OperationType.NOT_EQUAL, marked, op.number(0, number))
    return op.apply(OperationType.WHERE, is_new, placed, x)


@onnx_operator("TensorScatter", since=24)
def tensor_scatter(
    op: NodeBuilder,
    past_cache: Value,
    update: Value,
    write_indices: Value | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Value:
    """CONCAT of the cache and the update, and GATHER of their steps by indices of SUB, LESS and WHERE."""
    at = axis % past_cache.rank
    if mode not in ("linear", "circular") or not at:
        refuse(f"its mode is {mode!r} and its axis {axis}; use 'linear' or 'circular', and an axis behind the batch")
    key = ("written", write_indices, past_cache.dims[0], past_cache.dims[at], update.dims[at], mode)
    picked = op.once(key, lambda: _written(op, past_cache, update, write_indices, at, is_circular=mode == "circular"))
    joined = op.apply(OperationType.CONCAT, past_cache, update, axis=at)
    joined.dims = (*past_cache.dims[:at], past_cache.dims[at] + update.dims[at], *past_cache.dims[at + 1 :])
    present = pick_steps(op, joined, picked, at)
    present.dims = past_cache.dims
    return present


def _written(
    op: NodeBuilder, cache: Value, update: Value, starts: Value | None, axis: int, *, is_circular: bool
) -> Value:
    """Return for each step of a written cache its index in the cache and the update together."""
    count = op.size(cache, axis)
    places = moved = op.unsqueeze(op.indices(cache, axis), [0])
    if starts is not None:
        moved = op.apply(OperationType.SUB, places, op.unsqueeze(starts, [1]))
    if is_circular:
        # The remainder has the sign of the dividend, which may be negative.
        moved = op.apply(OperationType.ADD, op.apply(OperationType.MOD, moved, count), count)
        moved = op.apply(OperationType.MOD, moved, count)
    is_new = op.apply(
        OperationType.LOGICAL_AND,
        op.apply(OperationType.GREATER_EQUAL, moved, op.number(0, _INT64)),
        op.apply(OperationType.LESS, moved, op.size(update, axis)),
    )
    picked = op.apply(OperationType.WHERE, is_new, op.apply(OperationType.ADD, moved, count), places)
    picked.dims = (1 if starts is None else cache.dims[0], cache.dims[axis])
    return picked
