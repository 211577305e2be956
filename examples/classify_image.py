"""Print the five most likely classes of an image, by an ONNX network trained on ImageNet.

NNRT_DEVICES=127.0.0.1:50051 python examples/classify_image.py resnet50.onnx cat.png --labels classes.txt
"""

from pathlib import Path
from typing import Any

import click
import numpy as np
from PIL import Image

import nnrt_client


def pixels(path: Path, height: int, width: int) -> Any:
    """Return the network's input: an array from a .npy file, or an image, scaled and normalized in NCHW."""
    if path.suffix == ".npy":
        return np.load(path, allow_pickle=False)
    with Image.open(path) as image:
        scaled = np.asarray(image.convert("RGB").resize((width, height)), "f4") / 255
    normalized = (scaled - np.array([0.485, 0.456, 0.406], "f4")) / np.array([0.229, 0.224, 0.225], "f4")
    return normalized.transpose(2, 0, 1)[None]


@click.command(help=__doc__)
@click.argument("model")
@click.argument("image", type=click.Path(exists=True, path_type=Path))
@click.option("--labels", type=click.File(), help="A file with the name of a class on each line.")
def main(model: str, image: Path, labels: Any) -> None:
    with nnrt_client.load(model) as session:
        height, width = (224 if dim == -1 else dim for dim in (session.inputs[0].shape or ())[-2:])
        scores = next(iter(session.run([pixels(image, height, width)]).values())).ravel()
    names = dict(enumerate(labels.read().splitlines() if labels else ()))
    for index in np.argsort(-scores)[:5]:
        print(f"{scores[index]:8.4f}  {names.get(int(index), index)}")


main()
