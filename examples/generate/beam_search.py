"""Write the likeliest text that a beam search finds: each beam is a sequence, and one that has several heirs is forked.

    nnrt-device serve --backend onnxruntime --listen 127.0.0.1:50051 &
    PYTHONPATH=examples/generate python examples/generate/beam_search.py 127.0.0.1:50051

The prompt is computed once. What the beams have in common is in the device's memory once, until they part.
"""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from export import growing
from train_decoder import load as load_decoder

from nnrt_client import ModelSession, Sequence, load

BEAMS, TOKENS = 4, 40


class Beam(NamedTuple):
    """Text of the search: its tokens, the sum of their log-probabilities, and the scores of what may follow."""

    sequence: Sequence
    tokens: list[int]
    score: float
    following: Any


def best_text(session: ModelSession, prompt: list[int], beams: int = BEAMS, count: int = TOKENS) -> list[int]:
    """Return the tokens of the likeliest text that is found."""
    first = session.sequence()
    found = [Beam(first, [], 0.0, log_probabilities(first, prompt, 0))]
    for step in range(count):
        candidates = [
            (beam.score + float(beam.following[token]), at, int(token))
            for at, beam in enumerate(found)
            for token in np.argsort(beam.following)[-beams:]
        ]
        best = sorted(candidates, reverse=True)[:beams]
        heirs: list[Beam] = []
        for score, at, token in best:
            beam = found[at]
            # The last heir goes on with the sequence itself.
            is_last = all(other is not beam for other in (found[entry[1]] for entry in best[len(heirs) + 1 :]))
            sequence = beam.sequence if is_last else beam.sequence.fork()
            tokens = [*beam.tokens, token]
            heirs.append(Beam(sequence, tokens, score, None))
        for at, beam in enumerate(found):
            if all(at != entry[1] for entry in best):
                beam.sequence.close()
        position = len(prompt) + step
        found = [
            beam._replace(following=log_probabilities(beam.sequence, beam.tokens[-1:], position)) for beam in heirs
        ]
    for beam in found:
        beam.sequence.close()
    return max(found, key=lambda beam: beam.score).tokens


def log_probabilities(sequence: Sequence, tokens: list[int], position: int) -> Any:
    """Run a sequence on its next tokens; return the log-probability of each token that may follow."""
    count = len(tokens)
    inputs = {
        "input_ids": np.array([tokens]),
        "attention_mask": np.ones((1, position + count), np.int64),
        "position_ids": np.arange(position, position + count)[None],
    }
    scores = sequence.run(inputs)["logits"][0, -1]
    return scores - scores.max() - np.log(np.exp(scores - scores.max()).sum())


def main() -> None:
    prompt = sys.argv[2] if len(sys.argv) > 2 else "The daemon"
    tokenizer, decoder = load_decoder()
    with ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "decoder.onnx"
        onnx.save(growing(decoder), path)
        session = stack.enter_context(load(path, sys.argv[1], cache=False, ways="program"))
        for beams in (1, BEAMS):
            tokens = best_text(session, tokenizer.encode(prompt), beams)
            print(f"{beams} beams: {prompt}{tokenizer.decode(tokens)}")


if __name__ == "__main__":
    main()
