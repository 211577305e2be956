"""Boxes [ymin, xmin, ymax, xmax]: decoding, comparison, and selection by scores without overlaps.

The rules are those of TensorFlow Lite's TFLite_Detection_PostProcess. Of equal scores the first one wins.
"""

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray
from nnrt_hdi.steps import check_stop

# Indices of the output's rows, the box and the class in each row, and the number of selected boxes.
Found = tuple[AnyArray, AnyArray, AnyArray, int]


def decoded(bbox: AnyArray, anchors: AnyArray, scale: Sequence[float]) -> AnyArray:
    """Compute the corners of boxes [y, x, h, w], given by center and size relative to their anchors."""
    bbox = bbox / np.array(scale, bbox.dtype)
    center = bbox[:, :2] * anchors[:, 2:] + anchors[:, :2]
    half = np.exp(bbox[:, 2:]) * anchors[:, 2:] / 2
    return np.concatenate([center - half, center + half], axis=1)


def best_of_any_class(corners: AnyArray, scores: AnyArray, attrs: SimpleNamespace, columns: int) -> Found:
    """Compute fast suppression: boxes ranked by the score of their best class, each with its best classes.

    Each box has as many rows of the output as it may have classes. Rows without a class stay zero.
    """
    picks = picked(corners, scores.max(axis=0)[None], attrs, attrs.max_detections)[0]
    picks = picks[picks >= 0]
    classes = np.argsort(-scores[:, picks], axis=0, kind="stable")[:columns].T
    rows = np.arange(len(picks))[:, None] * columns + np.arange(classes.shape[1])
    return rows.reshape(-1), picks.repeat(classes.shape[1]), classes.reshape(-1), len(picks)


def best_per_class(corners: AnyArray, scores: AnyArray, attrs: SimpleNamespace, columns: int) -> Found:
    """Compute regular suppression: select boxes for each class, then the best of all classes."""
    limit = min(attrs.detections_per_class or attrs.max_detections, attrs.max_detections)
    picks = picked(corners, scores, attrs, limit)
    classes, order = np.nonzero(picks >= 0)
    picks = picks[classes, order]
    best = np.argsort(-scores[classes, picks], kind="stable")[: attrs.max_detections]
    return np.arange(len(best)), picks[best], classes[best], len(best)


def picked(corners: AnyArray, scores: AnyArray, attrs: SimpleNamespace, limit: int) -> AnyArray:
    """Return the selected boxes for each row of scores [rows, boxes]: [rows, at most limit], the best first, then -1.

    Each step selects the best box that is left in every row, and drops the boxes that overlap it.
    """
    left = np.where(scores >= attrs.nms_score_threshold, scores, -np.inf)
    rows = np.arange(len(scores))
    steps: list[AnyArray] = []
    while len(steps) < limit and (left > -np.inf).any():
        check_stop()
        best = left.argmax(axis=1)
        steps.append(np.where(left[rows, best] > -np.inf, best, -1))
        left[rows, best] = -np.inf
        left[overlap(corners[best], corners) > attrs.nms_io_u_threshold] = -np.inf
    return np.stack(steps, axis=1) if steps else np.empty((len(scores), 0), np.intp)


def overlap(a: AnyArray, b: AnyArray) -> AnyArray:
    """Compute intersection over union of each box in a with each in b; 0 for boxes without area."""
    a = a[:, None]
    sides = np.minimum(a[..., 2:], b[:, 2:]) - np.maximum(a[..., :2], b[:, :2])
    common = np.maximum(sides, 0).prod(axis=-1)
    area_a, area_b = ((box[..., 2:] - box[..., :2]).prod(axis=-1) for box in (a, b))
    return np.where((area_a > 0) & (area_b > 0), common / (area_a + area_b - common), 0)
