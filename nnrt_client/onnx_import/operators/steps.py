"""Steps of caches, picked by indices that a run computes for each entry of a batch."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.shapes.dims import product
from nnrt_client.onnx_import.value import Value


def pick_steps(op: NodeBuilder, x: Value, indices: Value, axis: int) -> Value:
    """Return the steps of x at `indices` [batch, picked], or [1, picked] if all entries of a batch have the same.

    Steps are a dimension of x behind the first one, which is the batch.
    """
    if indices.dims[0] == 1:
        return op.apply(OperationType.GATHER, x, op.squeeze(indices, [0]), np.array(axis))
    places = op.once(("rows", indices, x.dims[: axis + 1]), lambda: _rows(op, x, indices, axis))
    behind = x.dims[axis + 1 :]
    flat = op.reshape(x, (product(x.dims[: axis + 1]), *behind))
    picked = op.apply(OperationType.GATHER, flat, places, np.array(0))
    picked.dims = (*places.dims, *behind)
    return picked


def _rows(op: NodeBuilder, x: Value, indices: Value, axis: int) -> Value:
    """Return the indices of steps among all steps of x, in the order in which they lie."""
    # Number of each row of steps, in the order of x, times the steps in a row.
    rows = op.unsqueeze(op.indices(x, 0), list(range(1, axis)))
    for at in range(1, axis):
        rows = op.apply(OperationType.MUL, rows, op.size(x, at))
        own = op.unsqueeze(op.indices(x, at), list(range(1, axis - at)))
        rows = op.apply(OperationType.ADD, rows, own)
    starts = op.unsqueeze(op.apply(OperationType.MUL, rows, op.size(x, axis)), [-1])
    places = op.apply(OperationType.ADD, starts, op.unsqueeze(indices, list(range(1, axis))))
    places.dims = (*x.dims[:axis], indices.dims[1])
    return places
