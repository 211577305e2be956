"""Operators that know the height and width of images: resizing, rearranging, detection.

Most compute in the order batch, height, width, channels; images in NCHW are views in this order.
"""

import math

import torch
from torch.nn import functional

from nnrt_backend_torch.kernels import boxes
from nnrt_backend_torch.kernels.kernel import Call, computable, kernel, on_device
from nnrt_hdi.enums import DataType, Format, NodeType, ResizeMethod
from nnrt_hdi.ops.resizing import resize_neighbours
from nnrt_hdi.ops.spatial import BOX_NUMBERS, block_pair, borders
from nnrt_hdi.tensor import NUMPY_DTYPES, Shape

# The type of RESIZE's weights, and the most old pixels that a new pixel reads along an axis.
WEIGHT, MOST_NEIGHBOURS = DataType.FLOAT64, 4
# FLOAT32 represents all integers below.
EXACT_INTEGERS = 1 << 24
# All devices take images of fewer elements, and with shorter sides, in torch's own nearest mode.
TORCHS_ELEMENTS, TORCHS_SIDE = 1 << 31, 1 << 15


@kernel(NodeType.RESIZE)
def resize(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute each row and column as a weighted sum of a few, one dimension after the other."""
    image = _channels_last(call, x)
    sizes = _nhwc(call.outputs[0].shape, call)
    along = []
    # Starts with the dimension that shrinks more or grows less, so that no intermediate image is larger than x or y.
    for axis in sorted((1, 2), key=lambda axis: sizes[axis] / image.shape[axis]):
        call.require_memory((MOST_NEIGHBOURS, sizes[axis]), NUMPY_DTYPES[WEIGHT])
        # In memory of the host.
        found = resize_neighbours(call.attrs, image.shape[axis], sizes[axis])
        along.append((axis, *map(torch.from_numpy, found)))
    if call.attrs.method is ResizeMethod.NEAREST:
        is_small = max(image.numel(), math.prod(sizes)) < TORCHS_ELEMENTS
        if (
            is_small
            and x.dtype.is_floating_point
            and all(_is_torchs_nearest(sources[0], image.shape[axis]) for axis, sources, _ in along)
        ):
            image = functional.interpolate(image.permute(0, 3, 1, 2), sizes[1:3], mode="nearest")
            return _in_format(call, image.permute(0, 2, 3, 1))
    else:
        image = image.to(call.dtype)
    # Whole pixels are faster to select than single numbers.
    image = image.contiguous()
    for axis, sources, weights in along:
        image = _weighted_sum(call, image, axis, sources, weights)
    return _in_format(call, image)


def _is_torchs_nearest(sources: torch.Tensor, old: int) -> bool:
    """Return whether torch's own nearest mode selects these pixels.

    It selects the pixel i old / new, rounded down. It computes that in FLOAT32, which must be exact.
    """
    new = len(sources)
    if max(old, new) >= TORCHS_SIDE:
        return False
    divisor = math.gcd(old, new)
    is_exact = (new // divisor).bit_count() == 1 and new * (old // divisor) < EXACT_INTEGERS
    return is_exact and torch.equal(sources, torch.arange(new) * old // new)


def _weighted_sum(call: Call, x: torch.Tensor, axis: int, sources: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Compute the weighted sum of x's neighbours along an axis; sources and weights are [neighbours, new].

    A single neighbour is not weighted.
    """
    first, *others = on_device(call, sources).unbind()
    y = x.index_select(axis, first)
    if not others:
        return y
    shape = [-1 if at == axis else 1 for at in range(x.ndim)]
    first_weight, *other_weights = (weight.view(shape) for weight in on_device(call, weights.to(x.dtype)).unbind())
    y *= first_weight
    for source, weight in zip(others, other_weights, strict=True):
        y.addcmul_(x.index_select(axis, source), weight)
    return y


@kernel(NodeType.BATCH_TO_SPACE_ND)
def batch_to_space(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Rearrange batches to blocks of pixels, and crop the result.

    [rows, columns, batch, height, width, channels] becomes [batch, height * rows, width * columns, channels].
    """
    image, out_shape = _channels_last(call, x), call.outputs[0].shape
    rows, columns = block_pair(call.attrs.block_shape)
    (top, _), (left, _) = borders("crops", call.attrs.crops)
    _, height, width, channels = image.shape
    blocks = image.reshape(rows, columns, out_shape[0], height, width, channels).permute(2, 3, 0, 4, 1, 5)
    full = _joined(call, blocks, range(1, 5), (out_shape[0], height * rows, width * columns, channels))
    _, out_height, out_width, _ = _nhwc(out_shape, call)
    return _in_format(call, _channels_last(call, full)[:, top : top + out_height, left : left + out_width])


@kernel(NodeType.SPACE_TO_BATCH_ND)
def space_to_batch(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Rearrange blocks of pixels to batches, with a border around the image.

    [batch, height, rows, width, columns, channels] becomes [rows * columns * batch, height, width, channels]. The
    border is 0, or in a quantized tensor the zero point.
    """
    image, spec = _channels_last(call, x), call.inputs[0]
    rows, columns = block_pair(call.attrs.block_shape)
    vertical, horizontal = borders("paddings", call.attrs.paddings)
    if any((*vertical, *horizontal)):
        zero = spec.quant[0].zero_point if spec.is_quantized else 0
        image = functional.pad(image, (0, 0, *horizontal, *vertical), value=zero)
    batch, _, _, channels = image.shape
    shape = _nhwc(call.outputs[0].shape, call)
    blocks = image.reshape(batch, shape[1], rows, shape[2], columns, channels).permute(2, 4, 0, 1, 3, 5)
    return _joined(call, blocks, range(3, 5), shape)


@kernel(NodeType.DEPTH_TO_SPACE)
def depth_to_space(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Rearrange channels (row, column, new channel), or (new channel, row, column) in mode CRD, to blocks of pixels."""
    image, block = _channels_last(call, x), call.attrs.block_size
    batch, height, width, _ = image.shape
    shape = _nhwc(call.outputs[0].shape, call)
    if call.attrs.mode == "CRD":
        blocks = image.reshape(batch, height, width, shape[3], block, block).permute(0, 1, 4, 2, 5, 3)
    else:
        blocks = image.reshape(batch, height, width, block, block, shape[3]).permute(0, 1, 3, 2, 4, 5)
    return _joined(call, blocks, range(1, 5), shape)


@kernel(NodeType.SPACE_TO_DEPTH)
def space_to_depth(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Rearrange blocks of pixels to channels (row, column, old channel)."""
    image, block = _channels_last(call, x), call.attrs.block_size
    channels, shape = image.shape[3], _nhwc(call.outputs[0].shape, call)
    blocks = image.reshape(*shape[:2], block, shape[2], block, channels).permute(0, 1, 3, 2, 4, 5)
    return _joined(call, blocks, range(1, 3), shape)


@kernel(NodeType.DETECTION_POST_PROCESS)
def detection_post_process(
    call: Call, bbox: torch.Tensor, scores: torch.Tensor, anchors: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Decode the boxes, drop those that overlap better ones, and write the rest row by row."""
    attrs, columns = call.attrs, call.attrs.max_classes_per_detection or 1
    bbox, scores, anchors = computable(bbox[0, :, :BOX_NUMBERS]), computable(scores[0]), computable(anchors)
    scale = on_device(call, torch.tensor(attrs.scale, dtype=bbox.dtype))
    corners = boxes.decoded(bbox, anchors, scale)
    of_class = scores[:, scores.shape[1] - attrs.num_classes :].T
    find = boxes.best_per_class if attrs.use_regular_nms else boxes.best_of_any_class
    found = find(corners, of_class, attrs, columns)
    values = corners[found.boxes], found.classes, of_class[found.classes, found.boxes]
    outputs = [torch.zeros(spec.shape, dtype=corners.dtype, device=call.device) for spec in call.outputs[:3]]
    for output, value in zip(outputs, values, strict=True):
        is_used = found.is_used.reshape(*found.is_used.shape, *(1,) * (value.ndim - 2))
        rows = output.view(-1, found.columns, *output.shape[2:])
        rows[: value.shape[0], : value.shape[1]] = torch.where(is_used, value, 0)
    return (*outputs, found.number.reshape(1))


def _channels_last(call: Call, image: torch.Tensor) -> torch.Tensor:
    return image.permute(0, 2, 3, 1) if _is_nchw(call) else image


def _in_format(call: Call, image: torch.Tensor) -> torch.Tensor:
    return image.permute(0, 3, 1, 2) if _is_nchw(call) else image


def _joined(call: Call, blocks: torch.Tensor, pixels: range, shape: Shape) -> torch.Tensor:
    """Join dimensions of an image in blocks to those of its format, which copies the elements.

    Args:
        call: The call, whose first operand has the format.
        blocks: The image, with several dimensions for each of batch, height, width and channels, in this order.
        pixels: The dimensions that make up height and width.
        shape: The batch, height, width and channels of the result.
    """
    if not _is_nchw(call):
        return blocks.reshape(shape)
    batch, height, width, channels = shape
    order = (*range(pixels.start), *range(pixels.stop, blocks.ndim), *pixels)
    return blocks.permute(order).reshape(batch, channels, height, width)


def _nhwc(shape: Shape, call: Call) -> Shape:
    """Convert a shape in the format of the first input to [batch, height, width, channels]."""
    batch, *others = shape
    return (batch, *others[1:], others[0]) if _is_nchw(call) else shape


def _is_nchw(call: Call) -> bool:
    return call.inputs[0].format is Format.NCHW
