"""Boxes [ymin, xmin, ymax, xmax]: decoded, and picked by their scores without overlaps.

ONNX Runtime picks as many as there are, so what is picked is filled up to a fixed number of rows, of which those that
are not needed become 0.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from nnrt_backend_onnxruntime.builder import FLOAT32, INT64, Onnx, Value
from nnrt_backend_onnxruntime.lowering.shape import FAR, cut_out

# Rows with boxes, classes and scores, and the number of those that count.
Found = tuple[Value, Value, Value, Value]


def decoded(op: Onnx, bbox: Value, anchors: Value, scale: Sequence[float]) -> Value:
    """Corners of boxes given by center and size [y, x, h, w], relative to those of their anchors."""
    relative = bbox / np.array(scale, bbox.dtype)
    centers, sizes = (_columns(op, anchors, at) for at in (0, 2))
    center = _columns(op, relative, 0) * sizes + centers
    half = op.Exp(_columns(op, relative, 2)) * sizes / 2
    return op.Concat(center - half, center + half, axis=1)


def best_of_any_class(op: Onnx, corners: Value, scores: Value, attrs: SimpleNamespace, columns: int) -> Found:
    """Fast suppression: boxes by the score of their best class, each with the best of its classes."""
    rows = attrs.max_detections
    best = op.ReduceMax(scores, op.ints([0]), keepdims=1)
    picks, count = _filled(op, _picked(op, corners, best, attrs, rows), rows)
    boxes = _column(op, picks, 2)
    of_box = op.Gather(scores, boxes, axis=1).transposed([1, 0])
    kept = min(columns, attrs.num_classes)
    values, classes = op.several("TopK", 2, of_box, op.ints([kept]), axis=1)
    corners = op.Expand(op.Unsqueeze(op.Gather(corners, boxes, axis=0), op.ints([1])), op.ints([rows, kept, 4]))
    spare = op.ints([0, 0, 0, columns - kept])
    found = [
        op.reshape(op.Pad(_needed(op, corners, count, rows, 3), op.ints([0, 0, 0, 0, columns - kept, 0])), [-1, 4])
    ]
    for result in (classes.cast(FLOAT32), values):
        found.append(op.reshape(op.Pad(_needed(op, result, count, rows, 2), spare), [-1]))
    return found[0], found[1], found[2], count


def best_per_class(op: Onnx, corners: Value, scores: Value, attrs: SimpleNamespace, columns: int) -> Found:
    """Regular suppression: class by class, then the best of all."""
    rows, spare = attrs.max_detections, attrs.max_detections * (columns - 1)
    limit = min(attrs.detections_per_class or rows, rows)
    picked = _picked(op, corners, scores, attrs, limit)
    of_pick = op.GatherND(scores, cut_out(op, picked, [1], [1], [3]))
    lowest = op.constant(np.full(rows, -np.inf, FLOAT32))
    values, order = op.several("TopK", 2, op.Concat(of_pick, lowest, axis=0), op.ints([rows]), axis=0)
    filler = op.constant(np.zeros((rows, 3), INT64))
    picks = op.Gather(op.Concat(picked, filler, axis=0), order, axis=0)
    count = op.Min(_length(op, picked), op.ints([rows]))
    boxes = _needed(op, op.Gather(corners, _column(op, picks, 2), axis=0), count, rows, 2)
    classes, values = (
        op.Pad(_needed(op, result, count, rows, 1), op.ints([0, spare]))
        for result in (_column(op, picks, 1).cast(FLOAT32), values)
    )
    return op.Pad(boxes, op.ints([0, 0, spare, 0])), classes, values, count


def _picked(op: Onnx, corners: Value, scores: Value, attrs: SimpleNamespace, limit: int) -> Value:
    """[batch, row of scores, box] of the boxes taken in each row of scores, best first."""
    least = np.nextafter(np.float32(attrs.nms_score_threshold), np.float32(-np.inf))  # ONNX takes what is above it.
    return op.NonMaxSuppression(
        op.Unsqueeze(corners, op.ints([0])),
        op.Unsqueeze(scores, op.ints([0])),
        op.ints([limit]),
        np.array([attrs.nms_io_u_threshold], FLOAT32),
        np.array([least], FLOAT32),
    )


def _filled(op: Onnx, picked: Value, rows: int) -> tuple[Value, Value]:
    """What was picked in a fixed number of rows, and how many of them count."""
    filler = op.constant(np.zeros((rows, 3), INT64))
    return cut_out(op, op.Concat(picked, filler, axis=0), [0], [0], [rows]), _length(op, picked)


def _needed(op: Onnx, x: Value, count: Value, rows: int, rank: int) -> Value:
    """x with 0 in the rows that don't count."""
    counts = op.Less(op.constant(np.arange(rows).reshape(-1, *[1] * (rank - 1))), count)
    return op.Where(counts, x, op.scalar(0, x.dtype))


def _length(op: Onnx, x: Value) -> Value:
    return op.Shape(x, start=0, end=1)


def _column(op: Onnx, x: Value, at: int) -> Value:
    return op.Gather(x, op.constant(np.array(at)), axis=1)


def _columns(op: Onnx, x: Value, start: int) -> Value:
    """Two columns of four."""
    return cut_out(op, x, [1], [start], [start + 2 if start < 2 else FAR])
