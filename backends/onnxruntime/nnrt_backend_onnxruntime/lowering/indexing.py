"""Elements picked or placed by their index.

ONNX counts negative indices from the end. To NNRt they are errors, so they are made such for ONNX Runtime, too.
"""

import numpy as np

from nnrt_backend_onnxruntime.builder import BOOL, INT64, Onnx, Value
from nnrt_backend_onnxruntime.lowering.lowering import Call, known, lowering
from nnrt_hdi.enums import NodeType
from nnrt_hdi.tensor import UNKNOWN_DIM

INT32 = np.dtype(np.int32)


@lowering(NodeType.GATHER, moves=True)
def gather(op: Onnx, call: Call, x: Value, indices: Value, axis: Value) -> Value:
    """The entries of x along axis that indices name."""
    return op.Gather(x, _refused_if_negative(op, indices), axis=known(axis, "axis")[0] % call.inputs[0].rank)


@lowering(NodeType.GATHER_ND, moves=True)
def gather_nd(op: Onnx, _: Call, x: Value, indices: Value) -> Value:
    """The entries of x at positions in its first dimensions."""
    return op.GatherND(x, _refused_if_negative(op, indices.cast(INT64)))


@lowering(NodeType.SCATTER_ND)
def scatter_nd(op: Onnx, call: Call, indices: Value, updates: Value, shape: Value) -> Value:
    """Updates summed up at their positions; of BOOL their "or"."""
    summed = INT32 if updates.dtype == BOOL else updates.dtype
    return _scattered(op, call, indices, updates.cast(summed), shape, "add").cast(updates.dtype)


@lowering(NodeType.SPARSE_TO_DENSE, moves=True)
def sparse_to_dense(op: Onnx, call: Call, indices: Value, values: Value, sparse_shape: Value) -> Value:
    """A matrix with values at their positions."""
    return _scattered(op, call, indices, values, sparse_shape, "none")


def _scattered(op: Onnx, call: Call, indices: Value, updates: Value, shape: Value, reduction: str) -> Value:
    zeros = op.Expand(op.scalar(0, updates.dtype), op.reshape(shape.cast(INT64), [call.outputs[0].rank]))
    if 0 in call.inputs[0].shape:
        return zeros
    return op.ScatterND(zeros, _refused_if_negative(op, indices.cast(INT64)), updates, reduction=reduction)


@lowering(NodeType.ONE_HOT, moves=True)
def one_hot(op: Onnx, call: Call, indices: Value, depth: Value, on_value: Value, off_value: Value) -> Value:
    """on_value where a position along the new dimension is the index, elsewhere off_value."""
    rank = call.outputs[0].rank
    axis = call.attrs.axis % rank
    count = call.outputs[0].shape[axis]
    if count == UNKNOWN_DIM:
        last = op.reshape(depth.cast(indices.dtype), [])
        numbers = op.range(0, last, 1)
    else:
        numbers = op.constant(np.arange(count, dtype=indices.dtype))
    is_on = op.Equal(op.unsqueeze(indices, [axis]), op.unsqueeze(numbers, range(1, rank - axis)))
    return op.Where(is_on, op.reshape(on_value, []), op.reshape(off_value, []))


@lowering(NodeType.TOPK_FUSION, moves=True)
def top_k(op: Onnx, call: Call, x: Value, k: Value) -> tuple[Value, Value]:
    """The largest elements along axis, the largest first or last, and their indices."""
    axis, count = call.attrs.axis % call.inputs[0].rank, op.reshape(k.cast(INT64), [1])
    values, indices = op.several("TopK", 2, x, count, axis=axis)
    if not call.attrs.sorted:
        # Of equal elements the one with the lower index comes first: so they are put in order by it, then by size.
        indices, _ = op.several("TopK", 2, indices, count, axis=axis, largest=0)
        values, places = op.several("TopK", 2, op.GatherElements(x, indices, axis=axis), count, axis=axis, largest=0)
        indices = op.GatherElements(indices, places, axis=axis)
    return values, indices.cast(INT32)


@lowering(NodeType.ARGMAX_FUSION, moves=True)
def arg_max(op: Onnx, call: Call, x: Value) -> Value:
    """The indices of the largest elements along axis, or the elements."""
    attrs, axis = call.attrs, call.attrs.axis % call.inputs[0].rank
    if attrs.top_k == 1 and attrs.out_max_value:
        return op.ReduceMax(x, op.ints([axis]), keepdims=int(attrs.keep_dims))
    if attrs.top_k == 1:
        return op.ArgMax(x, axis=axis, keepdims=int(attrs.keep_dims)).cast(call.dtype)
    values, indices = op.several("TopK", 2, x, op.ints([attrs.top_k]), axis=axis)
    return values if attrs.out_max_value else indices.cast(call.dtype)


def _refused_if_negative(op: Onnx, indices: Value) -> Value:
    """Indices of which those below 0 are beyond every dimension."""
    if indices.elements is not None and not (indices.elements < 0).any():
        return indices
    return op.Where(op.Less(indices, 0), np.iinfo(indices.dtype).max, indices)
