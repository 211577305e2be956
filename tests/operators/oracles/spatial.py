"""Oracles of resizing and rearranging images: ONNX, or LiteRT if ONNX lacks the operator."""

import numpy as np
from ai_edge_litert.schema_py_generated import BuiltinOperator
from onnx import TensorProto

from nnrt_hdi.enums import CoordinateTransformMode, Format, NearestMode, NodeType, ResizeMethod

from . import litert
from .convolution import as_given, image
from .oracle import ORACLES, AnyArray, Attrs, Onnx, Oracle, oracle

_METHODS = {ResizeMethod.LINEAR: "linear", ResizeMethod.NEAREST: "nearest", ResizeMethod.CUBIC: "cubic"}
_COORDINATES = {
    CoordinateTransformMode.ASYMMETRIC: "asymmetric",
    CoordinateTransformMode.ALIGN_CORNERS: "align_corners",
    # This mode has position 0 for a new size of 1.
    CoordinateTransformMode.HALF_PIXEL: "pytorch_half_pixel",
}
_NEAREST = {
    NearestMode.NORMAL: "round_prefer_ceil",
    NearestMode.ROUND_HALF_DOWN: "round_prefer_floor",
    NearestMode.ROUND_HALF_UP: "round_prefer_ceil",
    NearestMode.FLOOR: "floor",
    NearestMode.CEIL: "ceil",
}


@oracle(NodeType.RESIZE)
def resize(model: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    x, is_bool = image(model, layout), arrays[0].dtype == np.bool_
    y = model.op(
        "Resize",
        model.op("Cast", x, to=TensorProto.UINT8) if is_bool else x,
        "",
        "",
        model.constant(np.array([attrs["new_height"], attrs["new_width"]])),
        axes=[2, 3],
        mode=_METHODS[attrs.get("method", ResizeMethod.LINEAR)],
        coordinate_transformation_mode=_COORDINATES[attrs.get("coordinate_transform_mode", 0)],
        nearest_mode=_NEAREST[attrs.get("nearest_mode", 0)],
        cubic_coeff_a=attrs.get("cubic_coeff", -0.75),
        exclude_outside=attrs.get("exclude_outside", 0),
        keep_aspect_ratio_policy="not_larger" if attrs.get("preserve_aspect_ratio") else "stretch",
    )
    return as_given(model, model.op("Cast", y, to=TensorProto.BOOL) if is_bool else y, layout)


def _blocks(operator: int, attr: str) -> Oracle:
    """Return the oracle of an operator on blocks and batches.

    LiteRT rearranges the positions of the elements, counted from 1, in NHWC; position 0 is a padding element.
    """

    def build(_: Onnx, arrays: list[AnyArray], attrs: Attrs, layout: Format) -> list[AnyArray]:
        (x,) = arrays
        numbers = np.arange(1, x.size + 1, dtype=np.int32).reshape(x.shape)
        if layout is Format.NCHW:
            numbers = np.ascontiguousarray(np.moveaxis(numbers, 1, 3))
        options = [np.array(values, np.int32) for values in (attrs["block_shape"], attrs.get(attr, [[0, 0], [0, 0]]))]
        (places,) = litert.run(operator, [numbers, *options])
        y = np.append(np.zeros(1, x.dtype), x)[places]
        return [np.moveaxis(y, 3, 1) if layout is Format.NCHW else y]

    return build


ORACLES[NodeType.BATCH_TO_SPACE_ND] = _blocks(BuiltinOperator.BATCH_TO_SPACE_ND, "crops")
ORACLES[NodeType.SPACE_TO_BATCH_ND] = _blocks(BuiltinOperator.SPACE_TO_BATCH_ND, "paddings")


@oracle(NodeType.DEPTH_TO_SPACE)
def depth_to_space(model: Onnx, _: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    mode = attrs.get("mode") or "DCR"
    return as_given(
        model, model.op("DepthToSpace", image(model, layout), blocksize=attrs["block_size"], mode=mode), layout
    )


@oracle(NodeType.SPACE_TO_DEPTH)
def space_to_depth(model: Onnx, _: list[AnyArray], attrs: Attrs, layout: Format) -> str:
    return as_given(model, model.op("SpaceToDepth", image(model, layout), blocksize=attrs["block_size"]), layout)


@oracle(NodeType.DETECTION_POST_PROCESS)
def detection_post_process(_: Onnx, arrays: list[AnyArray], attrs: Attrs, __: Format) -> list[AnyArray]:
    """Run LiteRT's operator in FLOAT32, which also holds FLOAT16 exactly."""
    y, x, h, w = attrs["scale"]
    options = {
        "y_scale": y,
        "x_scale": x,
        "h_scale": h,
        "w_scale": w,
        "nms_iou_threshold": attrs["nms_io_u_threshold"],
        "nms_score_threshold": attrs["nms_score_threshold"],
        "max_detections": attrs["max_detections"],
        "detections_per_class": attrs.get("detections_per_class", attrs["max_detections"]),
        "max_classes_per_detection": attrs.get("max_classes_per_detection", 1),
        "num_classes": attrs["num_classes"],
        "use_regular_nms": attrs.get("use_regular_nms", False),
    }
    given = [array.astype(np.float32) for array in arrays]
    *rows, count = litert.run(BuiltinOperator.CUSTOM, given, 4, ("TFLite_Detection_PostProcess", options))
    # LiteRT leaves unused rows uninitialized.
    columns = options["max_classes_per_detection"]
    box, column = np.divmod(np.arange(rows[1].size), columns)
    needed = (box < count) & (column < options["num_classes"])
    if options["use_regular_nms"]:
        needed = np.arange(rows[1].size) < count
    for output in rows:
        output[0, ~needed] = 0
    return [output.astype(arrays[0].dtype) for output in (*rows, count)]
