"""Data movement."""

import numpy as np
from onnx import TensorProto

from nnrt_hdi.enums import Format, NodeType, PaddingMode

from .oracle import AnyArray, Attrs, Onnx, oracle


@oracle(NodeType.RESHAPE)
def reshape(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return model.op("Reshape", "x0", model.constant(arrays[1].astype(np.int64)))


@oracle(NodeType.TRANSPOSE)
def transpose(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return model.op("Transpose", "x0", perm=[int(axis) % arrays[0].ndim for axis in arrays[1]])


@oracle(NodeType.CONCAT)
def concat(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    return model.op("Concat", *(f"x{index}" for index in range(len(arrays))), axis=attrs.get("axis", 0))


@oracle(NodeType.PAD_FUSION)
def pad(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    mode = attrs.get("padding_mode", PaddingMode.CONSTANT)
    pads = model.constant(arrays[1].T.reshape(-1).astype(np.int64))
    value = model.constant(np.array(attrs.get("constant_value", 0.0), arrays[0].dtype))
    if mode == PaddingMode.CONSTANT:
        return model.op("Pad", "x0", pads, value)
    return model.op("Pad", "x0", pads, mode="reflect")


@oracle(NodeType.SQUEEZE)
def squeeze(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    named = attrs.get("axis") or range(arrays[0].ndim)
    axes = [axis for axis in named if arrays[0].shape[axis] == 1]
    return model.op("Squeeze", "x0", model.constant(np.array(axes, np.int64)))


@oracle(NodeType.UNSQUEEZE)
def unsqueeze(model: Onnx, _: list[AnyArray], attrs: Attrs, __: Format) -> str:
    return model.op("Unsqueeze", "x0", model.constant(np.array(attrs["axis"])))


@oracle(NodeType.SHAPE)
def shape_of(model: Onnx, _: list[AnyArray], __: Attrs, ___: Format) -> str:
    return model.op("Cast", model.op("Shape", "x0"), to=TensorProto.INT32)
