"""Oracles of arithmetic on two operands."""

from typing import Any

import numpy as np

from nnrt_hdi.enums import EltwiseMode, Format, NodeType

from .oracle import ORACLES, AnyArray, Attrs, Onnx, Oracle, element_type, fused, oracle, per_channel


def _arithmetic(op_type: str, of_bool: str = "", **attributes: int) -> Oracle:
    def build(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
        if arrays[0].dtype == arrays[1].dtype == np.bool_:
            return model.op(of_bool, "x0", "x1")
        dtype, operands = _wide(model, arrays)
        y = model.op(op_type, *operands, **attributes)
        return fused(model, model.op("Cast", y, to=element_type(dtype)), dtype, attrs)

    return build


def _wide(model: Onnx, arrays: list[AnyArray]) -> tuple[np.dtype[Any], list[str]]:
    """Return the result's type, and the operands cast to a type that ONNX Runtime computes.

    Integers are computed as INT64; the cast back to the result's type wraps around.
    """
    dtypes = [array.dtype for array in arrays]
    # A real number and an integer give the real number's type, also if NumPy would choose a wider one.
    dtype = np.result_type(*([dtype for dtype in dtypes if dtype.kind == "f"] or dtypes))
    wide = np.dtype(np.int64) if dtype.kind in "iu" else dtype
    return dtype, [model.op("Cast", f"x{index}", to=element_type(wide)) for index in range(len(arrays))]


ORACLES[NodeType.ADD_FUSION] = _arithmetic("Add", "Or")
ORACLES[NodeType.SUB_FUSION] = _arithmetic("Sub")
ORACLES[NodeType.MUL_FUSION] = _arithmetic("Mul", "And")
ORACLES[NodeType.DIV_FUSION] = _arithmetic("Div")
ORACLES[NodeType.REAL_DIV] = _arithmetic("Div")
ORACLES[NodeType.MAXIMUM] = _arithmetic("Max")
ORACLES[NodeType.MINIMUM] = _arithmetic("Min")
ORACLES[NodeType.MOD] = _arithmetic("Mod", fmod=1)


@oracle(NodeType.SQUARED_DIFFERENCE)
def squared_difference(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    dtype, operands = _wide(model, arrays)
    difference = model.op("Sub", *operands)
    return model.op("Cast", model.op("Mul", difference, difference), to=element_type(dtype))


@oracle(NodeType.POW_FUSION)
def power(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    dtype, (x, y) = _wide(model, arrays)
    wide = np.dtype(np.int64) if dtype.kind in "iu" else dtype
    scaled = model.op("Mul", x, model.constant(np.array(attrs.get("scale", 1), wide)))
    shifted = model.op("Add", scaled, model.constant(np.array(attrs.get("shift", 0), wide)))
    return model.op("Cast", model.op("Pow", shifted, y), to=element_type(dtype))


@oracle(NodeType.ELTWISE)
def eltwise(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    op_type = {EltwiseMode.PROD: "Mul", EltwiseMode.SUM: "Add", EltwiseMode.MAXIMUM: "Max"}
    dtype, operands = _wide(model, arrays)
    y = model.op(op_type[attrs.get("mode", EltwiseMode.PROD)], *operands)
    return model.op("Cast", y, to=element_type(dtype))


@oracle(NodeType.SCALE_FUSION)
def scale(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    dtype, (x, factor, bias) = _wide(model, arrays)
    end = attrs["axis"] % arrays[0].ndim + arrays[1].ndim
    axes = model.constant(np.arange(arrays[1].ndim, arrays[1].ndim + arrays[0].ndim - end))
    product = model.op("Mul", x, model.op("Unsqueeze", factor, axes))
    y = model.op("Add", product, model.op("Unsqueeze", bias, axes))
    return fused(model, model.op("Cast", y, to=element_type(dtype)), dtype, attrs)


@oracle(NodeType.BIAS_ADD)
def bias_add(model: Onnx, arrays: list[AnyArray], _: Attrs, layout: Format) -> str:
    return model.op("Add", "x0", per_channel(model, "x1", arrays[0].ndim, layout))
