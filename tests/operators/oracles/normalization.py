"""Oracles of normalizations."""

import numpy as np

from nnrt_hdi.enums import Format, NodeType

from .convolution import as_given, image
from .oracle import AnyArray, Attrs, Onnx, fused, oracle


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
    return model.op("Softmax", "x0", axis=(attrs.get("axis") or (-1,))[0])


@oracle(NodeType.LOG_SOFTMAX)
def log_softmax(model: Onnx, _: list[AnyArray], attrs: Attrs, __: Format) -> str:
    return model.op("LogSoftmax", "x0", axis=attrs.get("axis", 0))


@oracle(NodeType.LAYER_NORM_FUSION)
def layer_norm(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    scale, bias = arrays[1:]
    if not attrs.get("elementwise_affine", True):
        scale, bias = np.ones_like(scale), np.zeros_like(bias)
    return model.op(
        "LayerNormalization",
        "x0",
        model.constant(scale),
        model.constant(bias),
        axis=attrs.get("begin_norm_axis", 1),
        epsilon=attrs.get("epsilon", 1e-7),
    )


@oracle(NodeType.INSTANCE_NORM)
def instance_norm(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    epsilon = attrs.get("epsilon", 0.0)
    if len(arrays[1]) != arrays[0].shape[1 if layout is Format.NCHW else -1]:
        layout = Format.NHWC if layout is Format.NCHW else Format.NCHW
    y = model.op("InstanceNormalization", image(model, layout), "x1", "x2", epsilon=epsilon)
    return as_given(model, y, layout)


@oracle(NodeType.L2_NORMALIZE_FUSION)
def l2_normalize(model: Onnx, arrays: list[AnyArray], attrs: Attrs, _: Format) -> str:
    dtype = arrays[0].dtype
    axes = model.constant(np.array(attrs.get("axis") or range(arrays[0].ndim), np.int64))
    least = model.constant(np.array(attrs.get("epsilon", 1e-6), dtype))
    total = model.op("Max", model.op("ReduceSumSquare", "x0", axes, keepdims=1), least)
    return fused(model, model.op("Div", "x0", model.op("Sqrt", total)), dtype, attrs)


@oracle(NodeType.LRN)
def lrn(model: Onnx, _: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    """Build a local response normalization.

    ONNX divides alpha by the size of the window, so alpha is multiplied by it.
    """
    size = 2 * attrs.get("depth_radius", 0) + 1
    numbers = {"bias": attrs.get("bias", 1.0), "beta": attrs.get("beta", 0.5), "alpha": attrs.get("alpha", 1.0) * size}
    return as_given(model, model.op("LRN", image(model, layout), size=size, **numbers), layout)
