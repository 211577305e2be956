"""Steps of a recurrent network beside ONNX Runtime in this process: its state in arrays, shared memory, and the daemon.

    PYTHONPATH=tests:tests/onnx_import python benchmarks/stateful.py

Small convolutions and an LSTM whose state goes in and comes out, as networks that find speech have them. Both sides
compute the same ONNX file with one thread. Each way takes its own state from step to step, and all must agree.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx_models import Graph
from onnx_networks import in_process_session
from report import Report, pair_cells
from small_run import device_daemon, in_turns

from nnrt_client import ModelSession, ResidentTensor, Tensor, load

SAMPLES = 576
WIDTH = 128
# Filters of the first convolution, a frame of samples each.
FILTERS, FRAME, HOP = 258, 256, 12
# Steps after which states are compared.
COMPARED_STEPS = 20

Step = Callable[[NDArray[np.float32]], Sequence[Any]]


def recurrent_network() -> onnx.ModelProto:
    """y, new state = f(x, state): one step takes about 0.2 ms."""
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
    """The state is read in one tensor and written to the next, round and round."""
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
    report = Report(
        "A recurrent network, step by step",
        f"Convolutions over {SAMPLES} samples and an LSTM of {WIDTH} cells, whose state each step takes from the one"
        " before; p50 of runs, rounds taken in turns with ONNX Runtime in the client's process, one thread each; a"
        " ratio is the median of the rounds' ratios, with their quartiles.",
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
            ("two Tensors in turns", with_tensors(session, shared)),
            ("two ResidentTensors in turns", with_tensors(session, resident)),
            ("one ResidentTensor, in place", with_tensors(session, resident[:1])),
        ):
            here = in_process(path)
            require_agreement(here, there)
            x = np.zeros((1, 1, SAMPLES), np.float32)
            report.add(way, *pair_cells(in_turns(partial(here, x), partial(there, x))))
    return [report]


def require_agreement(here: Step, there: Step) -> None:
    """Two sides that compute different things are not compared."""
    rng = np.random.default_rng(6)
    for _ in range(COMPARED_STEPS):
        x = rng.normal(size=(1, 1, SAMPLES)).astype("f4")
        (score, _), (same, _) = here(x), there(x)
        np.testing.assert_allclose(same, score, rtol=1e-4)


if __name__ == "__main__":
    for report in measure():
        report.show()
