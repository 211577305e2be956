"""Reductions: many elements folded into one."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.dims import Dims, unlike
from nnrt_client.onnx_import.operator import onnx_operator, refuse
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
# What is done to the elements before they are summed up, and to the sum.
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
def reduce_by_attribute(call: Call, x: Value, *, axes: tuple[int, ...] = (), keepdims: int = 1) -> Value:
    return _over(call, x, list(axes), bool(keepdims))


@onnx_operator(*_BY_ATTRIBUTE, since=18, doc=_DOC)
@onnx_operator("ReduceSum", since=13, doc=_DOC)
def reduce(
    call: Call, x: Value, axes: Value | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0
) -> Value:
    if axes is not None and axes.ints is None:
        along = _at_run_time(call, x, axes, bool(keepdims))
        return _reduced(call, x, along, tuple(unlike() for _ in range(x.rank)) if keepdims else None, bool(keepdims))
    named = [] if axes is None or axes.ints is None else axes.ints
    if not named and noop_with_empty_axes:
        return _untouched(call, x)
    return _over(call, x, named, bool(keepdims))


def _at_run_time(call: Call, x: Value, axes: Value, keep_dims: bool) -> Value:
    if call.type == "ReduceLogSumExp" or (not keep_dims and not isinstance(axes.dims[0], int)):
        refuse(f"its axes {axes} are known only in a run")
    return axes


def _over(call: Call, x: Value, axes: list[int], keep_dims: bool) -> Value:
    folded = sorted({axis % x.rank for axis in axes} if axes else range(x.rank))
    if not folded:
        return _untouched(call, x)
    if call.type == "ReduceLogSumExp":
        return _log_sum_exp(call, x, folded, keep_dims)
    kept = tuple(1 if at in folded else dim for at, dim in enumerate(x.dims) if keep_dims or at not in folded)
    return _reduced(call, x, np.array(folded, np.int64), kept, keep_dims)


def _untouched(call: Call, x: Value) -> Value:
    """What is folded over no dimension: each element is a fold of its own."""
    before, after = _SUMS.get(call.type, (OperationType.ABS if call.type == "ReduceL2" else None, None))
    return _applied(call, after, _applied(call, before, x))


def _reduced(call: Call, x: Value, axes: Value | Array, dims: Dims | None, keep_dims: bool) -> Value:
    before, after = _SUMS.get(call.type, (None, None))
    if call.type == "ReduceL2" and x.dtype.kind != "f":
        refuse(f"it has the root of {x}; use a floating-point type")
    type_ = _PLAIN.get(call.type, OperationType.REDUCE_SUM)
    # The larger of two truth values is that of the numbers.
    given = call.cast(x, np.dtype(np.int32)) if x.dtype.kind == "b" else _applied(call, before, x)
    y = call.apply(type_, given, axes, keep_dims=keep_dims, dims=dims)
    return call.cast(_applied(call, after, y), x.dtype)


def _applied(call: Call, type: OperationType | None, x: Value) -> Value:
    """A function of each element, if there is one."""
    is_none = type is None or (type is OperationType.ABS and x.dtype.kind == "u")
    return x if is_none or type is None else call.apply(type, x)


def _log_sum_exp(call: Call, x: Value, axes: list[int], keep_dims: bool) -> Value:
    along = np.array(axes, np.int64)
    # Where all is minus infinity, or anything infinity, there is nothing to take away.
    largest = call.apply(OperationType.REDUCE_MAX, x, along, keep_dims=True)
    limit = float(np.finfo(np.float32).max if x.dtype != np.float16 else 65504)
    shift = call.apply(OperationType.CLIP, largest, min=-limit, max=limit)
    powers = call.apply(OperationType.EXP, call.apply(OperationType.SUB, x, shift))
    total = call.apply(OperationType.LOG, call.apply(OperationType.REDUCE_SUM, powers, along, keep_dims=True))
    y = call.apply(OperationType.ADD, total, shift)
    return y if keep_dims else call.squeeze(y, axes)
