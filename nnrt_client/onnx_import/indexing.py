"""Elements picked or placed by their index. ONNX counts from the end as well, NNRt only from the front."""

import math

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.operator import onnx_operator, refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import Array

_INT64 = np.dtype(np.int64)
# Positions that are put down as constants.
_MOST_POSITIONS = 1 << 20


@onnx_operator("Gather")
def gather(call: Call, x: Value, indices: Value, *, axis: int = 0) -> Value:
    """GATHER; indices that may be negative get ADD and MOD of the dimension first."""
    return call.apply(OperationType.GATHER, x, _from_front(call, x, indices, axis), np.array(axis, np.int64))


@onnx_operator("GatherND", since=11)
def gather_nd(call: Call, x: Value, indices: Value, *, batch_dims: int = 0) -> Value:
    """GATHER_ND, without batch_dims."""
    if batch_dims:
        refuse(f"its batch_dims is {batch_dims}; NNRt's GATHER_ND has none")
    return call.apply(OperationType.GATHER_ND, x, _tuples_from_front(call, x, indices))


@onnx_operator("GatherElements", since=11)
def gather_elements(call: Call, x: Value, indices: Value, *, axis: int = 0) -> Value:
    """GATHER_ND, the other positions constants, or counted in a run."""
    return call.apply(OperationType.GATHER_ND, x, _positions(call, x, indices, axis))


@onnx_operator("ScatterND", since=11)
def scatter_nd(call: Call, x: Value, indices: Value, updates: Value, *, reduction: str = "none") -> Value:
    """SCATTER_ND, and WHERE or, for the reduction add, ADD."""
    return _scattered(call, x, _tuples_from_front(call, x, indices), updates, reduction)


@onnx_operator("ScatterElements", since=11)
def scatter_elements(
    call: Call, x: Value, indices: Value, updates: Value, *, axis: int = 0, reduction: str = "none"
) -> Value:
    """SCATTER_ND, the other positions constants, or counted in a run, and WHERE or ADD."""
    return _scattered(call, x, _positions(call, x, indices, axis), updates, reduction)


@onnx_operator("Scatter", since=9, until=10)
def scatter(call: Call, x: Value, indices: Value, updates: Value, *, axis: int = 0) -> Value:
    """As ScatterElements."""
    return scatter_elements(call, x, indices, updates, axis=axis)


@onnx_operator("OneHot", since=9)
def one_hot(call: Call, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    """ONE_HOT; ADD and MOD of the depth first."""
    indices, depth = call.cast(indices, _INT64), call.cast(depth, _INT64)
    counted = call.reshape(depth, ())
    # What is too far on either side is no index at all, and must not become one.
    limits = call.apply(OperationType.NEG, counted)
    is_near = call.apply(
        OperationType.LOGICAL_AND,
        call.apply(OperationType.GREATER_EQUAL, indices, limits),
        call.apply(OperationType.LESS, indices, call.number(0, _INT64)),
    )
    indices = call.apply(OperationType.WHERE, is_near, call.apply(OperationType.ADD, indices, counted), indices)
    off, on = (call.apply(OperationType.GATHER, values, np.array(at, np.int64), np.array(0, np.int64)) for at in (0, 1))
    return call.apply(OperationType.ONE_HOT, indices, counted, on, off, axis=axis)


@onnx_operator("TopK", until=9)
def top_k_by_attribute(call: Call, x: Value, *, k: int, axis: int = -1) -> tuple[Value, ...]:
    """TOP_K, and CAST of the indices."""
    return _top_k(call, x, call.number(k, _INT64), axis, is_largest=True, is_sorted=True)


@onnx_operator("TopK", since=10)
def top_k(call: Call, x: Value, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Value, ...]:
    """TOP_K, and CAST of the indices; between NEG for the smallest."""
    return _top_k(
        call,
        x,
        call.number(k.ints[0], _INT64) if k.ints else call.reshape(k, ()),
        axis,
        is_largest=bool(largest),
        is_sorted=bool(sorted),
    )


def _top_k(call: Call, x: Value, k: Value, axis: int, *, is_largest: bool, is_sorted: bool) -> tuple[Value, ...]:
    if not is_largest:
        turned = call.apply(OperationType.NEG, _signed(call, x))
        values, order = call.apply_to_several(OperationType.TOP_K, turned, k, axis=axis, sorted=is_sorted)
        values = call.cast(call.apply(OperationType.NEG, values), x.dtype)
    else:
        values, order = call.apply_to_several(OperationType.TOP_K, x, k, axis=axis, sorted=is_sorted)
    return values, call.cast(order, _INT64)


@onnx_operator("ArgMax", "ArgMin", doc={"ArgMax": "ARG_MAX and CAST.", "ArgMin": "ARG_MAX of NEG, and CAST."})
def arg_max(call: Call, x: Value, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Value:
    size = x.dims[axis]
    if call.type == "ArgMin":
        x = call.apply(OperationType.NEG, _signed(call, x))
    if not select_last_index:
        found = call.apply(OperationType.ARG_MAX, x, axis=axis, keep_dims=bool(keepdims))
        return call.cast(found, _INT64)
    # From behind it is the first.
    if not isinstance(size, int):
        refuse(f"it counts from the end of dimension {axis} of {x}; fix it")
    order = np.arange(size, dtype=np.int64)[::-1].copy()
    turned = call.apply(OperationType.GATHER, x, order, np.array(axis, np.int64))
    found = call.cast(call.apply(OperationType.ARG_MAX, turned, axis=axis, keep_dims=bool(keepdims)), _INT64)
    return call.apply(OperationType.SUB, call.number(size - 1, _INT64), found)


@onnx_operator("CumSum", since=11)
def cum_sum(call: Call, x: Value, axis: Value, *, exclusive: int = 0, reverse: int = 0) -> Value:
    """MATMUL with a triangle of ones, between TRANSPOSE: the dimension must be known."""
    (along,) = call.ints("axis", axis)
    along %= x.rank
    size = x.dims[along]
    if not isinstance(size, int) or size * size > _MOST_POSITIONS:
        refuse(f"it adds up dimension {along} of {x}; use a known one of at most {math.isqrt(_MOST_POSITIONS)}")
    triangle = np.triu(np.ones((size, size), x.dtype), 1 if exclusive else 0)
    order = [at for at in range(x.rank) if at != along] + [along]
    row = call.transpose(x, order) if x.rank > 1 else call.unsqueeze(x, [0])
    y = call.apply(OperationType.MATMUL, row, triangle.T.copy() if reverse else triangle)
    return call.transpose(y, np.argsort(order).tolist()) if x.rank > 1 else call.squeeze(y, [0])


def _signed(call: Call, x: Value) -> Value:
    """The same numbers where their negatives exist."""
    return call.cast(x, _INT64) if x.dtype.kind == "u" else x


def _from_front(call: Call, x: Value, indices: Value, axis: int) -> Value:
    """Indices into a dimension, counted from the front."""
    size = x.dims[axis]
    if indices.array is not None:
        if (indices.array >= 0).all():
            return indices
        if isinstance(size, int):
            return call.constant(np.where(indices.array < 0, indices.array + size, indices.array))
    if isinstance(size, int):
        length: Value = call.number(size, indices.dtype)
    else:
        length = call.cast(call.size(x, axis), indices.dtype)
    return call.apply(OperationType.MOD, call.apply(OperationType.ADD, indices, length), length)


def _tuples_from_front(call: Call, x: Value, indices: Value) -> Value:
    """Tuples of indices into the first dimensions, counted from the front."""
    if indices.array is not None and (indices.array >= 0).all():
        return indices
    depth = indices.dims[-1]
    if not isinstance(depth, int):
        refuse(f"how many dimensions of {x} its indices {indices} are for is known only in a run")
    sizes = x.shape[:depth]
    if -1 in sizes:
        first = call.apply(OperationType.GATHER, call.shape(x), np.arange(depth), np.array(0))
        lengths = call.cast(first, indices.dtype)
    else:
        lengths = call.constant(np.array(sizes, indices.dtype))
    return call.apply(OperationType.MOD, call.apply(OperationType.ADD, indices, lengths), lengths)


def _positions(call: Call, x: Value, indices: Value, axis: int) -> Value:
    """For each index along an axis the whole position: the others are its own place."""
    shape = indices.shape
    own = call.unsqueeze(call.cast(_from_front(call, x, indices, axis), _INT64), [-1])
    if -1 in shape:
        none = call.apply(OperationType.MUL, own, call.number(0, _INT64), dims=own.dims)
        places = [own if at == axis % x.rank else _places(call, indices, at, none) for at in range(x.rank)]
        return own if x.rank == 1 else call.apply(OperationType.CONCAT, *places, axis=-1)
    if math.prod(shape) * len(shape) > _MOST_POSITIONS:
        refuse(f"the positions of its indices {indices} are constants; use fewer of them")
    grid = np.moveaxis(np.indices(shape, np.int64), 0, -1)
    at = axis % len(shape)
    parts: list[Value | Array] = [grid[..., :at], own, grid[..., at + 1 :]]
    given = [part for part in parts if isinstance(part, Value) or part.size]
    return own if len(given) == 1 else call.apply(OperationType.CONCAT, *given, axis=-1)


def _places(call: Call, indices: Value, axis: int, none: Value) -> Value:
    """For each index its own place in a dimension; `none` is a zero for each."""
    row = call.unsqueeze(call.places(indices, axis), [at for at in range(none.rank) if at != axis])
    return call.apply(OperationType.ADD, none, row, dims=none.dims)


def _scattered(call: Call, x: Value, positions: Value, updates: Value, reduction: str) -> Value:
    if reduction not in ("none", "add"):
        refuse(f"its reduction is {reduction!r}; NNRt's SCATTER_ND only adds")
    shape = call.shape_vector(x)
    placed = call.apply(OperationType.SCATTER_ND, positions, updates, shape, dims=x.dims)
    if reduction == "add":
        return call.apply(OperationType.ADD, x, placed)
    number = np.dtype(np.int32)
    if -1 in updates.shape:
        marks = call.filled(call.number(1, number), number, call.shape(updates), updates.dims)
    else:
        marks = call.full(updates.dims, 1, number)
    marked = call.apply(OperationType.SCATTER_ND, positions, marks, shape, dims=x.dims)
    is_new = call.apply(OperationType.NOT_EQUAL, marked, call.number(0, number))
    return call.apply(OperationType.WHERE, is_new, placed, x)
