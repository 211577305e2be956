"""Reductions of many elements to one."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.shapes.dims import Dims, new_dim
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import Array

_PLAIN = {
    "ReduceMean": OperationType.REDUCE_MEAN,
    "ReduceMax": OperationType.REDUCE_MAX,
    "ReduceMin": OperationType.REDUCE_MIN,
    "ReduceProd": OperationType.REDUCE_PROD,
    "ReduceSum": OperationType.REDUCE_SUM,
    "ReduceL2": OperationType.REDUCE_L2,
}
# Operation on the elements before they are summed, and operation on the sum.
_SUMS: dict[str, tuple[OperationType | None, OperationType | None]] = {
    "ReduceSumSquare": (OperationType.SQUARE, None),
    "ReduceL1": (OperationType.ABS, None),
    "ReduceLogSum": (None, OperationType.LOG),
}
_DOC = {name: f"{kind.name}." for name, kind in _PLAIN.items()} | {
    name: ", ".join(kind.name for kind in (before, OperationType.REDUCE_SUM, after) if kind) + "."
    for name, (before, after) in _SUMS.items()
}
_DOC["ReduceLogSumExp"] = "REDUCE_MAX, SUB, EXP, REDUCE_SUM, LOG and ADD, which never overflows."
_BY_ATTRIBUTE = [name for name in _DOC if name != "ReduceSum"]


@onnx_operator(*_BY_ATTRIBUTE, until=17, doc=_DOC)
@onnx_operator("ReduceSum", until=12, doc=_DOC)
def reduce_by_attribute(op: NodeBuilder, x: Value, *, axes: tuple[int, ...] = (), keepdims: int = 1) -> Value:
    return _reduce_over(op, x, list(axes), bool(keepdims))


@onnx_operator(*_BY_ATTRIBUTE, since=18, doc=_DOC)
@onnx_operator("ReduceSum", since=13, doc=_DOC)
def reduce(
    op: NodeBuilder, x: Value, axes: Value | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    if axes is not None and axes.ints is None:
        along = _axes_of_run(op, x, axes, bool(keepdims))
        return _reduce(op, x, along, tuple(new_dim() for _ in range(x.rank)) if keepdims else None, bool(keepdims))
    named = [] if axes is None or axes.ints is None else axes.ints
    if not named and noop_with_empty_axes:
        return _reduce_nothing(op, x)
    return _reduce_over(op, x, named, bool(keepdims))


def _axes_of_run(op: NodeBuilder, x: Value, axes: Value, keep_dims: bool) -> Value:
    if op.type == "ReduceLogSumExp" or (not keep_dims and not isinstance(axes.dims[0], int)):
        refuse(f"its axes {axes} are known only in a run")
    return axes


def _reduce_over(op: NodeBuilder, x: Value, axes: list[int], keep_dims: bool) -> Value:
    folded = sorted({axis % x.rank for axis in axes} if axes else range(x.rank))
    if not folded:
        return _reduce_nothing(op, x)
    if op.type == "ReduceLogSumExp":
        return _log_sum_exp(op, x, folded, keep_dims)
    kept = tuple(1 if at in folded else dim for at, dim in enumerate(x.dims) if keep_dims or at not in folded)
    return _reduce(op, x, np.array(folded, np.int64), kept, keep_dims)


def _reduce_nothing(op: NodeBuilder, x: Value) -> Value:
    """Reduce over no dimension: each element is reduced alone."""
    before, after = _SUMS.get(op.type, (OperationType.ABS if op.type == "ReduceL2" else None, None))
    return _apply_if_any(op, after, _apply_if_any(op, before, x))


def _reduce(op: NodeBuilder, x: Value, axes: Value | Array, dims: Dims | None, keep_dims: bool) -> Value:
    before, after = _SUMS.get(op.type, (None, None))
    if op.type == "ReduceL2" and x.dtype.kind != "f":
        refuse(f"it has the root of {x}; use a floating-point type")
    type_ = _PLAIN.get(op.type, OperationType.REDUCE_SUM)
    # Booleans are reduced as the numbers 0 and 1.
    given = op.cast(x, np.dtype(np.int32)) if x.dtype.kind == "b" else _apply_if_any(op, before, x)
    y = op.apply(type_, given, axes, keep_dims=keep_dims, dims=dims)
    return op.cast(_apply_if_any(op, after, y), x.dtype)


def _apply_if_any(op: NodeBuilder, type: OperationType | None, x: Value) -> Value:
    """Apply an elementwise operation, if there is one. ABS of unsigned integers is left out."""
    is_none = type is None or (type is OperationType.ABS and x.dtype.kind == "u")
    return x if is_none or type is None else op.apply(type, x)


def _log_sum_exp(op: NodeBuilder, x: Value, axes: list[int], keep_dims: bool) -> Value:
    along = np.array(axes, np.int64)
    # The shift must be finite, also if the largest element is infinite: infinity - infinity is NaN.
    largest = op.apply(OperationType.REDUCE_MAX, x, along, keep_dims=True)
    limit = float(np.finfo(np.float32).max if x.dtype != np.float16 else 65504)
    shift = op.apply(OperationType.CLIP, largest, min=-limit, max=limit)
    powers = op.apply(OperationType.EXP, op.apply(OperationType.SUB, x, shift))
    total = op.apply(OperationType.LOG, op.apply(OperationType.REDUCE_SUM, powers, along, keep_dims=True))
    y = op.apply(OperationType.ADD, total, shift)
    return y if keep_dims else op.squeeze(y, axes)
