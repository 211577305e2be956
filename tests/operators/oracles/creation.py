"""Oracles of operators that create tensors from a shape or a range."""

import numpy as np
from onnx import numpy_helper

from nnrt_hdi.enums import Format, NodeType

from .oracle import DTYPES, AnyArray, Attrs, Onnx, element_type, oracle


@oracle(NodeType.FILL)
def fill(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    value = model.op("Reshape", "x0", model.constant(np.array([], np.int64)))
    return model.op("Expand", value, model.constant(arrays[1].astype(np.int64)))


@oracle(NodeType.CONSTANT_OF_SHAPE)
def constant_of_shape(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    number = attrs.get("data_type", 0)
    value = np.array(attrs.get("value", (0,)), DTYPES[number - 1] if number else np.float32)
    shape = model.constant(arrays[0].astype(np.int64))
    return model.op("ConstantOfShape", shape, value=numpy_helper.from_array(value))


@oracle(NodeType.RANGE)
def range_(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    named = (("start", 0), ("limit", 0), ("delta", 1))
    y = model.op("Range", *(model.constant(np.array(attrs.get(name, default))) for name, default in named))
    return model.op("Cast", y, to=element_type(arrays[0].dtype))
