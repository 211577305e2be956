"""Operators that know the height and width of images: resizing, rearranging, detection.

All compute in the order batch, height, width, channels; images in NCHW are transposed before and after, which copies
nothing.
"""

import numpy as np

from nnrt_backend_reference.kernels import boxes
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, cast_all, kernel, wider
from nnrt_hdi.enums import Format, NodeType
from nnrt_hdi.ops.resizing import resize_neighbours
from nnrt_hdi.ops.spatial import BOX_NUMBERS, block_pair, borders
from nnrt_hdi.tensor import Shape

# The type of RESIZE's weights, and the most old pixels that a new pixel reads along an axis.
WEIGHT, MOST_NEIGHBOURS = np.dtype(np.float64), 4


@kernel(NodeType.RESIZE)
def resize(call: Call, x: AnyArray) -> AnyArray:
    """Compute each row and column as a weighted sum of a few, one dimension after the other."""
    image = _channels_last(call, x).astype(call.dtype, copy=False)
    sizes = _nhwc(call.outputs[0].shape, call)
    # Starts with the dimension that shrinks more or grows less, so that no intermediate image is larger than x or y.
    for axis in sorted((1, 2), key=lambda axis: sizes[axis] / image.shape[axis]):
        call.require_memory((MOST_NEIGHBOURS, sizes[axis]), WEIGHT)
        sources, weights = resize_neighbours(call.attrs, image.shape[axis], sizes[axis])
        image = _weighted_sum(image, axis, sources, weights)
    return _in_format(call, image)


def _weighted_sum(x: AnyArray, axis: int, sources: AnyArray, weights: AnyArray) -> AnyArray:
    """Compute the weighted sum of x's neighbours along an axis; sources and weights are [neighbours, new].

    A single neighbour is not weighted.
    """
    if len(sources) == 1:
        only: AnyArray = x.take(sources[0], axis)
        return only
    shape = [-1 if at == axis else 1 for at in range(x.ndim)]
    parts = zip(sources, weights.astype(x.dtype), strict=True)
    y: AnyArray = sum(x.take(source, axis) * weight.reshape(shape) for source, weight in parts)
    return y


@kernel(NodeType.BATCH_TO_SPACE_ND)
def batch_to_space(call: Call, x: AnyArray) -> AnyArray:
    """Rearrange batches to blocks of pixels, and crop the result.

    [rows, columns, batch, height, width, channels] becomes [batch, height * rows, width * columns, channels].
    """
    image = _channels_last(call, x)
    rows, columns = block_pair(call.attrs.block_shape)
    (top, _), (left, _) = borders("crops", call.attrs.crops)
    _, out_height, out_width, _ = _nhwc(call.outputs[0].shape, call)
    _, height, width, channels = image.shape
    blocks = image.reshape(rows, columns, -1, height, width, channels).transpose(2, 3, 0, 4, 1, 5)
    full = blocks.reshape(-1, height * rows, width * columns, channels)
    return _in_format(call, full[:, top : top + out_height, left : left + out_width])


@kernel(NodeType.SPACE_TO_BATCH_ND)
def space_to_batch(call: Call, x: AnyArray) -> AnyArray:
    """Rearrange blocks of pixels to batches, with a border around the image.

    [batch, height, rows, width, columns, channels] becomes [rows * columns * batch, height, width, channels]. The
    border is 0, or in a quantized tensor the zero point.
    """
    rows, columns = block_pair(call.attrs.block_shape)
    spec = call.inputs[0]
    zero = spec.quant[0].zero_point if spec.is_quantized else 0
    border = ((0, 0), *borders("paddings", call.attrs.paddings), (0, 0))
    image = np.pad(_channels_last(call, x), border, constant_values=x.dtype.type(zero))
    batch, height, width, channels = image.shape
    blocks = image.reshape(batch, height // rows, rows, width // columns, columns, channels)
    return _in_format(call, blocks.transpose(2, 4, 0, 1, 3, 5).reshape(-1, height // rows, width // columns, channels))


@kernel(NodeType.DEPTH_TO_SPACE)
def depth_to_space(call: Call, x: AnyArray) -> AnyArray:
    """Rearrange channels (row, column, new channel), or (new channel, row, column) in mode CRD, to blocks of pixels."""
    image, block = _channels_last(call, x), call.attrs.block_size
    batch, height, width, _ = image.shape
    if call.attrs.mode == "CRD":
        blocks = image.reshape(batch, height, width, -1, block, block).transpose(0, 1, 4, 2, 5, 3)
    else:
        blocks = image.reshape(batch, height, width, block, block, -1).transpose(0, 1, 3, 2, 4, 5)
    return _in_format(call, blocks.reshape(batch, height * block, width * block, -1))


@kernel(NodeType.SPACE_TO_DEPTH)
def space_to_depth(call: Call, x: AnyArray) -> AnyArray:
    """Rearrange blocks of pixels to channels (row, column, old channel)."""
    image, block = _channels_last(call, x), call.attrs.block_size
    batch, height, width, _ = _nhwc(call.outputs[0].shape, call)
    blocks = image.reshape(batch, height, block, width, block, -1).transpose(0, 1, 3, 2, 4, 5)
    return _in_format(call, blocks.reshape(batch, height, width, -1))


@kernel(NodeType.DETECTION_POST_PROCESS)
def detection_post_process(call: Call, bbox: AnyArray, scores: AnyArray, anchors: AnyArray) -> tuple[AnyArray, ...]:
    """Decode the boxes, drop those that overlap better ones, and write the rest row by row."""
    attrs, columns = call.attrs, call.attrs.max_classes_per_detection or 1
    bbox, scores, anchors = cast_all(wider(bbox.dtype), bbox[0, :, :BOX_NUMBERS], scores[0], anchors)
    corners = boxes.decoded(bbox, anchors, attrs.scale)
    of_class = scores[:, scores.shape[1] - attrs.num_classes :].T
    find = boxes.best_per_class if attrs.use_regular_nms else boxes.best_of_any_class
    rows, picked, classes, count = find(corners, of_class, attrs, columns)
    outputs = tuple(np.zeros(spec.shape, spec.numpy_dtype) for spec in call.outputs)
    for output, values in zip(outputs, (corners[picked], classes, of_class[classes, picked]), strict=False):
        output[0, rows] = values
    outputs[3][0] = count
    return outputs


def _channels_last(call: Call, image: AnyArray) -> AnyArray:
    return np.moveaxis(image, 1, 3) if call.inputs[0].format is Format.NCHW else image


def _in_format(call: Call, image: AnyArray) -> AnyArray:
    return np.moveaxis(image, 3, 1) if call.inputs[0].format is Format.NCHW else image


def _nhwc(shape: Shape, call: Call) -> Shape:
    """Convert a shape in the format of the first input to [batch, height, width, channels]."""
    batch, *others = shape
    return (batch, *others[1:], others[0]) if call.inputs[0].format is Format.NCHW else shape
