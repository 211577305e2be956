"""Boxes [ymin, xmin, ymax, xmax]: decoding, and selection by scores without overlaps.

ONNX selects scores above a threshold. NNRt also selects scores equal to it, so the model uses the next lower number.
"""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.value import Value

# Columns of NonMaxSuppression's result: [batch, class, box].
CLASS, BOX = 1, 2


def decoded(op: Onnx, bbox: Value, anchors: Value, scale: Sequence[float]) -> Value:
    """Compute the corners [1, boxes, 4] of boxes [y, x, h, w], given by center and size relative to their anchors."""
    halves = op.ints([2, 2])
    center, size = op.multi_output("Split", 2, bbox / op.constant(np.array(scale, bbox.dtype)), halves, axis=2)
    anchor_center, anchor_size = op.multi_output("Split", 2, anchors, halves, axis=1)
    center = center * anchor_size + anchor_center
    half = op.Exp(size) * anchor_size / 2
    return op.Concat(center - half, center + half, axis=2)


def best_per_class(op: Onnx, corners: Value, scores: Value, attrs: SimpleNamespace) -> tuple[Value, ...]:
    """Compute regular suppression: select boxes for each class, then the best of all classes."""
    most = attrs.max_detections
    found = _picked(op, corners, scores, attrs, min(attrs.detections_per_class or most, most))
    count = op.Min(_length(op, found), most)
    best, order = op.multi_output("TopK", 2, op.GatherND(scores, found), count)
    found = op.Gather(found, order)
    rows = most * (attrs.max_classes_per_detection or 1)
    boxes = op.Gather(corners, _column(op, found, BOX), axis=1)
    classes = op.reshape(_column(op, found, CLASS).cast(best.dtype), [1, -1])
    return *(_filled(op, part, rows) for part in (boxes, classes, op.reshape(best, [1, -1]))), count


def best_of_any_class(op: Onnx, corners: Value, scores: Value, attrs: SimpleNamespace) -> tuple[Value, ...]:
    """Compute fast suppression: boxes ranked by the score of their best class, each with its best classes.

    Each box has as many rows of the output as it may have classes. Rows without a class stay zero.
    """
    most, columns = attrs.max_detections, attrs.max_classes_per_detection or 1
    found = _picked(op, corners, op.ReduceMax(scores, op.ints([1]), keepdims=1), attrs, most)
    boxes = _column(op, found, BOX)
    of_box = op.Gather(scores, boxes, axis=2).transposed([0, 2, 1])
    used = min(columns, attrs.num_classes)
    best, classes = op.multi_output("TopK", 2, of_box, op.ints([used]), axis=2)
    corners = op.Expand(op.unsqueeze(op.Gather(corners, boxes, axis=1), [2]), op.ints([1, 1, used, 1]))
    parts = [
        op.reshape(op.Pad(part, op.ints([0, columns - used]), None, op.ints([2])), [1, -1, *behind])
        for part, behind in ((corners, [4]), (classes.cast(best.dtype), []), (best, []))
    ]
    return *(_filled(op, part, most * columns) for part in parts), _length(op, found)


def _picked(op: Onnx, corners: Value, scores: Value, attrs: SimpleNamespace, most: int) -> Value:
    """Return [batch, class, box] of the boxes selected for each class, at most `most`, the best first."""
    below = np.nextafter(np.float32(attrs.nms_score_threshold), np.float32(-np.inf))
    limits = (
        op.ints([most]),
        op.constant(np.array([attrs.nms_io_u_threshold], np.float32)),
        op.constant(below.reshape(1)),
    )
    return replace(op.NonMaxSuppression(corners, scores, *limits), rank=2)


def _filled(op: Onnx, part: Value, rows: int) -> Value:
    """Return [1, n, ...] extended with zeros to [1, rows, ...]."""
    free = op.ints([rows]) - op.Shape(part, start=1, end=2)
    return op.Pad(part, op.vector([0, free]), None, op.ints([1]))


def _column(op: Onnx, found: Value, column: int) -> Value:
    return op.Gather(found, np.array(column), axis=1)


def _length(op: Onnx, found: Value) -> Value:
    return op.Shape(found, start=0, end=1)
