"""Pixels that RESIZE reads along an axis, and their weights."""

from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import CoordinateTransformMode, NearestMode, ResizeMethod

Numbers = NDArray[Any]
IndexT = TypeVar("IndexT", bound=Any)


def resize_neighbours(attrs: SimpleNamespace, old: int, new: int) -> tuple[Numbers, Numbers]:
    """Return for each new pixel along an axis the old ones that it reads, and their weights: both [neighbours, new].

    Positions are exact fractions of integers.
    """
    above, below = resize_positions(attrs.coordinate_transform_mode, np.arange(new, dtype=np.int64), old, new)
    first = above // below
    if attrs.method is ResizeMethod.NEAREST:
        return _nearest_pixels(attrs.nearest_mode, above, below)[None].clip(0, old - 1), np.ones((1, new))
    rest = (above - first * below) / below
    if attrs.method is ResizeMethod.LINEAR:
        sources, weights = first + np.arange(2)[:, None], np.stack([1 - rest, rest])
    else:
        sources, weights = first + np.arange(-1, 3)[:, None], _cubic_weights(rest, attrs.cubic_coeff)
    if attrs.exclude_outside:
        weights = np.where((sources >= 0) & (sources < old), weights, 0)
        weights = weights / weights.sum(axis=0)
    return sources.clip(0, old - 1), weights


def resize_positions(mode: CoordinateTransformMode, index: IndexT, old: Any, new: int) -> tuple[IndexT, int]:
    """Return the positions of new pixels among the old ones, as numerators and one denominator.

    `index` has the numbers 0 to new - 1; it may be of anything that computes, and so may the number of old pixels.
    """
    if mode is CoordinateTransformMode.ASYMMETRIC:
        return index * old, new
    if new == 1:
        return index, 1
    if mode is CoordinateTransformMode.ALIGN_CORNERS:
        return index * (old - 1), new - 1
    return (index * 2 + 1) * old - new, 2 * new


def _nearest_pixels(mode: NearestMode, above: Numbers, below: int) -> Numbers:
    """Round the fraction above / below to an integer."""
    if mode is NearestMode.FLOOR:
        return above // below
    if mode is NearestMode.CEIL:
        return -(-above // below)
    if mode is NearestMode.ROUND_HALF_DOWN:
        return -((below - 2 * above) // (2 * below))
    # Inside an image, away from 0 (NORMAL) means up.
    return (2 * above + below) // (2 * below)


def _cubic_weights(rest: Numbers, a: float) -> Numbers:
    """Return the weights of the neighbours at -1, 0, 1 and 2.

    They are those of R. Keys, "Cubic convolution interpolation" (1981), equation 4.
    """

    def near(t: Numbers) -> Numbers:
        return ((a + 2) * t - (a + 3)) * t * t + 1

    def far(t: Numbers) -> Numbers:
        return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a

    return np.stack([far(1 + rest), near(rest), near(1 - rest), far(2 - rest)])
