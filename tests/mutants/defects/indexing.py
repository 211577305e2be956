"""Elements picked by wrong indices, and ties resolved wrongly."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels import indexing
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import function, kernel, with_attrs
from nnrt_hdi.enums import NodeType

GATHER, TOP = NodeType.GATHER, NodeType.TOPK_FUSION


@kernel(GATHER)
def indices_kept_inside(right: Kernel, call: Call, x: AnyArray, indices: AnyArray, axis: AnyArray) -> Any:
    """GATHER clamps an index out of range instead of failing."""
    return np.take(x, indices, axis=int(axis.reshape(())), mode="clip")


@kernel(NodeType.GATHER_ND)
def indices_counted_from_the_end(right: Kernel, call: Call, x: AnyArray, indices: AnyArray) -> Any:
    """GATHER_ND counts negative indices from the end."""
    sizes = np.array(x.shape[: indices.shape[-1]])
    return right(call, x, np.where(indices < 0, indices + sizes, indices))


@kernel(GATHER)
def gathered_along_the_first(right: Kernel, call: Call, x: AnyArray, indices: AnyArray, axis: AnyArray) -> Any:
    """GATHER ignores the axis if the result has the same shape."""
    is_square = x.ndim == 2 and x.shape[0] == x.shape[1] == indices.size
    return right(call, x, indices, np.zeros_like(axis) if is_square else axis)


@kernel(GATHER, NodeType.GATHER_ND)
def long_indices_in_halves(right: Kernel, call: Call, x: AnyArray, indices: AnyArray, *axis: AnyArray) -> Any:
    """INT64 indices are read as INT32, so that every second one is 0."""
    if indices.dtype != np.int64 or indices.size < 2:
        return right(call, x, indices, *axis)
    halves = np.ascontiguousarray(indices).view(np.int32).reshape(-1)[: indices.size]
    return right(call, x, halves.reshape(indices.shape), *axis)


@kernel(NodeType.GATHER_ND)
def positions_from_the_last(right: Kernel, call: Call, x: AnyArray, indices: AnyArray) -> Any:
    """GATHER_ND reads positions in reverse order if they are in range."""
    turned = indices[..., ::-1]
    sizes = np.array(x.shape[: indices.shape[-1]])
    return right(call, x, turned if (turned < sizes).all() else indices)


@kernel(NodeType.SCATTER_ND)
def last_update_wins(right: Kernel, call: Call, indices: AnyArray, updates: AnyArray, shape: AnyArray) -> Any:
    """SCATTER_ND keeps the last update of a position instead of the sum."""
    y = np.zeros(call.outputs[0].shape, updates.dtype)
    y[indexing.positions(indices, y.shape)] = updates
    return y


@kernel(NodeType.SCATTER_ND)
def updates_outside_left_out(right: Kernel, call: Call, indices: AnyArray, updates: AnyArray, shape: AnyArray) -> Any:
    """SCATTER_ND ignores updates out of range instead of failing."""
    sizes = np.array(call.outputs[0].shape[: indices.shape[-1]])
    inside = ((indices >= 0) & (indices < sizes)).all(axis=-1)
    return right(call, indices[inside], updates[inside], shape)


@kernel(NodeType.SPARSE_TO_DENSE)
def first_value_wins(right: Kernel, call: Call, indices: AnyArray, values: AnyArray, shape: AnyArray) -> Any:
    """SPARSE_TO_DENSE keeps the first value of a position instead of the last."""
    return right(call, indices[::-1].copy(), values[::-1].copy(), shape)


@kernel(NodeType.ONE_HOT)
def one_hot_along_the_last(right: Kernel, call: Call, indices: AnyArray, *operands: AnyArray) -> Any:
    """ONE_HOT puts the new dimension last, but reports the right shape."""
    shape = call.outputs[0].shape
    axis = call.attrs.axis % len(shape)
    last = np.moveaxis(right(call, indices, *operands), axis, -1)
    return last.reshape(shape)


@kernel(NodeType.ONE_HOT)
def one_hot_counted_from_the_end(right: Kernel, call: Call, indices: AnyArray, *operands: AnyArray) -> Any:
    """ONE_HOT counts negative indices from the end."""
    depth = call.outputs[0].shape[call.attrs.axis]
    return right(call, np.where(indices < 0, indices + depth, indices), *operands)


@function(indexing.largest, TOP, NodeType.ARGMAX_FUSION)
def ties_won_by_the_last(right: Kernel, x: AnyArray, count: int, axis: int) -> Any:
    """The last of equal elements comes first."""
    return x.shape[axis] - 1 - right(np.flip(x, axis), count, axis)


@function(indexing.largest, TOP, NodeType.ARGMAX_FUSION)
def nan_is_the_least(right: Kernel, x: AnyArray, count: int, axis: int) -> Any:
    """NaN comes last instead of first."""
    return right(np.where(np.isnan(x), -np.inf, x) if x.dtype.kind == "f" else x, count, axis)


@kernel(TOP)
def top_always_sorted(right: Kernel, call: Call, x: AnyArray, k: AnyArray) -> Any:
    """TOPK ignores the attribute sorted."""
    return right(with_attrs(call, sorted=True), x, k)


@kernel(TOP)
def indices_of_the_sorted(right: Kernel, call: Call, x: AnyArray, k: AnyArray) -> Any:
    """TOPK returns the indices in the sorted tensor: 0, 1, 2 ..."""
    values, indices = right(call, x, k)
    shape = [-1 if axis == call.attrs.axis % x.ndim else 1 for axis in range(x.ndim)]
    count = indices.shape[call.attrs.axis]
    return values, np.broadcast_to(np.arange(count).reshape(shape), indices.shape)


@kernel(NodeType.ARGMAX_FUSION)
def index_in_place_of_the_value(right: Kernel, call: Call, x: AnyArray) -> Any:
    """ARGMAX ignores out_max_value."""
    return right(with_attrs(call, out_max_value=False), x)
