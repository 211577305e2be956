"""Oracles of comparisons, logic and selections."""

import numpy as np
from onnx import TensorProto

from nnrt_hdi.enums import Format, NodeType

from .oracle import ORACLES, AnyArray, Attrs, Onnx, Oracle, element_type, oracle


def _comparison(op_type: str) -> Oracle:
    def build(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
        both = element_type(np.result_type(*arrays))
        return model.op(op_type, model.op("Cast", "x0", to=both), model.op("Cast", "x1", to=both))

    return build


def _logic(op_type: str) -> Oracle:
    def build(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
        return model.op(op_type, *(_truth(model, f"x{index}") for index in range(len(arrays))))

    return build


def _truth(model: Onnx, name: str) -> str:
    return model.op("Cast", name, to=TensorProto.BOOL)


ORACLES[NodeType.EQUAL] = _comparison("Equal")
ORACLES[NodeType.GREATER] = _comparison("Greater")
ORACLES[NodeType.GREATER_EQUAL] = _comparison("GreaterOrEqual")
ORACLES[NodeType.LESS] = _comparison("Less")
ORACLES[NodeType.LESS_EQUAL] = _comparison("LessOrEqual")
ORACLES[NodeType.LOGICAL_AND] = _logic("And")
ORACLES[NodeType.LOGICAL_OR] = _logic("Or")
ORACLES[NodeType.LOGICAL_NOT] = _logic("Not")


@oracle(NodeType.NOT_EQUAL)
def not_equal(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    name = ORACLES[NodeType.EQUAL](model, arrays, attrs, layout)
    assert isinstance(name, str)
    return model.op("Not", name)


@oracle(NodeType.WHERE)
def where(model: Onnx, _: list[AnyArray], __: Attrs, ___: Format) -> str:
    return model.op("Where", _truth(model, "x0"), "x1", "x2")


@oracle(NodeType.SELECT)
def select(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    """Build a selection. A vector of conditions selects rows, so it gets dimensions of 1 after its own."""
    condition, a = arrays[0], arrays[1]
    shape = [-1, *[1] * (a.ndim - 1)] if condition.ndim == 1 and a.ndim > 0 else list(condition.shape[: a.ndim])
    reshaped = model.op("Reshape", _truth(model, "x0"), model.constant(np.array(shape, np.int64)))
    return model.op("Where", reshaped, "x1", "x2")


@oracle(NodeType.ASSERT)
def assert_(model: Onnx, _: list[AnyArray], __: Attrs, ___: Format) -> str:
    return model.op("Identity", "x0")
