"""Resizing with wrong positions, wrong rearrangements of blocks, and wrongly read boxes."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels import boxes
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import function, kernel, with_attrs
from mutants.defects.arrays import height_and_width
from nnrt_hdi.enums import CoordinateTransformMode, NearestMode, NodeType
from nnrt_hdi.ops import resizing

RESIZE, DETECTION = NodeType.RESIZE, NodeType.DETECTION_POST_PROCESS
ASYMMETRIC, ALIGNED, HALF = (
    CoordinateTransformMode.ASYMMETRIC,
    CoordinateTransformMode.ALIGN_CORNERS,
    CoordinateTransformMode.HALF_PIXEL,
)


@kernel(RESIZE)
def half_pixels_forgotten(right: Kernel, call: Call, x: AnyArray) -> Any:
    """HALF_PIXEL is computed as ASYMMETRIC."""
    is_half = call.attrs.coordinate_transform_mode is HALF
    return right(with_attrs(call, coordinate_transform_mode=ASYMMETRIC) if is_half else call, x)


@kernel(RESIZE)
def corners_not_aligned(right: Kernel, call: Call, x: AnyArray) -> Any:
    """ALIGN_CORNERS is computed as ASYMMETRIC."""
    is_aligned = call.attrs.coordinate_transform_mode is ALIGNED
    return right(with_attrs(call, coordinate_transform_mode=ASYMMETRIC) if is_aligned else call, x)


@kernel(RESIZE)
def nearest_always_below(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The nearest pixel is always rounded down."""
    return right(with_attrs(call, nearest_mode=NearestMode.FLOOR), x)


@kernel(RESIZE)
def halves_go_up(right: Kernel, call: Call, x: AnyArray) -> Any:
    """ROUND_HALF_DOWN rounds halves up."""
    down = call.attrs.nearest_mode is NearestMode.ROUND_HALF_DOWN
    return right(with_attrs(call, nearest_mode=NearestMode.ROUND_HALF_UP) if down else call, x)


@kernel(RESIZE)
def cubic_with_one_coefficient(right: Kernel, call: Call, x: AnyArray) -> Any:
    """RESIZE always uses the cubic_coeff -0.75."""
    return right(with_attrs(call, cubic_coeff=-0.75), x)


@kernel(RESIZE)
def outside_counts(right: Kernel, call: Call, x: AnyArray) -> Any:
    """RESIZE ignores exclude_outside."""
    return right(with_attrs(call, exclude_outside=0), x)


@kernel(RESIZE)
def one_ratio_for_both_axes(right: Kernel, call: Call, x: AnyArray) -> Any:
    """RESIZE uses the ratio of the heights for the widths, too."""
    height, width = height_and_width(call)
    old, new = x.shape, call.outputs[0].shape
    if new[width] * old[height] <= new[height] * old[width]:
        return right(call, x)
    repeated = np.repeat(x, 2, width)
    y = np.take(repeated, range(old[width]), width)
    return right(call, y)


@function(resizing.resize_positions, RESIZE)
def positions_in_float32(
    right: Kernel, mode: CoordinateTransformMode, index: AnyArray, old: int, new: int
) -> tuple[AnyArray, int]:
    """RESIZE computes positions in FLOAT32, which may end just below a pixel."""
    if mode is not ASYMMETRIC:
        return right(mode, index, old, new)  # type: ignore[no-any-return]
    below = 1 << 24
    return (index.astype(np.float32) * np.float32(old / new) * np.float32(below)).astype(np.int64), below


@kernel(NodeType.BATCH_TO_SPACE_ND)
def crops_of_the_end(right: Kernel, call: Call, x: AnyArray) -> Any:
    """BATCH_TO_SPACE_ND crops everything at the end."""
    crops = tuple((0, sum(pair)) for pair in call.attrs.crops)
    return right(with_attrs(call, crops=crops), x)


@kernel(NodeType.BATCH_TO_SPACE_ND)
def blocks_by_batch_first(right: Kernel, call: Call, x: AnyArray) -> Any:
    """BATCH_TO_SPACE_ND reads the batch as (batch, row, column) instead of (row, column, batch)."""
    blocks = int(np.prod(call.attrs.block_shape))
    turned = x.reshape(len(x) // blocks, blocks, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
    return right(call, turned)


@kernel(NodeType.SPACE_TO_BATCH_ND)
def columns_before_rows(right: Kernel, call: Call, x: AnyArray) -> Any:
    """SPACE_TO_BATCH_ND orders the batch by column, then row."""
    y = right(call, x)
    rows, columns = call.attrs.block_shape
    return y.reshape(rows, columns, -1, *y.shape[1:]).swapaxes(0, 1).reshape(y.shape)


@kernel(NodeType.DEPTH_TO_SPACE)
def always_depth_first(right: Kernel, call: Call, x: AnyArray) -> Any:
    """CRD is computed as DCR."""
    return right(with_attrs(call, mode="DCR"), x)


@kernel(NodeType.SPACE_TO_DEPTH)
def channels_in_front_of_pixels(right: Kernel, call: Call, x: AnyArray) -> Any:
    """SPACE_TO_DEPTH orders new channels as (old channel, row, column)."""
    y = right(call, x)
    axis = 1 if height_and_width(call)[0] == 2 else 3
    order = np.arange(y.shape[axis]).reshape(call.attrs.block_size**2, -1).T.reshape(-1)
    return np.take(y, order, axis)


@kernel(DETECTION)
def scale_by_width_first(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """The scale of boxes is read as x, y, w, h."""
    y, x, height, width = call.attrs.scale
    return right(with_attrs(call, scale=(x, y, width, height)), *operands)


@kernel(DETECTION)
def background_not_skipped(right: Kernel, call: Call, bbox: AnyArray, scores: AnyArray, anchors: AnyArray) -> Any:
    """The background's scores are taken for the first class'."""
    return right(call, bbox, scores[..., : call.attrs.num_classes], anchors)


@kernel(DETECTION)
def always_regular_suppression(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """use_regular_nms is ignored."""
    return right(with_attrs(call, use_regular_nms=True), *operands)


@function(boxes.overlap, DETECTION)
def overlap_of_the_smaller_box(right: Kernel, a: AnyArray, b: AnyArray) -> Any:
    """The overlap is the intersection divided by the smaller box instead of the union."""
    wide = a[:, None]
    sides = np.minimum(wide[..., 2:], b[:, 2:]) - np.maximum(wide[..., :2], b[:, :2])
    common = np.maximum(sides, 0).prod(axis=-1)
    smaller = np.minimum(*((box[..., 2:] - box[..., :2]).prod(axis=-1) for box in (wide, b)))
    return np.where(smaller > 0, common / np.where(smaller > 0, smaller, 1), 0)


@kernel(DETECTION)
def count_of_all_rows(right: Kernel, call: Call, *operands: AnyArray) -> Any:
    """The number of boxes is the number of rows in the output."""
    corners, classes, scores, count = right(call, *operands)
    return corners, classes, scores, np.full_like(count, call.outputs[1].shape[1])
