"""Images resized, rearranged and read: the operators that know height and width.

All work on images in NCHW; those in another layout are read so.
"""

from typing import Any

import numpy as np

from nnrt_backend_onnxruntime.builder import Onnx, Value
from nnrt_backend_onnxruntime.lowering import boxes
from nnrt_backend_onnxruntime.lowering.convolution import channels_first_shape
from nnrt_backend_onnxruntime.lowering.lowering import Call, as_given, channels_first, lowering
from nnrt_backend_onnxruntime.lowering.shape import FAR, cut_out
from nnrt_hdi.enums import CoordinateTransformMode, NearestMode, NodeType, ResizeMethod
from nnrt_hdi.ops.spatial import block_pair, borders
from nnrt_hdi.tensor import UNKNOWN_DIM

METHODS = {ResizeMethod.LINEAR: "linear", ResizeMethod.NEAREST: "nearest", ResizeMethod.CUBIC: "cubic"}
COORDINATES = {
    CoordinateTransformMode.ASYMMETRIC: "asymmetric",
    CoordinateTransformMode.ALIGN_CORNERS: "align_corners",
    # The one that says 0 where the new size is 1.
    CoordinateTransformMode.HALF_PIXEL: "pytorch_half_pixel",
}
ROUNDINGS = {
    NearestMode.NORMAL: "round_prefer_ceil",
    NearestMode.ROUND_HALF_DOWN: "round_prefer_floor",
    NearestMode.ROUND_HALF_UP: "round_prefer_ceil",
    NearestMode.FLOOR: "floor",
    NearestMode.CEIL: "ceil",
}
Size = int | Value


@lowering(NodeType.RESIZE)
def resize(op: Onnx, call: Call, x: Value) -> Value:
    """Each row and column is a weighted sum of a few."""
    attrs, image = call.attrs, channels_first(x, call.inputs[0])
    _, _, height, width = channels_first_shape(call.outputs[0])
    options: dict[str, Any] = {
        "mode": METHODS[attrs.method],
        "coordinate_transformation_mode": COORDINATES[attrs.coordinate_transform_mode],
    }
    if attrs.method is ResizeMethod.NEAREST:
        options["nearest_mode"] = ROUNDINGS[attrs.nearest_mode]
    if attrs.method is ResizeMethod.CUBIC:  # Of two neighbours, one outside has the value of the other.
        options |= {"cubic_coeff_a": attrs.cubic_coeff, "exclude_outside": attrs.exclude_outside}
    # ONNX Runtime moves transposes behind a resize, and then has no kernel, or loses sizes that are not of all
    # dimensions. It moves none through a reshape.
    batch, channels, *size = _sizes(op, image)
    flat = op.reshape(image, [1, -1, *size])
    if UNKNOWN_DIM in (height, width):
        wanted = op.ints([attrs.new_height, attrs.new_width])
        y = op.Resize(flat, None, None, wanted, axes=[2, 3], keep_aspect_ratio_policy="not_larger", **options)
        return as_given(op.reshape(y, [batch, channels, op.size(y, 2), op.size(y, 3)]), call.inputs[0])
    y = op.Resize(flat, None, None, op.vector([1, op.size(flat, 1), height, width]), **options)
    return as_given(op.reshape(y, [batch, channels, height, width]), call.inputs[0])


@lowering(NodeType.BATCH_TO_SPACE_ND, moves=True)
def batch_to_space(op: Onnx, call: Call, x: Value) -> Value:
    """[rows, columns, batch, channels, height, width] as [batch, channels, height rows, width columns], cropped."""
    image = channels_first(x, call.inputs[0])
    rows, columns = block_pair(call.attrs.block_shape)
    _, channels, height, width = _sizes(op, image)
    blocks = op.reshape(image, [rows, columns, -1, channels, height, width]).transposed([2, 3, 4, 0, 5, 1])
    full = op.reshape(blocks, [-1, channels, height * rows, width * columns])
    cuts = borders("crops", call.attrs.crops)
    ends = [-behind or FAR for _, behind in cuts]
    return as_given(cut_out(op, full, [2, 3], [front for front, _ in cuts], ends), call.inputs[0])


@lowering(NodeType.SPACE_TO_BATCH_ND, moves=True)
def space_to_batch(op: Onnx, call: Call, x: Value) -> Value:
    """With a border, [batch, channels, height, rows, width, columns] as [rows columns batch, channels, height, width].

    The border is 0, of a quantized tensor the element that stands for it.
    """
    spec = call.inputs[0]
    image = channels_first(x, spec)
    rows, columns = block_pair(call.attrs.block_shape)
    (top, bottom), (left, right) = borders("paddings", call.attrs.paddings)
    zero = op.scalar(spec.quant[0].zero_point if spec.is_quantized else 0, x.dtype)
    _, channels, height, width = _sizes(op, image)
    padded = op.Pad(image, op.ints([0, 0, top, left, 0, 0, bottom, right]), zero)
    inner = [_parts(height + (top + bottom), rows), rows, _parts(width + (left + right), columns), columns]
    blocks = op.reshape(padded, [-1, channels, *inner]).transposed([3, 5, 0, 1, 2, 4])
    return as_given(op.reshape(blocks, [-1, channels, inner[0], inner[2]]), spec)


@lowering(NodeType.DEPTH_TO_SPACE, moves=True)
def depth_to_space(op: Onnx, call: Call, x: Value) -> Value:
    """Channels (row, column, new channel) or, with mode CRD, (new channel, row, column) as blocks of pixels."""
    image, block = channels_first(x, call.inputs[0]), call.attrs.block_size
    _, channels, height, width = _sizes(op, image)
    inner = _parts(channels, block * block)
    if call.attrs.mode == "CRD":
        blocks = op.reshape(image, [-1, inner, block, block, height, width]).transposed([0, 1, 4, 2, 5, 3])
    else:
        blocks = op.reshape(image, [-1, block, block, inner, height, width]).transposed([0, 3, 4, 1, 5, 2])
    return as_given(op.reshape(blocks, [-1, inner, height * block, width * block]), call.inputs[0])


@lowering(NodeType.SPACE_TO_DEPTH, moves=True)
def space_to_depth(op: Onnx, call: Call, x: Value) -> Value:
    """Blocks of pixels as channels (row, column, old channel)."""
    image, block = channels_first(x, call.inputs[0]), call.attrs.block_size
    _, channels, height, width = _sizes(op, image)
    rows, columns = _parts(height, block), _parts(width, block)
    blocks = op.reshape(image, [-1, channels, rows, block, columns, block]).transposed([0, 3, 5, 1, 2, 4])
    return as_given(op.reshape(blocks, [-1, channels * (block * block), rows, columns]), call.inputs[0])


@lowering(NodeType.DETECTION_POST_PROCESS)
def detection_post_process(op: Onnx, call: Call, bbox: Value, scores: Value, anchors: Value) -> tuple[Value, ...]:
    """Boxes decoded, those that overlap better ones dropped, the rest written row by row."""
    attrs, columns = call.attrs, call.attrs.max_classes_per_detection or 1
    if not attrs.max_detections or 0 in call.inputs[0].shape:
        return tuple(op.constant(np.zeros(spec.shape, call.dtype)) for spec in call.outputs)
    corners = boxes.decoded(op, op.squeeze(bbox, [0]), anchors, attrs.scale)
    of_class = cut_out(op, op.squeeze(scores, [0]), [1], [-attrs.num_classes], [FAR]).transposed([1, 0])
    find = boxes.best_per_class if attrs.use_regular_nms else boxes.best_of_any_class
    *rows, count = find(op, corners, of_class, attrs, columns)
    return *(op.Unsqueeze(row, op.ints([0])) for row in rows), count.cast(call.dtype)


def _sizes(op: Onnx, image: Value) -> list[Size]:
    return [op.size(image, axis) for axis in range(4)]


def _parts(size: Size, length: int) -> Size:
    return size // length if isinstance(size, int) else size / length
