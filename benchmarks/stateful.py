"""Stateful networks compared with ONNX Runtime in this process, and runs of unseen shapes.

    PYTHONPATH=tests:tests/onnx_import python benchmarks/stateful.py

The first network has small convolutions and an LSTM whose state is an input and an output, like networks that detect
speech; the state is in arrays, in shared memory, or on the device. The second is a decoder whose cache grows with each
token, so that each step has new shapes. Both sides compute the same ONNX file with one thread. Each alternative carries
its own state from step to step, and all results must agree.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from harness import Report, alternate, device_daemon, pair_cells
from numpy.typing import NDArray
from onnx_models import Graph
from onnx_networks import in_process_session

from nnrt_client import ModelSession, ResidentTensor, Tensor, load

SAMPLES = 576
WIDTH = 128
# First convolution: number of filters, their length and stride in samples.
FILTERS, FRAME, HOP = 258, 256, 12
# Decoder sizes, tokens per text, and number of texts.
LAYERS, HEADS, HEAD, WORDS = 4, 4, 16, 256
TOKENS, TEXTS = 300, 2
# Networks with varying shapes: numbers of nodes, rounds, and shapes per round.
NODES, SHAPE_ROUNDS, SHAPES_PER_ROUND = (10, 200), 8, 30
# Number of steps that are compared.
COMPARED_STEPS = 20

Step = Callable[[NDArray[np.float32]], Sequence[Any]]


def recurrent_network() -> onnx.ModelProto:
    """Build score, new state = f(x, state); one step takes about 0.2 ms."""
    rng = np.random.default_rng(5)
    g = Graph()

    def weight(*shape: int) -> str:
        return g.constant(rng.normal(size=shape).astype("f4") / np.float32(np.prod(shape[1:])) ** 0.5)

    def convolution(x: str, inner: int, outer: int, length: int, **attributes: Any) -> str:
        return str(g.op("Relu", g.op("Conv", x, weight(outer, inner, length), **attributes)))

    x, state = g.input("x", [1, 1, SAMPLES]), g.input("state", [2, 1, WIDTH])
    y = convolution(x, 1, FILTERS, FRAME, strides=[HOP])
    for inner, outer in ((FILTERS, WIDTH), (WIDTH, WIDTH), (WIDTH, WIDTH)):
        y = convolution(y, inner, outer, 3, pads=[1, 1])
    h, c = g.op("Split", state, outputs=2, axis=0, num_outputs=2)
    gates = 4 * WIDTH
    lstm = (weight(1, gates, WIDTH), weight(1, gates, WIDTH), weight(1, 2 * gates))
    steps = g.op("Transpose", y, perm=[2, 0, 1])
    _, h, c = g.op("LSTM", steps, *lstm, "", h, c, outputs=3, hidden_size=WIDTH)
    score = g.op("Sigmoid", g.op("ReduceMean", h, keepdims=0))
    return g.model(score, g.op("Concat", h, c, axis=0))


def decoder() -> onnx.ModelProto:
    """Build scores, keys and values = f(token, earlier keys and values); one step takes about 0.2 ms."""
    rng, width = np.random.default_rng(4), HEADS * HEAD
    g = Graph()

    def linear(x: str, inner: int, outer: int) -> str:
        weight = (rng.normal(size=(inner, outer)) / inner**0.5).astype("f4")
        return str(g.op("Add", g.op("MatMul", x, g.constant(weight)), g.constant(np.zeros(outer, np.float32))))

    def norm(x: str) -> str:
        return str(g.op("LayerNormalization", x, g.constant(np.ones(width, np.float32)), axis=-1))

    def heads(x: str) -> str:
        parts = g.op("Reshape", linear(x, width, width), g.constant(np.array([0, 0, HEADS, HEAD])))
        return str(g.op("Transpose", parts, perm=[0, 2, 1, 3]))

    token = g.input("token", [1, "new"], np.int64)
    caches = [g.input(f"cache{at}", [1, HEADS, "past", HEAD]) for at in range(2 * LAYERS)]
    x = g.op("Gather", g.constant(rng.normal(size=(WORDS, width)).astype("f4")), token)
    longer = []
    for keys, values in zip(caches[::2], caches[1::2], strict=True):
        y = norm(x)
        keys, values = (g.op("Concat", cache, heads(y), axis=2) for cache in (keys, values))
        longer += [keys, values]
        seen = g.op("MatMul", heads(y), g.op("Transpose", keys, perm=[0, 1, 3, 2]))
        y = g.op("MatMul", g.op("Softmax", g.op("Div", seen, g.constant(np.float32(HEAD**0.5))), axis=-1), values)
        y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.constant(np.array([0, 0, width])))
        x = g.op("Add", x, linear(y, width, width))
        x = g.op("Add", x, linear(g.op("Relu", linear(norm(x), width, 2 * width)), 2 * width, width))
    return g.model(linear(norm(x), width, WORDS), *longer)


def attentive_network(nodes: int) -> onnx.ModelProto:
    """Build y [n, t, 16] = f(x) from blocks of ten nodes whose shapes all depend on n and t."""
    rng = np.random.default_rng(3)
    g = Graph()
    y = g.input("x", ["n", "t", 16])
    for _ in range(nodes // 10):
        weight = g.constant((rng.normal(size=(16, 16)) / 4).astype("f4"))
        a = g.op("Relu", g.op("Add", g.op("MatMul", y, weight), g.constant(rng.normal(size=16).astype("f4"))))
        seen = g.op("Softmax", g.op("MatMul", a, g.op("Transpose", a, perm=[0, 2, 1])), axis=-1)
        b = g.op("Add", g.op("MatMul", seen, a), y)
        y = g.op("Tanh", g.op("Sub", b, a))
    return g.model(y)


# ---- ways to keep the state


def in_process(path: Path) -> Step:
    session = in_process_session(path, 1)
    state = np.zeros((2, 1, WIDTH), np.float32)

    def step(x: NDArray[np.float32]) -> Sequence[Any]:
        nonlocal state
        score, state = session.run(None, {"x": x, "state": state})
        return score, state

    return step


def with_arrays(session: ModelSession) -> Step:
    state = np.zeros((2, 1, WIDTH), np.float32)

    def step(x: NDArray[np.float32]) -> Sequence[Any]:
        nonlocal state
        score, state = session.run({"x": x, "state": state}).values()
        return score, state

    return step


def with_tensors(session: ModelSession, tensors: Sequence[Tensor | ResidentTensor]) -> Step:
    """Return a step that reads the state from one tensor and writes it to the next, in a ring."""
    score, name = (output.name for output in session.outputs)
    _write(tensors[0], np.zeros((2, 1, WIDTH), np.float32))
    at = 0

    def step(x: NDArray[np.float32]) -> Sequence[Any]:
        nonlocal at
        before, at = tensors[at], (at + 1) % len(tensors)
        result = session.run({"x": x, "state": before}, outputs={score: None, name: tensors[at]})
        return result[score], tensors[at]

    return step


def _write(tensor: Tensor | ResidentTensor, array: NDArray[np.float32]) -> None:
    if isinstance(tensor, ResidentTensor):
        tensor.write(array)
    else:
        tensor.numpy()[...] = array


def measure() -> list[Report]:
    return [_recurrent(), _growing(), _unseen()]


def _recurrent() -> Report:
    report = Report(
        "A recurrent network, step by step",
        f"Convolutions over {SAMPLES} samples and an LSTM of {WIDTH} cells; each step takes its state from the step"
        " before. p50 of runs, in rounds that alternate with ONNX Runtime in the client's process, one thread each."
        " ratio: daemon divided by in process, median over the rounds, with quartiles.",
        ("state", "in process µs", "µs", "ratio", "quartiles"),
    )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:
        path = Path(folder) / "network.onnx"
        onnx.save(recurrent_network(), path)
        daemon = device_daemon(f"unix:{folder}/device", "--backend", "onnxruntime", "--option", "threads=1")
        at, _ = resources.enter_context(daemon)
        session = resources.enter_context(load(path, at, cache=False))
        _, desc = session.inputs
        shared = [resources.enter_context(Tensor(session.device, desc)) for _ in range(2)]
        resident = [resources.enter_context(ResidentTensor(session.device, desc)) for _ in range(2)]
        for way, there in (
            ("arrays", with_arrays(session)),
            ("two alternating Tensors", with_tensors(session, shared)),
            ("two alternating ResidentTensors", with_tensors(session, resident)),
            ("one ResidentTensor, in place", with_tensors(session, resident[:1])),
        ):
            here = in_process(path)
            require_agreement(here, there)
            x = np.zeros((1, 1, SAMPLES), np.float32)
            report.add(way, *pair_cells(alternate(partial(here, x), partial(there, x))))
    return report


def _growing() -> Report:
    report = Report(
        "A decoder whose cache grows",
        f"{TOKENS} tokens, {LAYERS} layers of {HEADS} heads of {HEAD}; each step extends the keys and values, which are"
        " arrays, by one: each step has new shapes. p50 of a text's steps on the onnxruntime backend, alternating with"
        " ONNX Runtime in the client's process, one thread each; for the first text of a session and the next.",
        ("way", "text", "in process µs", "µs", "ratio"),
    )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:
        path = Path(folder) / "decoder.onnx"
        onnx.save(decoder(), path)
        daemon = device_daemon(f"unix:{folder}/device", "--backend", "onnxruntime", "--option", "threads=1")
        at, _ = resources.enter_context(daemon)
        local = in_process_session(path, 1)
        names = [entry.name for entry in local.get_inputs()]
        for way in ("operators", "program"):
            session = resources.enter_context(load(path, at, cache=False, ways=way))
            for text in range(1, TEXTS + 1):
                here, there = _decode(partial(local.run, None), names), _decode(partial(_values, session), names)
                steps = [(next(here), next(there)) for _ in range(TOKENS)]
                for (_, scores), (_, same) in steps:
                    np.testing.assert_allclose(same, scores, rtol=1e-3, atol=1e-3)
                one, other = (statistics.median([step[side][0] for step in steps]) * 1e6 for side in range(2))
                report.add(way, str(text), f"{one:.0f}", f"{other:.0f}", f"{other / one:.2f}")
    return report


def _values(session: ModelSession, inputs: dict[str, NDArray[Any]]) -> list[Any]:
    return list(session.run(inputs).values())


def _decode(run: Callable[[dict[str, NDArray[Any]]], list[Any]], names: Sequence[str]) -> Iterator[tuple[float, Any]]:
    """Decode a text without end; yield the seconds and the scores of each step."""
    token, caches = np.zeros((1, 1), np.int64), [np.zeros((1, HEADS, 1, HEAD), np.float32)] * (2 * LAYERS)
    while True:
        began = time.perf_counter()
        scores, *caches = run(dict(zip(names, [token, *caches], strict=True)))
        yield time.perf_counter() - began, scores
        token = scores[:, -1:].argmax(-1)


def _unseen() -> Report:
    report = Report(
        "Unseen shapes of attention networks",
        "x of [n, t, 16], 0.2 to 20 KB, over the local socket: p50 of the first run with a shape (unseen) and of the"
        f" third (seen), in {SHAPE_ROUNDS} rounds of {SHAPES_PER_ROUND} shapes. ratio: unseen divided by seen, median"
        " over the rounds, with quartiles.",
        ("backend", "way", "nodes", "seen µs", "unseen µs", "ratio", "quartiles"),
    )
    shapes = [(n, t) for n in range(2, 10) for t in range(2, 36)]
    np.random.default_rng(1).shuffle(shapes)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as resources:
        for backend, ways in (("reference", ("operators",)), ("onnxruntime", ("operators", "program"))):
            at, _ = resources.enter_context(device_daemon(f"unix:{folder}/{backend}", "--backend", backend))
            for nodes, way in itertools.product(NODES, ways):
                path = Path(folder) / f"{nodes}.onnx"
                onnx.save(attentive_network(nodes), path)
                session = resources.enter_context(load(path, at, cache=False, ways=way))
                left = iter(shapes)
                rounds = [_measure_shapes(session, left) for _ in range(SHAPE_ROUNDS)]
                report.add(backend, way, str(nodes), *pair_cells(rounds))
    return report


def _measure_shapes(session: ModelSession, shapes: Iterator[tuple[int, int]]) -> tuple[float, float]:
    """Return the median µs of runs with seen shapes and of runs with unseen shapes."""
    times: list[list[float]] = [[], [], []]
    for n, t in itertools.islice(shapes, SHAPES_PER_ROUND):
        x = np.ones((n, t, 16), np.float32)
        for turn in times:
            began = time.perf_counter()
            session.run({"x": x})
            turn.append((time.perf_counter() - began) * 1e6)
    unseen, _, seen = (statistics.median(turn) for turn in times)
    return seen, unseen


def require_agreement(here: Step, there: Step) -> None:
    """Raise AssertionError unless both sides compute the same: otherwise the comparison would be void."""
    rng = np.random.default_rng(6)
    for _ in range(COMPARED_STEPS):
        x = rng.normal(size=(1, 1, SAMPLES)).astype("f4")
        (score, _), (same, _) = here(x), there(x)
        np.testing.assert_allclose(same, score, rtol=1e-4)


if __name__ == "__main__":
    for report in measure():
        report.show()
