"""Operators that resize and rearrange images."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from nnrt_client.enums import OperationType
from nnrt_client.model.operations.spatial import DepthToSpaceMode
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.operators.resampling import Resampling
from nnrt_client.onnx_import.shapes.dims import new_dim
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value
from nnrt_hdi.enums import CoordinateTransformMode
from nnrt_hdi.tensor import Array

# Most weights to compute by onnx's reference implementation, which computes one after another.
_MOST_WEIGHTS = 1 << 14
_LARGEST_SIZE = 1 << 15
# Largest factor for which TILE and DEPTH_TO_SPACE are used.
_LARGEST_FACTOR = 16
# Operator set whose Resize has all attributes of earlier ones.
_RESIZE_OPSET = 19

_MODES = {
    "asymmetric": CoordinateTransformMode.ASYMMETRIC,
    "align_corners": CoordinateTransformMode.ALIGN_CORNERS,
    "half_pixel": CoordinateTransformMode.HALF_PIXEL,
    "pytorch_half_pixel": CoordinateTransformMode.HALF_PIXEL,
}


@onnx_operator("DepthToSpace")
def depth_to_space(op: NodeBuilder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """DEPTH_TO_SPACE."""
    if mode not in DepthToSpaceMode.__members__:
        refuse(f"its mode is {mode!r}; use 'DCR' or 'CRD'")
    return op.apply(OperationType.DEPTH_TO_SPACE, op.nchw(x), block_size=blocksize, mode=DepthToSpaceMode[mode])


@onnx_operator("SpaceToDepth")
def space_to_depth(op: NodeBuilder, x: Value, *, blocksize: int, mode: str = "DCR") -> Value:
    """SPACE_TO_DEPTH."""
    if mode != "DCR":
        refuse(f"its mode is {mode!r}; NNRt has DCR")
    return op.apply(OperationType.SPACE_TO_DEPTH, op.nchw(x), block_size=blocksize)


@onnx_operator("Upsample", until=8)
def upsample_by_attribute(op: NodeBuilder, x: Value, *, mode: str = "nearest", scales: tuple[float, ...]) -> Value:
    """Import like Resize."""
    return _scale(op, x, range(x.rank), op.constant(np.array(scales, np.float32)), {"mode": mode, **_BEFORE_OPSET_11})


@onnx_operator("Upsample", since=9)
@onnx_operator("Resize", since=10, until=10)
def upsample(op: NodeBuilder, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    """Import like Resize."""
    return _scale(op, x, range(x.rank), scales, {"mode": mode, **_BEFORE_OPSET_11})


_BEFORE_OPSET_11 = {
    "coordinate_transformation_mode": "asymmetric",
    "nearest_mode": "floor",
    "antialias": 0,
    "exclude_outside": 0,
}


@onnx_operator("Resize", since=11)
def resize(
    op: NodeBuilder,
    x: Value,
    roi: Value | None = None,
    scales: Value | None = None,
    sizes: Value | None = None,
    *,
    antialias: int = 0,
    axes: tuple[int, ...] = (),
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Value:
    """RESIZE_BILINEAR; TILE and DEPTH_TO_SPACE; or, for each dimension, GATHER, MATMUL with weights, or MUL and ADD.

    In this order: RESIZE_BILINEAR if it computes the same; TILE and DEPTH_TO_SPACE if each pixel of an image of unknown
    size becomes a square; else, dimension by dimension, GATHER (mode 'nearest') or MATMUL with constant weights. If a
    size is known only in a run: GATHER of the pixels around each position; MUL and ADD with weights that the run
    computes.
    """
    if coordinate_transformation_mode == "tf_crop_and_resize":
        refuse("it crops; use Slice before it")
    along = [axis % x.rank for axis in axes] or list(range(x.rank))
    how: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": coordinate_transformation_mode,
        "cubic_coeff_a": cubic_coeff_a,
        "exclude_outside": exclude_outside,
        "nearest_mode": nearest_mode,
        "antialias": antialias,
    }
    if scales is not None and 0 not in scales.shape:
        return _scale(op, x, along, scales, how)
    if sizes is None:
        refuse("it has neither scales nor sizes")
    if keep_aspect_ratio_policy == "stretch":
        return _resize_to(op, x, along, sizes, how)
    wanted: list[int] = list(x.shape)
    for axis, size in zip(along, op.ints("sizes", sizes), strict=True):
        wanted[axis] = size
    if -1 in (x.shape[axis] for axis in along):
        refuse(f"the ratio of {x} that it keeps is known only in a run; fix its size")
    ratios = [wanted[axis] / x.shape[axis] for axis in along]
    ratio = min(ratios) if keep_aspect_ratio_policy == "not_larger" else max(ratios)
    factors: list[float] = [1.0] * x.rank
    for axis in along:
        factors[axis], wanted[axis] = ratio, math.floor(ratio * x.shape[axis] + 0.5)
    return _resize_all(op, x, factors, wanted, how)


def _scale(op: NodeBuilder, x: Value, along: Sequence[int], scales: Value, how: dict[str, Any]) -> Value:
    """Scale dimensions of an image by factors, which may be known only in a run."""
    _require_float(x, how)
    if scales.array is None:
        for at, axis in enumerate(along):
            scale = op.apply(OperationType.GATHER, scales, np.array([at]), np.array(0))
            x = Resampling(op, x, axis, scale=scale, dim=new_dim(), how=how).resize()
        return x
    factors = [1.0] * x.rank
    for axis, factor in zip(along, _numbers("scales", scales), strict=True):
        factors[axis] = factor
    return _resize_all(op, x, factors, None, how)


def _resize_to(op: NodeBuilder, x: Value, along: Sequence[int], sizes: Value, how: dict[str, Any]) -> Value:
    """Resize dimensions of an image to sizes, which may be known only in a run."""
    _require_float(x, how)
    numbers = (None,) * len(along) if sizes.elements is None else sizes.elements.tolist()
    changed = {axis: (at, size) for at, (axis, size) in enumerate(zip(along, numbers, strict=True))}
    changed = {axis: pair for axis, pair in changed.items() if pair[1] != x.dims[axis]}
    if all(isinstance(size, int) for _, size in changed.values()):
        wanted = [changed[axis][1] if axis in changed else size for axis, size in enumerate(x.shape)]
        are_known = -1 not in (x.shape[axis] for axis in changed)
        if are_known or _is_bilinear(x, [(axis, -1, size, None) for axis, (_, size) in changed.items()], how):
            return _resize_all(op, x, None, wanted, how)
    for axis, (at, size) in changed.items():
        target = op.apply(OperationType.GATHER, sizes, np.array([at]), np.array(0))
        x = Resampling(op, x, axis, target=target, dim=new_dim() if size is None else size, how=how).resize()
    return x


def _resize_all(
    op: NodeBuilder, x: Value, scales: Sequence[float] | None, sizes: Sequence[int] | None, how: dict[str, Any]
) -> Value:
    """Resize all dimensions of an image by known factors, or to known sizes."""
    if (pixels := _square(x, scales, sizes, how)) is not None:
        return _repeat_pixels(op, x, pixels)
    changed = []
    for axis, size in enumerate(x.shape):
        scale = scales[axis] if scales is not None else 1.0
        if scale == 1 and (sizes is None or sizes[axis] == size):
            continue
        if size == -1 and scales is not None:
            x = _scale_in_run(op, x, axis, scale, how)
            continue
        target = sizes[axis] if sizes is not None else math.floor(size * scale)
        changed.append((axis, size, target, scale if scales is not None else None))
    if _is_bilinear(x, changed, how):
        (_, _, height, _), (_, _, width, _) = changed
        transform = _MODES[how["coordinate_transformation_mode"]]
        return op.apply(
            OperationType.RESIZE_BILINEAR,
            op.nchw(x),
            new_height=height,
            new_width=width,
            coordinate_transform_mode=transform,
        )
    for axis, size, target, factor in changed:
        x = _resize_along(op, x, axis, size, target, factor, how)
    return x


def _require_float(x: Value, how: dict[str, Any]) -> None:
    if x.dtype.kind != "f" and how["mode"] != "nearest":
        refuse(f"it interpolates {x}; use a floating-point type")


def _scale_in_run(op: NodeBuilder, x: Value, axis: int, scale: float, how: dict[str, Any]) -> Value:
    """Scale a dimension that is known only in a run by a known factor."""
    factor = op.constant(np.array([scale], np.float32))
    if not scale.is_integer():
        return Resampling(op, x, axis, scale=factor, dim=new_dim(), how=how).resize()
    target = op.apply(OperationType.MUL, op.reshape(op.size(x, axis), (1,)), np.array([int(scale)]))
    return Resampling(op, x, axis, target=target, scale=factor, dim=x.dims[axis] * int(scale), how=how).resize()


def _square(x: Value, scales: Sequence[float] | None, sizes: Sequence[int] | None, how: dict[str, Any]) -> int | None:
    """Return the factor by which an image of unknown size repeats its pixels in squares, or None if it doesn't."""
    if x.rank != 4 or -1 not in x.shape[2:] or scales is None or sizes is not None or how["mode"] != "nearest":
        return None
    count, is_square = int(scales[2]), list(scales) == [1, 1, int(scales[2]), int(scales[2])]
    if not is_square or not 1 < count <= _LARGEST_FACTOR:
        return None
    some = np.arange(8, dtype=np.float64)
    is_repeated = np.array_equal(_resample(some, len(some) * count, float(count), how), np.repeat(some, count))
    return count if is_repeated else None


def _repeat_pixels(op: NodeBuilder, x: Value, pixels: int) -> Value:
    """Repeat each pixel of an image as a square of this width."""
    repeated = op.apply(OperationType.TILE, op.nchw(x), np.array([1, pixels**2, 1, 1]))
    dims = (*x.dims[:2], *(dim * pixels for dim in x.dims[2:]))
    return op.apply(OperationType.DEPTH_TO_SPACE, repeated, block_size=pixels, mode=DepthToSpaceMode.DCR, dims=dims)


def _is_bilinear(x: Value, changed: Sequence[tuple[int, int, int, float | None]], how: dict[str, Any]) -> bool:
    """Return whether RESIZE_BILINEAR, whose scale follows from the sizes, computes what the node asks for."""
    transform = how["coordinate_transformation_mode"]
    # For a single row or column, NNRt's HALF_PIXEL computes what pytorch_half_pixel does.
    is_known = transform in _MODES and not (transform == "half_pixel" and any(row[2] == 1 for row in changed))
    is_plain = how["mode"] == "linear" and not how.get("antialias") and not how.get("exclude_outside")
    is_image = x.rank == 4 and [axis for axis, *_ in changed] == [2, 3]
    is_exact = all(scale is None or size * scale == target for _, size, target, scale in changed)
    return is_plain and is_image and is_exact and is_known


def _resize_along(
    op: NodeBuilder, x: Value, axis: int, size: int, target: int, scale: float | None, how: dict[str, Any]
) -> Value:
    if max(size, target) > _LARGEST_SIZE:
        refuse(f"it resizes {size} to {target}; use at most {_LARGEST_SIZE}")
    if how["mode"] == "nearest":
        places = _resample(np.arange(size, dtype=np.float64), target, scale, how).astype(np.int64)
        return op.apply(OperationType.GATHER, x, places, np.array(axis, np.int64))
    if size * target > _MOST_WEIGHTS:
        refuse(f"it interpolates {size} to {target} in a way that NNRt's RESIZE_BILINEAR doesn't")
    weights = np.stack([_resample(row, target, scale, how) for row in np.eye(size)]).astype(x.dtype)
    order = [*(at for at in range(x.rank) if at != axis), axis]
    row = op.transpose(x, order) if x.rank > 1 else op.unsqueeze(x, [0])
    y = op.apply(OperationType.MATMUL, row, weights)
    return op.transpose(y, np.argsort(order).tolist()) if x.rank > 1 else op.squeeze(y, [0])


def _resample(row: Array, target: int, scale: float | None, how: dict[str, Any]) -> Array:
    """Resize one row by onnx's reference implementation."""
    node = helper.make_node("Resize", ["x", "", "scales" if scale else "", "" if scale else "sizes"], ["y"], **how)
    types = [helper.make_tensor_value_info("x", 11, [None])]
    feeds: dict[str, Array] = {"x": row}
    if scale:
        types.append(helper.make_tensor_value_info("scales", 1, [1]))
        feeds["scales"] = np.array([scale], np.float32)
    else:
        types.append(helper.make_tensor_value_info("sizes", 7, [1]))
        feeds["sizes"] = np.array([target], np.int64)
    graph = helper.make_graph([node], "resize", types, [helper.make_tensor_value_info("y", 11, [None])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _RESIZE_OPSET)])
    try:
        # Not at the top, see `fold_node`.
        from onnx.reference import ReferenceEvaluator

        made = np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])  # type: ignore[index]
    except Exception as error:
        refuse(f"onnx's reference does not resize so: {error}")
    if made.shape != (target,):
        refuse(f"onnx's reference makes {made.shape[0]} of what should be {target}")
    return made


def _numbers(name: str, given: Value) -> list[float]:
    if given.array is None:
        refuse(f"its {name} {given} is known only in a run")
    numbers: list[float] = given.array.reshape(-1).tolist()
    if not all(0 < number < 1 << 16 for number in numbers):
        refuse(f"its {name} are {numbers}; use numbers above 0")
    return numbers
