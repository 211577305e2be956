"""Elements read or written by their index.

In ONNX negative indices count from the end. In NNRt they are errors, so the model turns them into indices that ONNX
Runtime refuses.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from nnrt_hdi.enums import NodeType
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.lowering import Call, Size, known_values, lowering, product
from nnrt_onnx_lowering.lowering.shape import FAR
from nnrt_onnx_lowering.value import BOOL, FLOAT32, INT64, Value

INT32, UINT64, HALF = np.dtype(np.int32), np.dtype(np.uint64), np.dtype(np.float16)
# For so many floats and more, making keys takes longer than a search without keys.
_MANY = 1 << 16


@lowering(NodeType.GATHER, moves=True)
def gather(op: Onnx, call: Call, x: Value, indices: Value, axis: Value) -> Value:
    """Return the entries of x along axis at the given indices."""
    return op.Gather(x, _replace_negative(op, indices), axis=known_values(axis, "axis")[0] % call.inputs[0].rank)


@lowering(NodeType.GATHER_ND, moves=True)
def gather_nd(op: Onnx, _: Call, x: Value, indices: Value) -> Value:
    """Return the entries of x at positions in its first dimensions."""
    return op.GatherND(x, _replace_negative(op, indices.cast(INT64)))


@lowering(NodeType.SCATTER_ND)
def scatter_nd(op: Onnx, call: Call, indices: Value, updates: Value, shape: Value) -> Value:
    """Return the sums of the updates at each position, for BOOL the "or".

    FLOAT16 is summed in FLOAT32: ONNX Runtime's CPU kernel refuses FLOAT16, and only in a run.
    """
    summed = {BOOL: INT32, HALF: FLOAT32}.get(updates.dtype, updates.dtype)
    return _scattered(op, call, indices, updates.cast(summed), shape, "add").cast(updates.dtype)


@lowering(NodeType.SPARSE_TO_DENSE, moves=True)
def sparse_to_dense(op: Onnx, call: Call, indices: Value, values: Value, sparse_shape: Value) -> Value:
    """Return a matrix with the values at their positions; of several values at one position the last."""
    return _scattered(op, call, indices, values, sparse_shape, "none")


def _scattered(op: Onnx, call: Call, indices: Value, updates: Value, shape: Value, reduction: str) -> Value:
    """Return zeros with the updates at their positions, computed on a flattened tensor.

    ONNX Runtime's ScatterND works in parallel and loses updates of equal positions. ScatterElements works in order.
    """
    depth = 2 if call.node_type is NodeType.SPARSE_TO_DENSE else call.inputs[0].shape[-1]
    shape = op.reshape(shape.cast(INT64), [call.outputs[0].rank])
    sizes = [
        op.Gather(shape, np.array([axis])) if dim == UNKNOWN_DIM else dim
        for axis, dim in enumerate(call.outputs[0].shape)
    ]
    places, width = product(sizes[:depth]), product(sizes[depth:])
    count = product([op.size(indices, axis) for axis in range(call.inputs[0].rank - 1)])
    rows = _rows(op, op.reshape(indices.cast(INT64), [count, depth]), sizes[:depth])
    rows = op.Expand(rows, op.vector([count, width]))
    zeros = op.Expand(op.scalar(0, updates.dtype), op.vector([places, width]))
    updates = op.reshape(updates, [count, width])
    return op.reshape(op.ScatterElements(zeros, rows, updates, axis=0, reduction=reduction), sizes)


def _rows(op: Onnx, positions: Value, sizes: Sequence[Size]) -> Value:
    """Flatten positions [count, dimensions] to indices [count, 1]; one out of bounds becomes INT64's maximum."""
    row: Value | None = None
    outside: Value | None = None
    for axis, size in enumerate(sizes):
        index = op.Gather(positions, np.array([axis]), axis=1)
        row = index if row is None else row * size + index
        is_outside = op.Or(op.Less(index, 0), op.GreaterOrEqual(index, size))
        outside = is_outside if outside is None else op.Or(outside, is_outside)
    assert row is not None and outside is not None
    return op.Where(outside, np.iinfo(INT64).max, row)


@lowering(NodeType.ONE_HOT, moves=True)
def one_hot(op: Onnx, call: Call, indices: Value, depth: Value, on_value: Value, off_value: Value) -> Value:
    """Return on_value where the position along the new dimension equals the index, else off_value."""
    rank = call.outputs[0].rank
    axis = call.attrs.axis % rank
    numbers = op.range(0, op.reshape(depth.cast(indices.dtype), []), 1)
    is_on = op.Equal(op.unsqueeze(indices, [axis]), op.unsqueeze(numbers, range(1, rank - axis)))
    return op.Where(is_on, op.reshape(on_value, []), op.reshape(off_value, []))


@lowering(NodeType.TOPK_FUSION)
def top_k(op: Onnx, call: Call, x: Value, k: Value) -> tuple[Value, Value]:
    """Return the largest elements along axis, the largest first or last, and their indices."""
    axis, count = call.attrs.axis % call.inputs[0].rank, op.reshape(k.cast(INT64), [1])
    keys = comparable(op, x)
    _, indices = op.multi_output("TopK", 2, keys, count, axis=axis)
    if not call.attrs.sorted:
        # Sorts by index first, then by size, so that equal elements keep the order of their indices.
        indices, _ = op.multi_output("TopK", 2, indices, count, axis=axis, largest=0)
        keys = op.GatherElements(keys, indices, axis=axis)
        _, places = op.multi_output("TopK", 2, keys, count, axis=axis, largest=0)
        indices = op.GatherElements(indices, places, axis=axis)
    return op.GatherElements(x, indices, axis=axis), indices.cast(INT32)


@lowering(NodeType.ARGMAX_FUSION)
def arg_max(op: Onnx, call: Call, x: Value) -> Value:
    """Return the indices of the largest elements along axis, or with `out_max_value` these elements."""
    attrs, axis = call.attrs, call.attrs.axis % call.inputs[0].rank
    keeps_axis = attrs.keep_dims or attrs.top_k > 1
    if attrs.top_k > 1:
        _, indices = op.multi_output("TopK", 2, comparable(op, x), op.ints([attrs.top_k]), axis=axis)
    else:
        indices = _first_largest(op, x, call.inputs[0], axis, int(keeps_axis or attrs.out_max_value))
    if not attrs.out_max_value:
        return indices.cast(call.outputs[0].numpy_dtype)
    y = op.GatherElements(x, indices, axis=axis)
    return y if keeps_axis else op.Squeeze(y, op.ints([axis]))


def _first_largest(op: Onnx, x: Value, spec: TensorSpec, axis: int, keep_dims: int) -> Value:
    """Return the index of the largest element along axis, the first one of several.

    `comparable` makes keys, which the search needs if an element is NaN. Making them costs as much as the search. So a
    large tensor of floats is searched with keys only if the sum of its elements is NaN. Compiled models have no
    branches: instead, Slice passes all or no entries of the first dimension to the search with keys.
    """
    if x.dtype.kind != "f" or axis == 0 or prod(map(_expected, spec.shape)) < _MANY:
        return op.ArgMax(comparable(op, x), axis=axis, keepdims=keep_dims)
    x = op.plain(x)
    is_doubtful = op.IsNaN(op.ReduceSum(x, keepdims=0))
    doubtful = op.Where(is_doubtful, op.ints([FAR]), op.ints([0]))
    first, behind, along = op.ints([0]), op.ints([FAR]), op.ints([0])
    by_keys = op.ArgMax(comparable(op, op.Slice(x, first, doubtful, along)), axis=axis, keepdims=keep_dims)
    as_they_are = op.Slice(op.ArgMax(x, axis=axis, keepdims=keep_dims), doubtful, behind, along)
    return op.Concat(by_keys, as_they_are, axis=0)


def _expected(dim: int) -> int:
    """Return a dimension, or a guess where only a run knows it."""
    return 256 if dim == UNKNOWN_DIM else dim


def comparable(op: Onnx, x: Value) -> Value:
    """Return keys ordered like the elements: NaN counts as the largest; UINT64 becomes INT64, which has kernels."""
    if x.dtype.kind == "f":
        return op.Where(op.IsNaN(x), np.inf, op.Min(x, float(np.finfo(x.dtype).max)))
    if x.dtype == UINT64:
        return op.BitwiseXor(x.cast(INT64), np.iinfo(INT64).min)
    return x


def _replace_negative(op: Onnx, indices: Value) -> Value:
    """Replace negative indices by a number beyond every dimension, which ONNX Runtime refuses."""
    if indices.elements is not None and not (indices.elements < 0).any():
        return indices
    return op.Where(op.Less(indices, 0), np.iinfo(indices.dtype).max, indices)
