"""Boxes [ymin, xmin, ymax, xmax]: decoding, comparison, and selection by scores without overlaps.

The rules are those of TensorFlow Lite's TFLite_Detection_PostProcess. Of equal scores the first one wins. How many
boxes are found depends on the data, but shapes don't, so that the host needn't wait for the device.
"""

from types import SimpleNamespace
from typing import NamedTuple

import torch

from nnrt_hdi.steps import check_stop

# The steps of a selection on an accelerator, until the host waits for it to learn whether boxes are left.
STEPS_AT_ONCE = 64


class Found(NamedTuple):
    """Selected boxes and their classes, one for each row of the output: both [rows / columns, columns].

    There may be fewer rows and columns than the output has. `columns` are the output's. `number` boxes are selected;
    `is_used` says which rows these are.
    """

    boxes: torch.Tensor
    classes: torch.Tensor
    is_used: torch.Tensor
    number: torch.Tensor
    columns: int


def decoded(bbox: torch.Tensor, anchors: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Compute the corners of boxes [y, x, h, w], given by center and size relative to their anchors."""
    bbox = bbox / scale
    center = bbox[:, :2] * anchors[:, 2:] + anchors[:, :2]
    half = torch.exp(bbox[:, 2:]) * anchors[:, 2:] / 2
    return torch.cat([center - half, center + half], dim=1)


def best_of_any_class(corners: torch.Tensor, scores: torch.Tensor, attrs: SimpleNamespace, columns: int) -> Found:
    """Compute fast suppression: boxes ranked by the score of their best class, each with its best classes.

    Each box has as many rows of the output as it may have classes. Rows without a class stay zero.
    """
    picks = picked(corners, scores.amax(dim=0)[None], attrs, attrs.max_detections)[0]
    is_used, picks = picks >= 0, picks.clamp(min=0)
    classes = torch.argsort(-scores[:, picks], dim=0, stable=True)[:columns].T
    return Found(picks[:, None].expand_as(classes), classes, is_used[:, None], is_used.sum(), columns)


def best_per_class(corners: torch.Tensor, scores: torch.Tensor, attrs: SimpleNamespace, columns: int) -> Found:
    """Compute regular suppression: select boxes for each class, then the best of all classes."""
    limit = min(attrs.detections_per_class or attrs.max_detections, attrs.max_detections)
    picks = picked(corners, scores, attrs, limit)
    of_picks = torch.where(picks >= 0, scores.gather(1, picks.clamp(min=0)), -torch.inf)
    best = torch.argsort(-of_picks.reshape(-1), stable=True)[: attrs.max_detections, None]
    classes = best // max(picks.shape[1], 1)
    best_boxes = picks.reshape(-1)[best]
    is_used = best_boxes >= 0
    return Found(best_boxes.clamp(min=0), classes, is_used, is_used.sum(), 1)


def picked(corners: torch.Tensor, scores: torch.Tensor, attrs: SimpleNamespace, limit: int) -> torch.Tensor:
    """Return the selected boxes for each row of scores [rows, boxes]: [rows, at most limit], the best first, then -1.

    Each step selects the best box that is left in every row, and drops the boxes that overlap it.
    """
    left = torch.where(scores >= attrs.nms_score_threshold, scores, -torch.inf)
    at_once = 1 if left.device.type == "cpu" else STEPS_AT_ONCE
    steps: list[torch.Tensor] = []
    while len(steps) < min(limit, left.shape[1]):
        check_stop()
        if (len(steps) + 1) % at_once == 0 and not (left > -torch.inf).any():
            break
        best = left.argmax(dim=1, keepdim=True)
        steps.append(torch.where(left.gather(1, best) > -torch.inf, best, -1))
        left.scatter_(1, best, -torch.inf)
        left.masked_fill_(overlap(corners[best[:, 0]], corners) > attrs.nms_io_u_threshold, -torch.inf)
    return torch.cat(steps, dim=1) if steps else scores.new_empty((len(scores), 0), dtype=torch.int64)


def overlap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compute intersection over union of each box in a with each in b; 0 for boxes without area."""
    a = a[:, None]
    sides = torch.minimum(a[..., 2:], b[:, 2:]) - torch.maximum(a[..., :2], b[:, :2])
    common = sides.clamp(min=0).prod(dim=-1)
    area_a, area_b = ((box[..., 2:] - box[..., :2]).prod(dim=-1) for box in (a, b))
    return torch.where((area_a > 0) & (area_b > 0), common / (area_a + area_b - common), 0)
