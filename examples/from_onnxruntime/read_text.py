"""Print the lines of digits on a page: one network finds them, another reads them.

python read_text.py --device 127.0.0.1:50051
"""

from pathlib import Path

import click
import numpy as np

from nnrt_client import onnxruntime


@click.command(help=__doc__)
@click.option("--device", help="HOST:PORT of a daemon; the first of NNRT_DEVICES without.")
@click.option("--models", default="models", show_default=True, type=click.Path(path_type=Path))
def main(device: str, models: Path) -> None:
    providers = [("NnrtExecutionProvider", {"device": device})]
    detector = onnxruntime.InferenceSession(models / "detector.onnx", providers=providers)
    reader = onnxruntime.InferenceSession(models / "reader.onnx", providers=providers)
    characters = reader.get_modelmeta().custom_metadata_map["characters"]
    image = np.load(models / "page.npy")[None, None]
    (ink,) = detector.run(["ink"], {"image": image})
    rows = np.flatnonzero((ink[0, 0] > 0.5).any(axis=1))
    for line in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
        (scores,) = reader.run(["scores"], {"line": image[:, :, line[0] : line[-1] + 1]})
        best = scores[0].argmax(axis=0)  # 0 means no digit.
        print(
            "".join(
                characters[now - 1] for before, now in zip([0, *best], best, strict=False) if now not in (0, before)
            )
        )


main()
