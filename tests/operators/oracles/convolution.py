"""Oracles of convolutions and pooling."""

from typing import Any

import numpy as np

from nnrt_hdi.enums import Format, NodeType, PadMode, RoundMode

from .oracle import ORACLES, AnyArray, Attrs, Onnx, Oracle, fused, oracle


def image(model: Onnx, layout: Format) -> str:
    return "x0" if layout is Format.NCHW else model.op("Transpose", "x0", perm=[0, 3, 1, 2])


def as_given(model: Onnx, y: str, layout: Format) -> str:
    return y if layout is Format.NCHW else model.op("Transpose", y, perm=[0, 2, 3, 1])


def _pads(attrs: Attrs, name: str) -> dict[str, Any]:
    mode = attrs.get("pad_mode", PadMode.PAD)
    if mode == PadMode.PAD:
        top, bottom, left, right = attrs.get(name) or (0, 0, 0, 0)
        return {"pads": [top, left, bottom, right]}
    return {"auto_pad": "SAME_UPPER" if mode == PadMode.SAME else "VALID"}


def _window(attrs: Attrs) -> dict[str, Any]:
    return {
        "strides": list(attrs.get("stride") or (1, 1)),
        "dilations": list(attrs.get("dilation") or (1, 1)),
        "group": attrs.get("group", 1),
        **_pads(attrs, "pad_list"),
    }


@oracle(NodeType.CONV2D_FUSION)
def conv2d(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    weight = arrays[1] if layout is Format.NCHW else np.moveaxis(arrays[1], 3, 1)
    y = model.op("Conv", image(model, layout), model.constant(np.ascontiguousarray(weight)), "x2", **_window(attrs))
    return as_given(model, fused(model, y, arrays[0].dtype, attrs), layout)


@oracle(NodeType.CONV2D_TRANSPOSE_FUSION)
def conv2d_transpose(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    """Build a transposed convolution.

    ONNX's weights are [in channels, out channels / group, height, width].
    """
    weight = arrays[1] if layout is Format.NCHW else np.moveaxis(arrays[1], 3, 1)
    out, inner, height, width = weight.shape
    group = attrs.get("group", 1)
    weight = weight.reshape(group, out // group, inner, height, width).swapaxes(1, 2)
    weight = np.ascontiguousarray(weight.reshape(group * inner, out // group, height, width))
    extra = list(attrs.get("output_paddings") or (0,))
    y = model.op(
        "ConvTranspose",
        image(model, layout),
        model.constant(weight),
        "x2",
        output_padding=extra * 2 if len(extra) == 1 else extra,
        **_window(attrs),
    )
    return as_given(model, fused(model, y, arrays[0].dtype, attrs), layout)


def _pooling(op_type: str) -> Oracle:
    def build(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
        if attrs.get("global"):
            y = model.op(f"Global{op_type}", image(model, layout))
        else:
            y = model.op(
                op_type,
                image(model, layout),
                kernel_shape=list(attrs["kernel_size"]),
                strides=list(attrs.get("strides") or (1, 1)),
                ceil_mode=int(attrs.get("round_mode", RoundMode.FLOOR)),
                **_pads(attrs, "pad"),
            )
        return as_given(model, fused(model, y, arrays[0].dtype, attrs), layout)

    return build


ORACLES[NodeType.AVGPOOL_FUSION] = _pooling("AveragePool")
ORACLES[NodeType.MAX_POOL_FUSION] = _pooling("MaxPool")
