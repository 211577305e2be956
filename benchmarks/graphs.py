"""The cost of a node: where shapes vary from run to run, and where a graph is large.

    python benchmarks/graphs.py [nodes]

Everything is CPU time, which other processes disturb least: of this one's thread, and for builds of the daemon too.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from report import Report
from small_run import device_daemon

from nnrt_client import Compilation, Model, OperationType, Runtime
from nnrt_client.model.model import parts_of
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel, load_backend
from nnrt_hdi.ops import inferred_graph

NODES = 10_000
# Of the chain that runs: few enough that its steps stay in the processor's caches.
CHAIN = 200
ROWS, COLUMNS = 4, 16
SHAPES = 8
ROUNDS = 60
BUILDS = 3

Inputs = Sequence[NDArray[np.float32]]


def chain(nodes: int, rows: int) -> Model:
    """x + 1 + 1 + ..., of so many rows; -1 where they vary."""
    model = Model()
    x = y = model.input((rows, COLUMNS), name="x")
    one = model.constant(np.ones(COLUMNS, np.float32))
    for _ in range(nodes):
        y = model.apply(OperationType.ADD, y, one)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def measure(nodes: int = NODES) -> list[Report]:
    return [_runs(), _builds(nodes)]


def _runs() -> Report:
    report = Report(
        "A node whose first dimension varies",
        f"A chain of {CHAIN} ADDs of [{ROWS}, {COLUMNS}] float32 in the reference backend, in process: microseconds of"
        f" CPU for each node, the least of {ROUNDS} rounds taken in turns. Beside numpy's addition alone.",
        ("runs", "µs a node", "beside numpy's addition"),
    )
    fixed, varying = _prepared(ROWS), _prepared(-1)
    given = [_x(rows) for rows in range(1, 1 + SHAPES)]
    rows = iter(range(1 + SHAPES, 1 + SHAPES + ROUNDS + 1))
    x, one = _x(ROWS), np.ones(COLUMNS, np.float32)
    works: dict[str, tuple[Callable[[], object], int]] = {
        "numpy's addition": (lambda: [np.add(x, one) for _ in range(CHAIN)], 1),
        "shapes fixed": (partial(_run, fixed, [[x]]), 1),
        "shapes vary, the same again": (partial(_run, varying, [[x]]), 1),
        f"{SHAPES} shapes in turn": (partial(_run, varying, [[x] for x in given]), SHAPES),
        "a shape not seen before": (lambda: _run(varying, [[_x(next(rows))]]), 1),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, (work, runs) in works.items():
            times[name].append(_cpu_s(work) / runs / CHAIN * 1e6)
    addition = min(times["numpy's addition"])
    for name, each in times.items():
        report.add(name, f"{min(each):.2f}", f"{min(each) / addition:.1f}")
    return report


def _builds(nodes: int) -> Report:
    report = Report(
        "A large graph",
        f"A chain of {nodes} ADDs: seconds of CPU to make it by `Model.apply`, and to build it, of the client and of"
        f" the daemon, the least of {BUILDS}.",
        ("", "client s", "daemon s", "µs a node"),
    )
    made_s = min(_cpu_s(partial(chain, nodes, ROWS)) for _ in range(BUILDS))
    report.add("to make", f"{made_s:.2f}", "", f"{made_s / nodes * 1e6:.0f}")
    for backend in ("reference", "onnxruntime"):
        client_s, daemon_s = _build_s(backend, nodes)
        both_s = client_s + daemon_s
        report.add(f"to build, {backend}", f"{client_s:.2f}", f"{daemon_s:.2f}", f"{both_s / nodes * 1e6:.0f}")
    return report


def _build_s(backend: str, nodes: int) -> tuple[float, float]:
    """The least CPU seconds of the client and the daemon, each graph one that neither has seen."""
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        device_daemon(f"unix:{folder}/device", "--backend", backend) as (address, pid),
        Runtime([address]) as runtime,
    ):
        for extra in range(BUILDS):
            model = chain(nodes + extra, ROWS)
            before = time.process_time(), _process_s(pid)
            with Compilation(model, runtime.device()) as compilation:
                compilation.build()
                found.append((time.process_time() - before[0], _process_s(pid) - before[1]))
    return min(found, key=sum)


def _process_s(pid: int) -> float:
    """The CPU seconds that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def _prepared(rows: int) -> PreparedModel:
    graph = inferred_graph(parts_of(chain(CHAIN, rows)).graph)
    return load_backend("reference").prepare(graph, ModelConfig(), lambda _: None)


def _run(model: PreparedModel, runs: Sequence[Inputs]) -> None:
    for inputs in runs:
        model.sizes(inputs)
        model.run(inputs, Cancellation())


def _x(rows: int) -> NDArray[np.float32]:
    return np.ones((rows, COLUMNS), np.float32)


if __name__ == "__main__":
    for report in measure(*map(int, sys.argv[1:])):
        report.show()
