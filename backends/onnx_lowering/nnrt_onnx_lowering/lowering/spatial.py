"""Operators that know the height and width of images: resizing, rearranging, detection."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from nnrt_hdi.enums import CoordinateTransformMode, Format, NearestMode, NodeType, ResizeMethod
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.ops.convolution import ImageShape
from nnrt_hdi.ops.resizing import resize_positions
from nnrt_hdi.ops.spatial import BOX_NUMBERS, block_pair, borders
from nnrt_hdi.tensor import UNKNOWN_DIM
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering import boxes
from nnrt_onnx_lowering.lowering.lowering import Call, Size, channels_first, in_format, lowering, product
from nnrt_onnx_lowering.lowering.shape import FAR, cut_out
from nnrt_onnx_lowering.memory_order import is_image
from nnrt_onnx_lowering.value import FLOAT32, Value

FLOAT64 = np.dtype(np.float64)
METHODS = {ResizeMethod.LINEAR: "linear", ResizeMethod.NEAREST: "nearest"}
COORDINATES = {
    CoordinateTransformMode.ASYMMETRIC: "asymmetric",
    CoordinateTransformMode.ALIGN_CORNERS: "align_corners",
    # Of ONNX's half-pixel modes, this one gives position 0 if the new size is 1.
    CoordinateTransformMode.HALF_PIXEL: "pytorch_half_pixel",
}
ROUNDINGS = {
    # Inside an image, away from 0 means up.
    NearestMode.NORMAL: "round_prefer_ceil",
    NearestMode.ROUND_HALF_DOWN: "round_prefer_floor",
    NearestMode.ROUND_HALF_UP: "round_prefer_ceil",
    NearestMode.FLOOR: "floor",
    NearestMode.CEIL: "ceil",
}


@lowering(NodeType.RESIZE)
def resize(op: Onnx, call: Call, x: Value) -> Value:
    """Compute each row and column as one of x or as a weighted sum of a few, one dimension after the other.

    ONNX's Resize computes it where it is exact enough. Otherwise pixels are gathered from x with its channels last,
    where the channels of a pixel are contiguous.
    """
    new, image = ImageShape.of(call.outputs[0]), channels_first(x, call.inputs[0])
    if UNKNOWN_DIM in (new.height, new.width):
        raise Unsupported("the ratio to preserve is known only when the model runs; fix height and width of x")
    if x.dtype.kind == "f" and x.dtype != FLOAT64 and is_image(image.layout) and _is_resize_exact(call):
        return in_format(_resized(op, call, image, new), call.inputs[0])
    image = op.plain(image.transposed([0, 2, 3, 1]))
    sizes = {1: (op.size(image, 1), new.height), 2: (op.size(image, 2), new.width)}
    pixels = _nearest if call.attrs.method is ResizeMethod.NEAREST else _weighted_sum
    # Starts with the dimension that shrinks more or grows less, so that no intermediate image is larger than x or y.
    for axis in sorted(sizes, key=lambda axis: sizes[axis][1] / abs(image.shape[axis])):
        image = pixels(op, call, image, axis, *sizes[axis])
    return in_format(image.transposed([0, 3, 1, 2]), call.inputs[0])


def _is_resize_exact(call: Call) -> bool:
    """Return whether ONNX Runtime's Resize, whose positions are FLOAT32, is exact enough.

    The positions are exact enough to weight two neighbours. They determine the nearest pixel for certain only if the
    image grows by whole factors.
    """
    if call.attrs.method is ResizeMethod.NEAREST:
        old, new = ImageShape.of(call.inputs[0]), ImageShape.of(call.outputs[0])
        is_aligned = call.attrs.coordinate_transform_mode is CoordinateTransformMode.ALIGN_CORNERS
        pairs = ((old.height, new.height), (old.width, new.width))
        return not is_aligned and all(before > 0 and after % before == 0 for before, after in pairs)
    return call.attrs.method is ResizeMethod.LINEAR


def _resized(op: Onnx, call: Call, image: Value, new: ImageShape) -> Value:
    """Resize with ONNX's operator.

    `exclude_outside` makes no difference here: of two neighbours, one outside the image has the value of the inner one.
    Sizes are given for all dimensions, because ONNX Runtime loses `axes` when it moves transposes.
    """
    attrs = call.attrs
    return op.Resize(
        image,
        None,
        None,
        op.vector([op.size(image, 0), op.size(image, 1), new.height, new.width]),
        mode=METHODS[attrs.method],
        coordinate_transformation_mode=COORDINATES[attrs.coordinate_transform_mode],
        nearest_mode=ROUNDINGS[attrs.nearest_mode],
    )


def _nearest(op: Onnx, call: Call, image: Value, axis: int, old: Size, new: int) -> Value:
    """Return the pixels along an axis that are nearest to the new ones."""
    mode = call.attrs.nearest_mode
    above, below = _positions(op, call, old, new)
    parts = 1 if mode in (NearestMode.FLOOR, NearestMode.CEIL) else 2
    # Division rounds towards 0. That changes only positions before the first pixel, which become the first pixel
    # anyway.
    extra = {NearestMode.FLOOR: 0, NearestMode.CEIL: below - 1, NearestMode.ROUND_HALF_DOWN: below - 1}.get(mode, below)
    return op.Gather(image, _inside(op, (above * parts + extra) / (below * parts), old), axis=axis)


def _weighted_sum(op: Onnx, call: Call, image: Value, axis: int, old: Size, new: int) -> Value:
    """Compute the sum of a few gathered images along an axis, each with its weights."""
    attrs, is_linear = call.attrs, call.attrs.method is ResizeMethod.LINEAR
    above, below = _positions(op, call, old, new)
    first = (above + below) / below - 1  # Rounds down, because positions are above -1.
    rest = (above - first * below).cast(image.dtype) / below
    neighbours = {0: -rest + 1, 1: rest} if is_linear else _cubic(rest, attrs.cubic_coeff)
    sources = {offset: first + offset for offset in neighbours}
    if attrs.exclude_outside:
        for offset, source in sources.items():
            is_inside = op.And(op.GreaterOrEqual(source, 0), op.Less(source, old))
            neighbours[offset] = op.Where(is_inside, neighbours[offset], 0)
        total = op.Sum(*neighbours.values())
        neighbours = {offset: weight / total for offset, weight in neighbours.items()}
    behind = range(1, 4 - axis)
    return op.Sum(
        *(
            op.Gather(image, _inside(op, sources[offset], old), axis=axis) * op.unsqueeze(weight, behind)
            for offset, weight in neighbours.items()
        )
    )


def _positions(op: Onnx, call: Call, old: Size, new: int) -> tuple[Value, int]:
    """Return the positions of new pixels among the old ones, as numerators and one denominator."""
    return resize_positions(call.attrs.coordinate_transform_mode, op.range(0, new, 1), old, new)


def _inside(op: Onnx, sources: Value, size: Size) -> Value:
    return op.Min(op.Max(sources, 0), size - 1)


def _cubic(rest: Value, a: float) -> dict[int, Value]:
    """Return the weights of the neighbours at -1, 0, 1 and 2.

    They are those of R. Keys, "Cubic convolution interpolation" (1981), equation 4.
    """

    def near(t: Value) -> Value:
        return (t * (a + 2) - (a + 3)) * t * t + 1

    def far(t: Value) -> Value:
        return ((t * a - 5 * a) * t + 8 * a) * t - 4 * a

    return {-1: far(rest + 1), 0: near(rest), 1: near(-rest + 1), 2: far(-rest + 2)}


@lowering(NodeType.BATCH_TO_SPACE_ND, moves=True)
def batch_to_space(op: Onnx, call: Call, x: Value) -> Value:
    """Rearrange batches (row, column, new batch) to blocks of pixels, and crop the result."""
    rows, columns = block_pair(call.attrs.block_shape)
    y = _rearranged(op, call, x, ["rcb", "h", "w", "d"], ["b", "hr", "wc", "d"], [rows, columns])
    (top, bottom), (left, right) = borders("crops", call.attrs.crops)
    if not any((top, bottom, left, right)):
        return y
    height = _height_axis(call)
    return cut_out(op, y, [height, height + 1], [top, left], [-bottom or FAR, -right or FAR])


@lowering(NodeType.SPACE_TO_BATCH_ND, moves=True)
def space_to_batch(op: Onnx, call: Call, x: Value) -> Value:
    """Rearrange blocks of pixels to batches (row, column, old batch), with a border around the image.

    The border is 0, or in a quantized tensor the zero point.
    """
    spec, height = call.inputs[0], _height_axis(call)
    rows, columns = block_pair(call.attrs.block_shape)
    border = np.zeros((4, 2), np.int64)
    border[height : height + 2] = borders("paddings", call.attrs.paddings)
    if border.any():
        zero = spec.quant[0].zero_point if spec.is_quantized else 0
        sizes = np.where(np.equal(x.shape, UNKNOWN_DIM), UNKNOWN_DIM, x.shape + border.sum(axis=1))
        x = op.Pad(x, op.ints(border.T.reshape(-1).tolist()), op.scalar(zero, x.dtype))
        x = replace(x, shape=tuple(sizes.tolist()))
    return _rearranged(op, call, x, ["b", "hr", "wc", "d"], ["rcb", "h", "w", "d"], [rows, columns])


@lowering(NodeType.DEPTH_TO_SPACE, moves=True)
def depth_to_space(op: Onnx, call: Call, x: Value) -> Value:
    """Rearrange channels (row, column, new channel), or (new channel, row, column) in mode CRD, to blocks of pixels."""
    block, mode = call.attrs.block_size, call.attrs.mode or "DCR"
    if _has_kernel_layout(call, x):
        return in_format(op.DepthToSpace(channels_first(x, call.inputs[0]), blocksize=block, mode=mode), call.inputs[0])
    channels = "drc" if mode == "CRD" else "rcd"
    return _rearranged(op, call, x, ["b", "h", "w", channels], ["b", "hr", "wc", "d"], [block, block])


@lowering(NodeType.SPACE_TO_DEPTH, moves=True)
def space_to_depth(op: Onnx, call: Call, x: Value) -> Value:
    """Rearrange blocks of pixels to channels (row, column, old channel)."""
    block = call.attrs.block_size
    if _has_kernel_layout(call, x):
        return in_format(op.SpaceToDepth(channels_first(x, call.inputs[0]), blocksize=block), call.inputs[0])
    return _rearranged(op, call, x, ["b", "hr", "wc", "d"], ["b", "h", "w", "rcd"], [block, block])


@lowering(NodeType.DETECTION_POST_PROCESS)
def detection_post_process(op: Onnx, call: Call, bbox: Value, scores: Value, anchors: Value) -> tuple[Value, ...]:
    """Decode the boxes, drop those that overlap better ones, and write the rest row by row."""
    if call.inputs[0].shape[2] != BOX_NUMBERS:
        bbox = cut_out(op, bbox, [2], [0], [BOX_NUMBERS])
    corners = boxes.decoded(op, bbox, anchors, call.attrs.scale)
    of_class = cut_out(op, scores, [2], [-call.attrs.num_classes], [FAR]).transposed([0, 2, 1])
    find = boxes.best_per_class if call.attrs.use_regular_nms else boxes.best_of_any_class
    return find(op, corners, of_class, call.attrs)


def _rearranged(op: Onnx, call: Call, x: Value, given: list[str], wanted: list[str], block: Sequence[int]) -> Value:
    """Return an image with its dimensions split and joined in another order.

    Args:
        op: The model under construction.
        call: The node, whose first input says whether the image is NCHW.
        x: The image.
        given: Its dimensions in NHWC order, each a product of letters: r and c are the rows and columns of a block, and
            each dimension has one other letter.
        wanted: The dimensions of the result, in the same letters.
        block: The sizes of r and c.
    """
    if _is_nchw(call):
        given, wanted = ([batch, depth, *pixels] for batch, *pixels, depth in (given, wanted))
    sizes: dict[str, Size] = dict(zip("rc", block, strict=True))
    for axis, letters in enumerate(given):
        (rest,) = set(letters) - {"r", "c"}
        count, size = prod(block["rc".index(letter)] for letter in letters if letter != rest), op.size(x, axis)
        sizes[rest] = size // count if isinstance(size, int) else size / count
    before, after = "".join(given), "".join(wanted)
    split = op.reshape(x, [sizes[letter] for letter in before])
    turned = split.transposed([before.index(letter) for letter in after])
    return op.reshape(turned, [product([sizes[letter] for letter in letters]) for letters in wanted])


def _has_kernel_layout(call: Call, x: Value) -> bool:
    """Return whether an image has the memory order of ONNX's kernel, so that the kernel needs no Transpose."""
    return x.dtype == FLOAT32 and not channels_first(x, call.inputs[0]).layout


def _is_nchw(call: Call) -> bool:
    return call.inputs[0].format is Format.NCHW


def _height_axis(call: Call) -> int:
    """Return the dimension of the height; the width is the next one."""
    return 2 if _is_nchw(call) else 1
