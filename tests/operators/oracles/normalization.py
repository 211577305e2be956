"""Normalizations."""

from nnrt_hdi.enums import Format, NodeType

from .oracle import AnyArray, Attrs, Onnx, oracle


@oracle(NodeType.FUSED_BATCH_NORM)
def batch_norm(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    rank = arrays[0].ndim
    epsilon = attrs.get("epsilon", 1e-4)
    if layout is Format.NCHW or rank == 2:
        return model.op("BatchNormalization", "x0", "x1", "x2", "x3", "x4", epsilon=epsilon)
    there = model.op("Transpose", "x0", perm=[0, rank - 1, *range(1, rank - 1)])
    y = model.op("BatchNormalization", there, "x1", "x2", "x3", "x4", epsilon=epsilon)
    return model.op("Transpose", y, perm=[0, *range(2, rank), 1])


@oracle(NodeType.SOFTMAX)
def softmax(model: Onnx, _: list[AnyArray], attrs: Attrs, __: Format) -> str:
    return model.op("Softmax", "x0", axis=(attrs["axis"] or (-1,))[0])
