"""Print how similar sentences are, by the embeddings of an ONNX text encoder like BERT.

NNRT_DEVICES=127.0.0.1:50051 python examples/embed_text.py encoder.onnx vocab.txt "A cat sleeps." "A dog naps."
"""

import re
import sys
from pathlib import Path

import numpy as np

import nnrt_client


def pieces(word: str, vocabulary: dict[str, int], behind: str = "") -> list[str]:
    """Split a word into WordPiece tokens: its longest known prefix, then the rest likewise.

    `behind` is the prefix of tokens within a word: "##", or "" at the start of the word.
    """
    for end in range(len(word), 0, -1):
        if behind + word[:end] in vocabulary:
            rest = pieces(word[end:], vocabulary, "##") if word[end:] else []
            return ["[UNK]"] if "[UNK]" in rest else [behind + word[:end], *rest]
    return ["[UNK]"]


if len(sys.argv) < 4:
    sys.exit(__doc__)
_, model, vocabulary, *sentences = sys.argv
known = {piece: index for index, piece in enumerate(Path(vocabulary).read_text("utf-8").split("\n"))}
means = []
with nnrt_client.load(model) as session:
    for words in (re.findall(r"\w+|[^\w\s]", sentence.lower()) for sentence in sentences):
        ids = [known[p] for p in ("[CLS]", *(p for word in words for p in pieces(word, known)), "[SEP]")]
        others = {"attention_mask": [[1] * len(ids)], "token_type_ids": [[0] * len(ids)]}
        outputs = session.run({x.name: others.get(x.name, [ids]) for x in session.inputs})
        means.append(next(iter(outputs.values())).mean(axis=(0, 1)))
unit = np.array(means) / np.linalg.norm(means, axis=1, keepdims=True)
for row, sentence in zip(unit @ unit.T, sentences, strict=True):
    print(*(f"{similarity:6.3f}" for similarity in row), sentence)
