"""Constants, and tensors made of a shape or a range."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder, require_moderate
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.tensor import Array


@onnx_operator("Constant")
def constant(
    op: NodeBuilder,
    *,
    value: Array | None = None,
    value_float: float | None = None,
    value_floats: tuple[float, ...] | None = None,
    value_int: int | None = None,
    value_ints: tuple[int, ...] | None = None,
) -> Value:
    """Constant of the model."""
    if value is not None:
        return op.constant(value)
    given = ((value_float, "f4"), (value_floats, "f4"), (value_int, "i8"), (value_ints, "i8"))
    number, dtype = next((pair for pair in given if pair[0] is not None), (None, ""))
    if number is None:
        refuse("it has no value")
    return op.constant(np.array(number, dtype))


@onnx_operator("ConstantOfShape", since=9)
def constant_of_shape(op: NodeBuilder, shape: Value, *, value: Array | None = None) -> Value:
    """Constant if the shape is known before a run, else FILL."""
    number = np.zeros(1, np.float32) if value is None else value
    if number.size != 1:
        refuse(f"its value has {number.size} elements; give one")
    if shape.shape == (0,):
        return op.constant(number.reshape(()))
    return op.filled(number.reshape(()), number.dtype, shape)


@onnx_operator("Range", since=11)
def range_(op: NodeBuilder, start: Value, limit: Value, delta: Value, *, stash_type: int = 1) -> Value:
    """Constant if all inputs are known before a run; else the indices of a TOP_K of zeros, scaled by MUL and ADD."""
    span = op.apply(OperationType.SUB, limit, start)
    if delta.ints != [1]:
        return _range_by_steps(op, start, span, delta)
    order = op.count_up(op.reshape(span, (1,)))
    numbers = op.apply(OperationType.ADD, op.cast(order, start.dtype), start)
    if limit.elements is not None and start.elements is not None:
        numbers.dims = (limit.elements.item() - start.elements.item(),)
    return numbers


def _range_by_steps(op: NodeBuilder, start: Value, span: Value, delta: Value) -> Value:
    """Return numbers that are delta apart, as many as fit into span."""
    # FLOAT64 holds every count exactly.
    parts = [op.cast(value, np.dtype(np.float64)) for value in (span, delta)]
    count = op.apply(OperationType.CEIL, op.apply(OperationType.DIV, *parts))
    count = op.cast(op.apply(OperationType.MAXIMUM, count, op.number(0, count.dtype)), np.dtype(np.int64))
    order = op.cast(op.count_up(op.reshape(count, (1,))), start.dtype)
    return op.apply(OperationType.ADD, op.apply(OperationType.MUL, order, delta), start)


@onnx_operator("EyeLike", since=9)
def eye_like(op: NodeBuilder, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    """Constant; if a dimension is known only in a run, EQUAL of row and column indices (TOP_K), and CAST."""
    if x.rank != 2:
        refuse(f"it takes the shape of {x}; use a matrix")
    target = x.dtype if dtype is None else op.dtype(dtype)
    if -1 in x.shape:
        rows = op.apply(OperationType.ADD, op.unsqueeze(op.indices(x, 0), [1]), op.number(k, np.dtype(np.int64)))
        return op.cast(op.apply(OperationType.EQUAL, rows, op.indices(x, 1), dims=x.dims), target)
    require_moderate(x.dims)
    return op.constant(np.eye(x.shape[0], x.shape[1], k, target))
