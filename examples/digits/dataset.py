"""Handwritten digits of this demo: 1,797 tiny images in a fixed split.

The data are in ``data/digits.npz``; ``data/SOURCE.md`` says where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

DATA_FILE = Path(__file__).resolve().parent / "data" / "digits.npz"
TRAIN_COUNT = 1297
PIXEL_MAX = 16

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Digits:
    """Digits: images are float32 ``[n, 8, 8, 1]`` (NHWC) in 0..1; labels are uint8 ``[n]`` in 0..9."""

    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels


def load() -> Digits:
    """Load the digits: the first 1,297 are for training, the last 500 are held out.

    The split is not shuffled: neighbouring images resemble each other, so a shuffled split would put similar images
    into both parts, and the measured accuracy would be too high.
    """
    with np.load(DATA_FILE, allow_pickle=False) as archive:
        pixels: npt.NDArray[np.uint8] = archive["images"]
        labels: Labels = archive["labels"]
    images: Images = pixels[..., np.newaxis].astype(np.float32) / np.float32(PIXEL_MAX)
    return Digits(
        train_images=images[:TRAIN_COUNT],
        train_labels=labels[:TRAIN_COUNT],
        test_images=images[TRAIN_COUNT:],
        test_labels=labels[TRAIN_COUNT:],
    )
