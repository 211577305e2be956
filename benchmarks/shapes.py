"""Runs of shapes that were never seen, beside runs of one that was."""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import numpy as np
from harness import ROUNDS, Report, device_daemon, in_turns, pair_cells
from working_client import executor_of, finished

from nnrt_client import Model, OperationType

NODES = (10, 200)
RUNS = 20
# Shapes have at most so many columns, so that tensors stay small.
COLUMNS = 40


def measure() -> Iterator[Report]:
    report = Report(
        "A shape that was never seen",
        f"A chain of ADDs of a small float32 matrix, both of whose dimensions vary, over the local socket: p50 of"
        f" {RUNS} runs, of the same shape again and of shapes that neither side has seen; {ROUNDS} rounds taken in"
        " turns, and the median of their ratios with its quartiles.",
        ("backend", "nodes", "seen µs", "never seen µs", "ratio", "quartiles"),
    )
    with tempfile.TemporaryDirectory() as folder:
        for backend in ("reference", "onnxruntime"):
            with device_daemon(f"unix:{folder}/{backend}", "--backend", backend) as (at, _):
                for nodes in NODES:
                    with executor_of(chain(nodes), at) as executor:
                        seen = partial(executor.run_sync, [np.ones((COLUMNS // 2, COLUMNS // 2), np.float32)])
                        pairs = in_turns(seen, _unseen(executor.run_sync), RUNS)
                    report.add(backend, str(nodes), *pair_cells(pairs))
    yield report


def chain(nodes: int) -> Model:
    """x + 1 + 1 + ... for a matrix of any size."""
    model = Model()
    x = y = model.input((-1, -1), name="x")
    for _ in range(nodes):
        y = model.apply(OperationType.ADD, y, np.ones(1, np.float32))
    return finished(model, x, y)


def _unseen(run: Callable[[list[np.ndarray]], object]) -> Callable[[], object]:
    numbers = count(COLUMNS)

    def run_next() -> object:
        number = next(numbers)
        return run([np.ones((number // COLUMNS, 1 + number % COLUMNS), np.float32)])

    return run_next
