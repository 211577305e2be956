"""Print how similar sentences are, by the vectors of a text encoder with random weights.

python compare_sentences.py --device 127.0.0.1:50051 "A cat sleeps." "The cat sleeps." "It rains."
"""

import re
import zlib
from pathlib import Path

import click
import numpy as np

from nnrt_client import onnxruntime

WORDS = 1000


@click.command(help=__doc__)
@click.argument("sentences", nargs=-1, required=True)
@click.option("--device", help="HOST:PORT of a daemon; the first of NNRT_DEVICES without.")
@click.option("--models", default="models", show_default=True, type=click.Path(path_type=Path))
def main(sentences: tuple[str, ...], device: str, models: Path) -> None:
    providers = [("NnrtExecutionProvider", {"device": device})]
    session = onnxruntime.InferenceSession(models / "encoder.onnx", providers=providers)
    numbers = [[zlib.crc32(word.encode()) % WORDS for word in re.findall(r"\w+", text.lower())] for text in sentences]
    longest = max(map(len, numbers))
    ids = np.array([given + [0] * (longest - len(given)) for given in numbers], np.int64)
    mask = np.array([[1] * len(given) + [0] * (longest - len(given)) for given in numbers], np.int64)
    (vectors,) = session.run(["vectors"], {"input_ids": ids, "attention_mask": mask})
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for row, sentence in zip(unit @ unit.T, sentences, strict=True):
        print(*(f"{similarity:6.3f}" for similarity in row), sentence)


main()
