"""Padding of tensors, by widths that may be known only in a run."""

import math
from collections.abc import Sequence

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder, require_moderate
from nnrt_client.onnx_import.operators.slicing import FARTHEST, slice_between
from nnrt_client.onnx_import.shapes.dims import Number, new_dim
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.enums import PaddingMode
from nnrt_hdi.tensor import Array


def known_number(value: Value | None) -> float | None:
    """Return the number in a value, 0 without a value, or None if it is known only in a run or not exact in FLOAT32."""
    if value is None:
        return 0
    if value.array is None or value.array.size != 1:
        return None
    number: float = value.array.reshape(-1)[0].item()
    return number if math.isnan(number) or float(np.float32(number)) == number else None


def pad_in_run(op: NodeBuilder, x: Value, pads: Value, axes: Sequence[int] | None, mode: str, number: float) -> Value:
    """Pad x by widths that are known only in a run. They must not be negative."""
    count = x.rank if axes is None else len(axes)
    pairs = op.transpose(op.reshape(pads, (2, count)), [1, 0])
    if mode in ("edge", "wrap"):
        for at, axis in enumerate(range(x.rank) if axes is None else axes):
            before, behind = (
                op.apply(OperationType.GATHER, op.reshape(pads, (2 * count,)), np.array([place]), np.array(0))
                for place in (at, at + count)
            )
            x = _repeat_in_run(op, x, axis, before, behind, mode, new_dim())
        return x
    if axes is not None:
        # Dimensions without padding use the row of zeros at index 0.
        rows = op.apply(OperationType.CONCAT, np.zeros((1, 2), pads.dtype), pairs, axis=0)
        order = [axes.index(at) + 1 if at in axes else 0 for at in range(x.rank)]
        pairs = op.apply(OperationType.GATHER, rows, np.array(order), np.array(0))
    if mode == "reflect":
        return op.apply(OperationType.PAD, x, pairs, padding_mode=PaddingMode.REFLECT)
    return op.apply(OperationType.PAD, x, pairs, constant_value=float(number))


def pad_by(op: NodeBuilder, x: Value, pads: Sequence[int], mode: str, value: float) -> Value:
    if len(pads) != 2 * x.rank:
        refuse(f"its pads are {list(pads)}, but x is {x}")
    pairs = np.reshape(np.array(pads, np.int64), (2, -1)).T
    if mode not in ("constant", "reflect", "edge", "wrap"):
        refuse(f"its mode is {mode!r}; use 'constant', 'reflect', 'edge' or 'wrap'")
    if pairs.min(initial=0) < 0:
        taken = np.minimum(pairs, 0)
        ends = [FARTHEST if not behind else int(behind) for behind in taken[:, 1]]
        x = slice_between(op, x, (-taken[:, 0]).tolist(), ends, range(x.rank), [1] * x.rank)
        pairs = np.maximum(pairs, 0)
    if not pairs.any():
        return x
    if mode in ("edge", "wrap"):
        return _repeat(op, x, pairs, mode)
    kind = PaddingMode.CONSTANT if mode == "constant" else PaddingMode.REFLECT
    constant = {"constant_value": float(value)} if mode == "constant" else {}
    dims = tuple(dim if not pair.any() else dim + int(pair.sum()) for dim, pair in zip(x.dims, pairs, strict=True))
    return op.apply(OperationType.PAD, x, pairs, padding_mode=kind, dims=dims, quant=op.quant, **constant)


def _repeat(op: NodeBuilder, x: Value, pairs: Array, mode: str) -> Value:
    """Pad x with copies of its edge (mode 'edge'), or with the elements at its opposite end (mode 'wrap')."""
    for axis, (before, behind) in enumerate(pairs.tolist()):
        size = x.shape[axis]
        if not (before or behind):
            continue
        if size == -1:
            first, last = (op.constant(np.array([border])) for border in (before, behind))
            x = _repeat_in_run(op, x, axis, first, last, mode, x.dims[axis] + before + behind)
            continue
        require_moderate((size, before + behind))
        places = np.arange(-before, size + behind)
        places = places % size if mode == "wrap" else np.clip(places, 0, size - 1)
        x = op.apply(OperationType.GATHER, x, places, np.array(axis, np.int64))
    return x


def _repeat_in_run(op: NodeBuilder, x: Value, axis: int, before: Value, behind: Value, mode: str, dim: Number) -> Value:
    """Pad one dimension of x as `_repeat` does, by widths that are known only in a run."""
    size = op.reshape(op.size(x, axis), (1,))
    count = op.apply(OperationType.ADD, op.apply(OperationType.ADD, size, before), behind)
    places = op.apply(OperationType.SUB, op.count_up(count), before)
    if mode == "edge":
        last = op.apply(OperationType.SUB, size, op.number(1, size.dtype))
        places = op.apply(OperationType.MAXIMUM, places, op.number(0, size.dtype))
        places = op.apply(OperationType.MINIMUM, places, last)
    else:
        # MOD is applied twice, because MOD of a negative number is negative.
        places = op.apply(OperationType.MOD, places, size)
        places = op.apply(OperationType.MOD, op.apply(OperationType.ADD, places, size), size)
    dims = (*x.dims[:axis], dim, *x.dims[axis + 1 :])
    return op.apply(OperationType.GATHER, x, places, np.array(axis, np.int64), dims=dims)
