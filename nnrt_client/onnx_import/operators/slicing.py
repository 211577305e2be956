"""Slices of tensors, between positions that may be known only in a run."""

from collections.abc import Sequence

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.shapes.dims import new_dim
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import Array

# Largest position of STRIDED_SLICE. Larger ones mean the end of a dimension too.
FARTHEST = 2**31 - 1


def slice_between(
    op: NodeBuilder,
    x: Value,
    starts: Sequence[int] | Value,
    ends: Sequence[int] | Value,
    axes: Sequence[int],
    steps: Sequence[int] | Value,
) -> Value:
    axes = [axis % x.rank for axis in axes]
    count = max(axes) + 1
    whole = sum(1 << at for at in range(count) if at not in axes)
    y = op.apply(
        OperationType.STRIDED_SLICE,
        x,
        _positions(op, starts, axes, count),
        _positions(op, ends, axes, count),
        _positions(op, steps, axes, count, 1),
        begin_mask=whole,
        end_mask=whole,
    )
    # The length of a slice of an unknown dimension is unknown too.
    y.dims = tuple(dim if isinstance(dim, int) or at not in axes else new_dim() for at, dim in enumerate(y.dims))
    return y


def _positions(
    op: NodeBuilder, given: Sequence[int] | Value, axes: Sequence[int], count: int, default: int = 0
) -> Array | Value:
    """Return a position for each of the first `count` dimensions, `default` for those that are not sliced."""
    if isinstance(given, Value):
        if list(axes) == list(range(count)):
            return given
        # Dimensions that are not sliced use the default at index 0.
        padded = op.apply(OperationType.CONCAT, np.full(1, default, given.dtype), given)
        order = [axes.index(at) + 1 if at in axes else 0 for at in range(count)]
        return op.apply(OperationType.GATHER, padded, np.array(order, np.int64), np.array(0, np.int64))
    positions = np.full(count, default, np.int64)
    positions[list(axes)] = np.clip(np.array(given, dtype=object).astype(np.float64), -FARTHEST, FARTHEST)
    return positions


def split_in_run(op: NodeBuilder, x: Value, axis: int, sizes: Value) -> tuple[Value, ...]:
    """Split x into successive parts whose sizes are known only in a run."""
    parts = []
    start: Value = op.constant(np.zeros(1, np.int64))
    for at in range(len(op.outputs)):
        size = op.apply(OperationType.GATHER, sizes, np.array([at]), np.array(0))
        end = op.apply(OperationType.ADD, start, size)
        parts.append(slice_between(op, x, start, end, [axis], [1]))
        start = end
    return tuple(parts)
