"""Write the file that digits.c reads: `python digits_data.py FILE`.

The file has the number of images (int32), the weights (float32) in the order of the network's layers, the held-out
images (float32 [n, 8, 8, 1]) and their labels (int32 [n]); all little-endian.
"""

import sys
from pathlib import Path

import numpy as np

DIGITS = Path(__file__).resolve().parents[1] / "digits"
sys.path.insert(0, str(DIGITS))

from dataset import load  # noqa: E402
from network import WEIGHTS_FILE  # noqa: E402

LAYERS = ("conv1", "conv2", "dense")


def main(path: Path) -> None:
    digits = load()
    with np.load(WEIGHTS_FILE, allow_pickle=False) as weights, path.open("wb") as file:
        file.write(np.int32(len(digits.test_images)).tobytes())
        for layer in LAYERS:
            for part in ("weight", "bias"):
                file.write(weights[f"{layer}_{part}"].astype("<f4").tobytes())
        file.write(digits.test_images.astype("<f4").tobytes())
        file.write(digits.test_labels.astype("<i4").tobytes())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
