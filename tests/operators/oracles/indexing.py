"""Oracles of operators that read or write elements by index."""

import numpy as np
from onnx import TensorProto

from nnrt_hdi.enums import Format, NodeType

from .oracle import AnyArray, Attrs, Onnx, element_type, oracle

WIDE = np.dtype(np.int64)


@oracle(NodeType.GATHER)
def gather(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return model.op("Gather", "x0", "x1", axis=int(arrays[2].reshape(())))


@oracle(NodeType.GATHER_ND)
def gather_nd(model: Onnx, _: list[AnyArray], __: Attrs, ___: Format) -> str:
    return model.op("GatherND", "x0", model.op("Cast", "x1", to=element_type(WIDE)))


@oracle(NodeType.SCATTER_ND)
def scatter_nd(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return _scattered(model, arrays, reduction="none" if arrays[1].dtype == np.bool_ else "add")


@oracle(NodeType.SPARSE_TO_DENSE)
def sparse_to_dense(model: Onnx, arrays: list[AnyArray], _: Attrs, __: Format) -> str:
    return _scattered(model, arrays, reduction="none")


def _scattered(model: Onnx, arrays: list[AnyArray], reduction: str) -> str:
    zeros = model.constant(np.zeros(arrays[2], arrays[1].dtype))
    return model.op("ScatterND", zeros, model.op("Cast", "x0", to=element_type(WIDE)), "x1", reduction=reduction)


@oracle(NodeType.ONE_HOT)
def one_hot(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    # ONNX Runtime's OneHot has few types.
    values = np.array([arrays[3].reshape(()), arrays[2].reshape(())], np.float32)
    hot = model.op(
        "OneHot",
        model.op("Cast", "x0", to=element_type(WIDE)),
        "x1",
        model.constant(values),
        axis=attrs.get("axis", -1),
    )
    return model.op("Cast", hot, to=element_type(arrays[2].dtype))


@oracle(NodeType.TOPK_FUSION)
def top_k(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> tuple[str, str]:
    axis = attrs.get("axis", -1)
    values, indices = _largest(model, arrays[0], int(arrays[1].reshape(())), axis)
    if not attrs.get("sorted", True):
        back = [model.constant(np.array([number])) for number in (-1, np.iinfo(WIDE).min, axis, -1)]
        values, indices = (model.op("Slice", y, *back) for y in (values, indices))
    return values, indices


@oracle(NodeType.ARGMAX_FUSION)
def arg_max(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    axis, count = attrs.get("axis", -1), attrs.get("top_k", 1)
    y = _largest(model, arrays[0], count, axis)[0 if attrs.get("out_max_value") else 1]
    if count > 1 or attrs.get("keep_dims"):
        return y
    return model.op("Squeeze", y, model.constant(np.array([axis])))


def _largest(model: Onnx, x: AnyArray, count: int, axis: int) -> tuple[str, str]:
    """Return the names of the largest elements and their indices.

    Integers are computed as INT64: ONNX Runtime's TopK has no narrower types.
    """
    name = model.op("Cast", "x0", to=element_type(WIDE)) if x.dtype.kind in "iu" else "x0"
    values, indices = model.ops("TopK", name, model.constant(np.array([count])), outputs=2, axis=axis)
    return model.op("Cast", values, to=element_type(x.dtype)), model.op("Cast", indices, to=TensorProto.INT32)
