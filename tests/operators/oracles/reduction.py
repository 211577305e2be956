"""Oracles of reductions."""

import numpy as np
from onnx import TensorProto

from nnrt_hdi.enums import Format, NodeType, ReduceMode

from .oracle import AnyArray, Attrs, Onnx, element_type, oracle

_REDUCTIONS = {
    ReduceMode.MEAN: "ReduceMean",
    ReduceMode.MAX: "ReduceMax",
    ReduceMode.MIN: "ReduceMin",
    ReduceMode.PROD: "ReduceProd",
    ReduceMode.SUM: "ReduceSum",
    ReduceMode.SUM_SQUARE: "ReduceSumSquare",
    ReduceMode.ASUM: "ReduceL1",
    ReduceMode.ALL: "ReduceMin",
    ReduceMode.L2: "ReduceL2",
}


@oracle(NodeType.REDUCE_FUSION)
def reduce(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    x, axes = arrays[0], arrays[1].reshape(-1).astype(np.int64)
    if attrs.get("reduce_to_end"):
        axes = np.arange(axes[0] % x.ndim, x.ndim)
    mode = attrs.get("mode", ReduceMode.MEAN)
    name = "x0"
    if mode == ReduceMode.ALL:
        zero = model.constant(np.array(0, x.dtype))
        true = name if x.dtype == np.bool_ else model.op("Not", model.op("Equal", "x0", zero))
        name = model.op("Cast", true, to=TensorProto.INT32)
    elif x.dtype.kind in "iu":
        name = model.op("Cast", name, to=TensorProto.INT64)
    y = model.op(_REDUCTIONS[mode], name, model.constant(axes), keepdims=int(attrs.get("keep_dims", False)))
    y = model.op("Cast", y, to=element_type(x.dtype))
    if attrs.get("reduce_to_end") and attrs.get("coeff"):
        y = model.op("Mul", y, model.constant(np.array(attrs["coeff"], x.dtype)))
    return y


@oracle(NodeType.ALL)
def all_of(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    attrs = {"mode": ReduceMode.ALL, "keep_dims": attrs.get("keep_dims", 0) != 0}
    folded = reduce(model, arrays, attrs, layout)
    assert isinstance(folded, str)
    return model.op("Cast", folded, to=TensorProto.BOOL)
