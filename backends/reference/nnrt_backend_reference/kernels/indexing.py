"""Elements read or written by their index."""

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, Call, kernel
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ops.operands import normalized_axis
from nnrt_hdi.tensor import Shape


@kernel(NodeType.GATHER)
def gather(call: Call, x: AnyArray, indices: AnyArray, axis: AnyArray) -> AnyArray:
    """Return the entries of x along axis at the given indices."""
    at = normalized_axis(int(axis.reshape(())), x.ndim)
    require_inside(indices, x.shape[at])
    return np.take(x, indices, axis=at)


@kernel(NodeType.GATHER_ND)
def gather_nd(_: Call, x: AnyArray, indices: AnyArray) -> AnyArray:
    """Return the entries of x at positions in its first dimensions."""
    return x[positions(indices, x.shape)]


@kernel(NodeType.SCATTER_ND)
def scatter_nd(call: Call, indices: AnyArray, updates: AnyArray, _: AnyArray) -> AnyArray:
    """Return the sums of the updates at each position. In numpy the sum of BOOL is "or"."""
    y = np.zeros(call.outputs[0].shape, call.dtype)
    np.add.at(y, positions(indices, y.shape), updates.astype(y.dtype, copy=False))
    return y


@kernel(NodeType.SPARSE_TO_DENSE)
def sparse_to_dense(call: Call, indices: AnyArray, values: AnyArray, _: AnyArray) -> AnyArray:
    """Return a matrix with the values at their positions; of several values at one position the last.

    numpy keeps the last in memory order, so operands are made contiguous.
    """
    y = np.zeros(call.outputs[0].shape, values.dtype)
    y[positions(np.ascontiguousarray(indices), y.shape)] = np.ascontiguousarray(values)
    return y


@kernel(NodeType.ONE_HOT)
def one_hot(call: Call, indices: AnyArray, _: AnyArray, on_value: AnyArray, off_value: AnyArray) -> AnyArray:
    """Return on_value where the position along the new dimension equals the index, else off_value."""
    axis = call.attrs.axis
    count = call.outputs[0].shape[axis]
    numbers = np.arange(count).reshape([count, *[1] * (indices.ndim - axis % (indices.ndim + 1))])
    return np.where(np.expand_dims(indices, axis) == numbers, on_value.reshape(()), off_value.reshape(()))


@kernel(NodeType.TOPK_FUSION)
def top_k(call: Call, x: AnyArray, _: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Return the largest elements along axis, and their indices."""
    axis = call.attrs.axis
    indices = largest(x, call.outputs[0].shape[axis], axis)
    if not call.attrs.sorted:
        indices = np.sort(indices, axis)  # So that the first of equal elements comes first.
        order = np.argsort(np.take_along_axis(x, indices, axis), axis, kind="stable")
        indices = np.take_along_axis(indices, order, axis)
    return np.take_along_axis(x, indices, axis), indices


@kernel(NodeType.ARGMAX_FUSION)
def arg_max(call: Call, x: AnyArray) -> AnyArray:
    """Return the indices of the largest elements along axis, or with `out_max_value` these elements."""
    axis = call.attrs.axis
    indices = largest(x, call.attrs.top_k, axis)
    y = np.take_along_axis(x, indices, axis) if call.attrs.out_max_value else indices
    return y.reshape(call.outputs[0].shape)


def largest(x: AnyArray, count: int, axis: int) -> AnyArray:
    """Return the indices of the largest elements along axis, the largest first; of equal ones the first."""
    if count == 1:
        return np.expand_dims(np.argmax(x, axis), axis)
    # Sorts backwards and reverses the order, so that equal elements keep theirs.
    order = np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    picked: AnyArray = x.shape[axis] - 1 - order.take(range(count), axis)
    return picked


def positions(indices: AnyArray, shape: Shape) -> tuple[AnyArray, ...]:
    """Return positions in the first dimensions of a shape, in numpy's form.

    Raises:
        InvalidParameter: A position is out of bounds.
    """
    require_inside(indices, np.array(shape[: indices.shape[-1]]))
    return tuple(np.moveaxis(indices, -1, 0))


def require_inside(indices: AnyArray, sizes: int | AnyArray) -> None:
    """Raise InvalidParameter for an index outside of 0..size - 1."""
    outside = (indices < 0) | (indices >= sizes)
    if outside.any():
        at = np.unravel_index(np.argmax(outside), outside.shape)
        size = np.broadcast_to(sizes, indices.shape)[at]
        place = f"indices[{', '.join(map(str, at))}]" if at else "indices"
        right = f"use 0..{size - 1}" if size else "there is nothing to pick"
        raise InvalidParameter(f"{place} is {indices[at]} in a dimension of {size} elements; {right}")
