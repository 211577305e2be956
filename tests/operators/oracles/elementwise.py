"""Oracles of functions of one element."""

import numpy as np

from nnrt_hdi.enums import Format, NodeType

from .oracle import DTYPES, ORACLES, AnyArray, Attrs, Onnx, Oracle, element_type, oracle


@oracle(NodeType.CAST)
def cast(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    dtype = DTYPES[int(arrays[1].reshape(-1)[0]) - 1]
    return model.op("Cast", "x0", to=element_type(dtype))


def _function(op_type: str) -> Oracle:
    def build(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
        x = arrays[0]
        if x.dtype.kind not in "iu":
            return model.op(op_type, "x0")
        wide = model.op(op_type, model.op("Cast", "x0", to=element_type(np.dtype(np.int64))))
        return model.op("Cast", wide, to=element_type(x.dtype))

    return build


ORACLES[NodeType.SQRT] = _function("Sqrt")
ORACLES[NodeType.ERF] = _function("Erf")
ORACLES[NodeType.LOG] = _function("Log")
ORACLES[NodeType.SIN] = _function("Sin")
ORACLES[NodeType.COS] = _function("Cos")
ORACLES[NodeType.CEIL] = _function("Ceil")
ORACLES[NodeType.FLOOR] = _function("Floor")
ORACLES[NodeType.NEG] = _function("Neg")
ORACLES[NodeType.ABS] = _function("Abs")
ORACLES[NodeType.RECIPROCAL] = _function("Reciprocal")


@oracle(NodeType.ROUND)
def round_(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return model.op("Round" if arrays[0].dtype.kind == "f" else "Identity", "x0")


@oracle(NodeType.RSQRT)
def rsqrt(model: Onnx, _: list[AnyArray], __: Attrs, ___: Format) -> str:
    return model.op("Reciprocal", model.op("Sqrt", "x0"))


@oracle(NodeType.SQUARE)
def square(model: Onnx, _: list[AnyArray], __: Attrs, ___: Format) -> str:
    return model.op("Mul", "x0", "x0")


@oracle(NodeType.EXPFUSION)
def exp(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    def number(name: str, default: float) -> str:
        return model.constant(np.array(attrs.get(name, default), arrays[0].dtype))

    exponent = model.op("Add", model.op("Mul", "x0", number("scale", 1)), number("shift", 0))
    return model.op("Pow", number("base", -1), exponent) if "base" in attrs else model.op("Exp", exponent)


@oracle(NodeType.CLIP)
def clip(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    bounds = (
        model.constant(np.array(attrs[name], arrays[0].dtype)) if name in attrs else "" for name in ("min", "max")
    )
    return model.op("Clip", "x0", *bounds)
