"""Training of the demo's decoder on the repository's own pages, in plain numpy: less than a minute on two cores.

Run it from anywhere, with nnrt installed::

    python examples/generate/train_decoder.py                        # writes build/generate/weights.npz, and some text
    python examples/generate/train_decoder.py --steps 2000 --seed 7  # learns more, with other random numbers

The same pages and seed give the same weights, up to floating point.
"""

import argparse
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path

if __name__ == "__main__":
    # Before numpy is imported: each of the threads below computes its products alone.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from decoder import Decoder, Sizes, Tokens, Weights, random_weights
from rich.console import Console
from rich.progress import track
from text import END, ROOT, Tokenizer, pages

# Texts of a step, each of so many tokens. Each thread has a part of them.
TEXTS, LENGTH, THREADS = 8, 96, 2
STEPS, WARM_UP = 300, 20
LEARNING_RATE, WEIGHT_DECAY = 3e-3, 0.1
ADAM_BETA1, ADAM_BETA2, ADAM_EPSILON = 0.9, 0.98, 1e-8
KEPT = ROOT / "build/generate/weights.npz"


class Adam:
    """Adam optimizer with decoupled weight decay (AdamW); vectors do not decay."""

    def __init__(self, weights: Weights) -> None:
        """Start with zero moments. ``weights`` are updated in place."""
        self.weights = weights
        self.steps = 0
        self.mean = {name: np.zeros_like(value) for name, value in weights.items()}
        self.square = {name: np.zeros_like(value) for name, value in weights.items()}

    def step(self, grads: Weights, rate: float) -> None:
        """Move every weight, in place, against its gradient."""
        self.steps += 1
        correction = math.sqrt(1 - ADAM_BETA2**self.steps) / (1 - ADAM_BETA1**self.steps)
        for name, grad in grads.items():
            mean, square, value = self.mean[name], self.square[name], self.weights[name]
            mean += (1 - ADAM_BETA1) * (grad - mean)
            square += (1 - ADAM_BETA2) * (grad * grad - square)
            if value.ndim > 1:
                value *= 1 - rate * WEIGHT_DECAY
            value -= rate * correction * mean / (np.sqrt(square) + ADAM_EPSILON)


def train(text: Tokens, sizes: Sizes, steps: int = STEPS, seed: int = 0) -> tuple[Decoder, list[float]]:
    """Train a new decoder on a text. Return it with the loss of each step.

    The learning rate rises to its height, then falls to zero along a cosine.
    """
    rng = np.random.default_rng(seed)
    decoder = Decoder(sizes, random_weights(sizes, seed))
    adam = Adam(decoder.weights)
    windows = np.lib.stride_tricks.sliding_window_view(text, LENGTH + 1)
    losses: list[float] = []
    with ThreadPoolExecutor(THREADS) as threads:
        is_shown = sys.stderr.isatty()
        bar = track(range(steps), "training", console=Console(stderr=True), transient=True, disable=not is_shown)
        for step in bar:
            texts = windows[rng.integers(0, len(windows), TEXTS)]
            parts = list(threads.map(decoder.loss_and_gradients, np.split(texts, THREADS)))
            grads: Weights = {name: np.mean([grads[name] for _, grads in parts], axis=0) for name in decoder.weights}
            rate = LEARNING_RATE * min(1, (step + 1) / WARM_UP) * (1 + math.cos(math.pi * step / steps)) / 2
            adam.step(grads, rate)
            losses.append(sum(loss for loss, _ in parts) / THREADS)
    return decoder, losses


def train_on_pages(sizes: Sizes, steps: int = STEPS, seed: int = 0) -> tuple[Tokenizer, Decoder, list[float]]:
    """Learn the tokens of the repository's pages, and train a new decoder on these."""
    texts = pages()
    tokenizer = Tokenizer.learned(texts, sizes.tokens)
    text = np.array([token for page in texts for token in (*tokenizer.encode(page), END)])
    return tokenizer, *train(text, sizes, steps, seed)


def save(path: Path, tokenizer: Tokenizer, decoder: Decoder) -> None:
    """Write all that the decoder needs into one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, pairs=tokenizer.pairs, sizes=astuple(decoder.sizes), **decoder.weights)


def load(path: Path = KEPT) -> tuple[Tokenizer, Decoder]:
    """Return what `save` wrote. Train it first, in a process of its own, if there is no such file."""
    if not path.exists():
        subprocess.run([sys.executable, __file__, "--output", path], check=True, stdout=subprocess.DEVNULL)
    with np.load(path, allow_pickle=False) as arrays:
        weights = dict(arrays)
    tokenizer = Tokenizer(weights.pop("pairs"))
    return tokenizer, Decoder(Sizes(*weights.pop("sizes").tolist()), weights)


def continued(decoder: Decoder, tokens: list[int], count: int, seed: int = 0) -> list[int]:
    """Add tokens to a text until its page ends, each drawn from the twenty likeliest ones."""
    rng = np.random.default_rng(seed)
    tokens = tokens.copy()
    for _ in range(count):
        scores = decoder.logits(np.array([tokens]))[0, -1] / 0.5
        likely = np.argsort(scores)[-20:]
        chances = np.exp(scores[likely] - scores[likely].max())
        token = int(rng.choice(likely, p=chances / chances.sum()))
        if token == END:
            break
        tokens.append(token)
    return tokens


def main() -> None:
    """Train, save the weights, and show what the decoder writes."""
    parser = argparse.ArgumentParser(description="Train a small decoder on the repository's pages in numpy.")
    parser.add_argument("--steps", type=int, default=STEPS, help="steps of training (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (%(default)s)")
    parser.add_argument("--output", type=Path, default=KEPT, help="the .npz file to write")
    arguments = parser.parse_args()

    started = time.perf_counter()
    tokenizer, decoder, losses = train_on_pages(Sizes(), arguments.steps, arguments.seed)
    print(f"trained {sum(map(np.size, decoder.weights.values())):,} weights in {time.perf_counter() - started:.1f} s")
    print(f"loss {losses[0]:.2f} in the first step, {np.mean(losses[-20:]):.2f} in the last ones")
    save(arguments.output, tokenizer, decoder)
    print(f"wrote {arguments.output}\n")
    print(tokenizer.decode(continued(decoder, tokenizer.encode("The daemon"), 80)))


if __name__ == "__main__":
    main()
