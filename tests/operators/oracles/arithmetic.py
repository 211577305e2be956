"""Arithmetic on two operands."""

import numpy as np

from nnrt_hdi.enums import Format, NodeType

from .oracle import ORACLES, AnyArray, Attrs, Onnx, Oracle, element_type, fused, oracle


def _arithmetic(op_type: str, of_bool: str) -> Oracle:
    def build(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
        if arrays[0].dtype == arrays[1].dtype == np.bool_:
            return model.op(of_bool, "x0", "x1")
        dtype = np.result_type(*arrays)
        # ONNX Runtime has no narrow integers here: those wrap around on the way back.
        wide = np.dtype(np.int64) if dtype.kind in "iu" else dtype
        y = model.op(op_type, *(model.op("Cast", f"x{i}", to=element_type(wide)) for i in range(2)))
        return fused(model, model.op("Cast", y, to=element_type(dtype)), dtype, attrs)

    return build


ORACLES[NodeType.ADD_FUSION] = _arithmetic("Add", "Or")
ORACLES[NodeType.SUB_FUSION] = _arithmetic("Sub", "")
ORACLES[NodeType.MUL_FUSION] = _arithmetic("Mul", "And")
ORACLES[NodeType.DIV_FUSION] = _arithmetic("Div", "")


def _per_channel(model: Onnx, name: str, rank: int, layout: Format) -> str:
    """A vector as [C, 1, 1] where channels are dimension 1; as it is where they are last."""
    if layout is not Format.NCHW:
        return name
    return model.op("Reshape", name, model.constant(np.array([-1] + [1] * (rank - 2))))


@oracle(NodeType.BIAS_ADD)
def bias_add(model: Onnx, arrays: list[AnyArray], _: Attrs, layout: Format) -> str:
    return model.op("Add", "x0", _per_channel(model, "x1", arrays[0].ndim, layout))
