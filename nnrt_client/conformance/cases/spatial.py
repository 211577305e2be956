"""Rows (see `cases.row`) of operators that resize, rearrange or sample images."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from nnrt_client.conformance.cases.row import ANY, BOTH, FLOATS, HALF, SINGLE, Attrs, Fixed, Row
from nnrt_hdi.enums import CoordinateTransformMode, NearestMode, NodeType, ResizeMethod

CUBIC = {"method": ResizeMethod.CUBIC}
NEAREST = {"method": ResizeMethod.NEAREST}
HALF_PIXEL = {"coordinate_transform_mode": CoordinateTransformMode.HALF_PIXEL}
ALIGN_CORNERS = {"coordinate_transform_mode": CoordinateTransformMode.ALIGN_CORNERS}


def resizes() -> Iterator[Row]:
    def row(height: int, width: int, *attrs: Attrs, dtypes: tuple[np.dtype[Any], ...] = (SINGLE,)) -> Row:
        size = {"new_height": height, "new_width": width}
        merged = {name: value for some in (size, *attrs) for name, value in some.items()}
        return Row(NodeType.RESIZE, [(2, 4, 6, 3)], merged, dtypes, BOTH)

    for mode in CoordinateTransformMode:
        for method in ResizeMethod:
            if method is not ResizeMethod.UNKNOWN:
                # No oracle computes the weights of CUBIC with ALIGN_CORNERS in double precision.
                rounded = method is ResizeMethod.CUBIC and mode is CoordinateTransformMode.ALIGN_CORNERS
                dtypes = (HALF, SINGLE) if rounded else FLOATS
                yield row(8, 3, {"method": method, "coordinate_transform_mode": mode}, dtypes=dtypes)
    for nearest in NearestMode:
        yield row(8, 12, NEAREST, HALF_PIXEL, {"nearest_mode": nearest})
        yield row(2, 11, NEAREST, ALIGN_CORNERS, {"nearest_mode": nearest})
    yield row(5, 7, CUBIC, HALF_PIXEL, {"cubic_coeff": -0.5, "exclude_outside": 1}, dtypes=(HALF, SINGLE))
    yield row(9, 13, HALF_PIXEL, {"exclude_outside": 1}, dtypes=(HALF, SINGLE))
    yield row(1, 1, HALF_PIXEL)
    yield row(1, 1, CUBIC, ALIGN_CORNERS)
    yield row(8, 9, {"preserve_aspect_ratio": True}, dtypes=(HALF, SINGLE))
    yield row(3, 3, {"preserve_aspect_ratio": True}, HALF_PIXEL)
    yield row(8, 12, NEAREST, dtypes=ANY)


def blocks() -> Iterator[Row]:
    some = {"block_shape": (2, 3), "crops": ((1, 2), (0, 4))}
    yield Row(NodeType.BATCH_TO_SPACE_ND, [(12, 3, 4, 2)], some, ANY, BOTH)
    yield Row(NodeType.BATCH_TO_SPACE_ND, [(4, 3, 4, 2)], {"block_shape": (1, 1)}, (SINGLE,), BOTH)
    some = {"block_shape": (3, 2), "paddings": ((1, 0), (2, 1))}
    yield Row(NodeType.SPACE_TO_BATCH_ND, [(2, 5, 7, 2)], some, ANY, BOTH)
    yield Row(NodeType.SPACE_TO_BATCH_ND, [(2, 4, 6, 1)], {"block_shape": (4, 1)}, (SINGLE,), BOTH)
    yield Row(NodeType.DEPTH_TO_SPACE, [(2, 3, 4, 12)], {"block_size": 2}, ANY, BOTH)
    yield Row(NodeType.DEPTH_TO_SPACE, [(2, 3, 4, 18)], {"block_size": 3, "mode": "CRD"}, (SINGLE,), BOTH)
    yield Row(NodeType.DEPTH_TO_SPACE, [(2, 3, 4, 5)], {"block_size": 1, "mode": "DCR"}, (SINGLE,), BOTH)
    yield Row(NodeType.SPACE_TO_DEPTH, [(2, 6, 4, 3)], {"block_size": 2}, ANY, BOTH)
    yield Row(NodeType.SPACE_TO_DEPTH, [(0, 6, 9, 2)], {"block_size": 3}, (SINGLE,), BOTH)


def detections() -> Iterator[Row]:
    def row(boxes: int, classes: int, attrs: Attrs, background: int = 1, coordinates: int = 4) -> Row:
        offsets = Fixed((1, boxes, coordinates), low=-3, high=3)
        scores = Fixed((1, boxes, classes + background), low=0, high=1)
        common = {"scale": (10.0, 10.0, 5.0, 5.0), "num_classes": classes, "nms_io_u_threshold": 0.25}
        anchors = Fixed((boxes, 4), low=0.25, high=0.75)
        return Row(NodeType.DETECTION_POST_PROCESS, [offsets, scores, anchors], {**common, **attrs}, (HALF, SINGLE))

    some = {"nms_score_threshold": 0.25, "max_detections": 9}
    yield row(40, 5, some)
    yield row(40, 5, {**some, "max_classes_per_detection": 3}, background=0)
    yield row(20, 2, {**some, "max_classes_per_detection": 3, "max_detections": 30})
    yield row(40, 5, {**some, "use_regular_nms": True})
    yield row(40, 3, {**some, "use_regular_nms": True, "detections_per_class": 2}, background=0)
    yield row(9, 3, {**some, "use_regular_nms": True, "detections_per_class": 100, "max_detections": 50})
    yield row(9, 3, {**some, "nms_score_threshold": 2.0})
    yield row(40, 5, some, coordinates=5)
    yield row(40, 5, {**some, "use_regular_nms": True}, coordinates=21)


def rows() -> Iterator[Row]:
    yield from resizes()
    yield from blocks()
    yield from detections()
