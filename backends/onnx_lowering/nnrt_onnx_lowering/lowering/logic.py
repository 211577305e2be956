"""Comparisons, logic, and choices by a condition."""

from collections.abc import Callable

import numpy as np

from nnrt_hdi.enums import NodeType
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.lowering import Call, lowering
from nnrt_onnx_lowering.lowering.lowering import Function as Lowering
from nnrt_onnx_lowering.value import BOOL, Value

Function = Callable[[Onnx, Value, Value], Value]

COMPARISONS: dict[NodeType, Function] = {
    NodeType.EQUAL: lambda op, a, b: op.Equal(a, b),
    NodeType.NOT_EQUAL: lambda op, a, b: op.Not(op.Equal(a, b)),
    NodeType.GREATER: lambda op, a, b: op.Greater(a, b),
    NodeType.GREATER_EQUAL: lambda op, a, b: op.GreaterOrEqual(a, b),
    NodeType.LESS: lambda op, a, b: op.Less(a, b),
    NodeType.LESS_EQUAL: lambda op, a, b: op.LessOrEqual(a, b),
}


def _comparison(function: Function) -> Lowering:
    """Return the lowering of a comparison, which casts operands to a type that represents both, or to FLOAT64."""

    def lower(op: Onnx, _: Call, a: Value, b: Value) -> Value:
        both = np.result_type(a.dtype, b.dtype)
        return function(op, a.cast(both), b.cast(both))

    return lower


for _node_type, _function in COMPARISONS.items():
    lowering(_node_type, moves=True)(_comparison(_function))


@lowering(NodeType.LOGICAL_AND, moves=True)
def logical_and(op: Onnx, _: Call, a: Value, b: Value) -> Value:
    return op.And(a.cast(BOOL), b.cast(BOOL))


@lowering(NodeType.LOGICAL_OR, moves=True)
def logical_or(op: Onnx, _: Call, a: Value, b: Value) -> Value:
    return op.Or(a.cast(BOOL), b.cast(BOOL))


@lowering(NodeType.LOGICAL_NOT, moves=True)
def logical_not(op: Onnx, _: Call, x: Value) -> Value:
    return op.Not(x.cast(BOOL))


@lowering(NodeType.WHERE, moves=True)
def where(op: Onnx, _: Call, condition: Value, a: Value, b: Value) -> Value:
    return op.Where(condition.cast(BOOL), a, b)


@lowering(NodeType.SELECT, moves=True)
def select(op: Onnx, call: Call, condition: Value, a: Value, b: Value) -> Value:
    """Return a where condition is true, else b; a condition with fewer dimensions selects rows."""
    condition, rank, wanted = condition.cast(BOOL), call.inputs[0].rank, call.outputs[0].rank
    if wanted < rank:
        condition = op.squeeze(condition, range(wanted, rank))
    elif rank:
        condition = op.unsqueeze(condition, range(rank, wanted))
    return op.Where(condition, a, b)


@lowering(NodeType.ASSERT, moves=True)
def assert_(_: Onnx, __: Call, condition: Value, ___: Value) -> Value:
    """Return the condition. ONNX has no such operator: `Assertions` checks condition and data after the run."""
    return condition
