"""Runs of unseen shapes, compared with runs of a seen shape, and steps of a decoder with a growing cache."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from harness import ROUNDS, Report, Run, alternate, at_most, device_daemon, in_rounds, pair_cells, seconds
from onnx_models import AnyArray, Graph
from onnx_networks import in_process_session
from working_client import executor_of, finished

from nnrt_client import Model, OperationType, Way, load

NODES = (10, 200)
RUNS = 20
# Maximum number of columns, which keeps tensors small.
COLUMNS = 40
TOKENS, DECODER_ROUNDS = 300, 5
LAYERS, WIDTH, HEADS = 2, 128, 4

Outputs = Sequence[AnyArray]


def measure() -> Iterator[Report]:
    yield _chains()
    yield _decoder()


def _chains() -> Report:
    report = Report(
        "Unseen shapes",
        f"A chain of ADDs of a small float32 matrix with two dynamic dimensions, over the local socket: p50 of {RUNS}"
        f" runs with one seen shape, and with shapes that are new to client and daemon, in {ROUNDS} alternating rounds."
        " ratio: unseen divided by seen, median over the rounds, with quartiles.",
        ("backend", "nodes", "seen µs", "unseen µs", "ratio", "quartiles"),
    )
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("reference", "onnxruntime"):
            with device_daemon(f"unix:{folder}/{backend}", "--backend", backend) as (at, _):
                for nodes in NODES:
                    with executor_of(chain(nodes), at) as executor:
                        seen = partial(executor.run_sync, [np.ones((COLUMNS // 2, COLUMNS // 2), np.float32)])
                        pairs = alternate(seen, _unseen(executor.run_sync), RUNS)
                    report.add(backend, str(nodes), *pair_cells(pairs))
    return report


def chain(nodes: int) -> Model:
    """Build x + 1 + 1 + ... for a matrix of any size."""
    model = Model()
    x = y = model.input((-1, -1), name="x")
    for _ in range(nodes):
        y = model.apply(OperationType.ADD, y, np.ones(1, np.float32))
    return finished(model, x, y)


def _unseen(run: Callable[[list[AnyArray]], object]) -> Run:
    numbers = count(COLUMNS)

    def run_next() -> object:
        number = next(numbers)
        return run([np.ones((number // COLUMNS, 1 + number % COLUMNS), np.float32)])

    return run_next


# ---- a decoder


def _decoder() -> Report:
    report = Report(
        "A decoder with a growing cache",
        f"{LAYERS} layers of attention with the keys and values of earlier steps as inputs: mean time per step of"
        f" {TOKENS} steps, each with a new shape, for two texts in a row, compared with ONNX Runtime in the client's"
        f" process with one thread. {DECODER_ROUNDS} alternating rounds with new sessions. ratio: daemon divided by in"
        " process, median over the rounds, with quartiles.",
        ("way", "text", "in process ms", "ms", "ratio", "quartiles"),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "decoder.onnx")
        onnx.save(decoder(), path)
        serving = ("--backend", "onnxruntime", "--option", "threads=1")
        with device_daemon(f"unix:{folder}/device", *serving) as (at, _):

            def there(ways: Sequence[Way]) -> list[float]:
                with load(path, at, cache=False, ways=ways) as session:
                    return _decode_twice(lambda feeds: list(session.run(feeds).values()))

            ways: dict[str, Callable[[], list[float]]] = {
                "in process": lambda: _decode_twice(partial(in_process_session(path, 1).run, None)),
                "operators": partial(there, [Way.OPERATORS]),
                "program": partial(there, [Way.PROGRAM]),
            }
            rounds = in_rounds(ways, DECODER_ROUNDS)
    here = rounds.pop("in process")
    for way, times in rounds.items():
        for at_text, text in enumerate(("first", "second")):
            pairs = [(one[at_text], other[at_text]) for one, other in zip(here, times, strict=True)]
            report.add(way, text, *pair_cells(pairs, scale=1e3))
    return report


def decoder() -> onnx.ModelProto:
    """Build attention layers: x, keys and values = f(x, earlier keys and values)."""
    rng = np.random.default_rng(7)
    g = Graph()

    def dense(x: str, inner: int, outer: int) -> str:
        return str(
            g.op("MatMul", x, g.constant(rng.normal(size=(inner, outer)).astype("f4") / np.float32(inner) ** 0.5))
        )

    def split(x: str) -> str:
        shape = g.constant(np.array([1, 1, HEADS, WIDTH // HEADS]))
        return str(g.op("Transpose", g.op("Reshape", x, shape), perm=[0, 2, 1, 3]))

    x = g.input("x", [1, 1, WIDTH])
    kept = []
    for layer in range(LAYERS):
        q, k, v = (split(dense(x, WIDTH, WIDTH)) for _ in range(3))
        past = [g.input(f"{kind}{layer}", [1, HEADS, "past", WIDTH // HEADS]) for kind in "kv"]
        k, v = (g.op("Concat", before, now, axis=2) for before, now in zip(past, (k, v), strict=True))
        kept += [k, v]
        scores = g.op("Softmax", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), axis=-1)
        merged = g.op("Reshape", g.op("MatMul", scores, v), g.constant(np.array([1, 1, WIDTH])))
        x = g.op("Add", x, dense(merged, WIDTH, WIDTH))
        x = g.op("Add", x, dense(g.op("Relu", dense(x, WIDTH, 4 * WIDTH)), 4 * WIDTH, WIDTH))
    return g.model(g.op("Tanh", x), *kept)


def _decode_twice(step: Callable[[Mapping[str, Any]], Outputs]) -> list[float]:
    """Decode two texts and return the seconds per step of each."""
    tokens = at_most(TOKENS, 30)
    names = ["x", *(f"{kind}{layer}" for layer in range(LAYERS) for kind in "kv")]

    def decode() -> None:
        x = np.ones((1, 1, WIDTH), np.float32)
        outputs: Outputs = [x, *[np.zeros((1, HEADS, 1, WIDTH // HEADS), np.float32)] * (2 * LAYERS)]
        for _ in range(tokens):
            outputs = step(dict(zip(names, outputs, strict=True)))

    return [seconds(decode) / tokens for _ in range(2)]
