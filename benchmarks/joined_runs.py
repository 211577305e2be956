"""What clients get of a small network when the daemon computes their runs together, beside one by one.

python benchmarks/joined_runs.py [BACKEND]
"""

import multiprocessing as mp
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from multiprocessing.synchronize import Barrier
from typing import Any, NamedTuple

import numpy as np
from in_flight import runs_at_a_time
from numpy.typing import NDArray
from processor_time import processor_s
from report import Report, pair_cells
from small_run import device_daemon

from nnrt_client import Batching, Compilation, Executor, FuseType, Model, OperationType, Runtime

LAYERS = (256, 512, 512, 10)
CLIENTS = 8
# Of all clients together.
IN_FLIGHT = (16, 128)
MAX_SIZE = 16
WINDOW_S = 1.0
ROUNDS = 5
ALONE_RUNS = 400


def dense_network() -> Model:
    """Dense layers with RELU between them, for any number of rows."""
    rng = np.random.default_rng(0)
    model = Model()
    x = rows = model.input((-1, LAYERS[0]), name="x")
    for inner, outer in pairwise(LAYERS):
        weight = rng.standard_normal((outer, inner), np.float32) / np.float32(inner**0.5)
        bias = np.zeros(outer, np.float32)
        fuse = FuseType.NONE if outer == LAYERS[-1] else FuseType.RELU
        rows = model.apply(OperationType.FULL_CONNECTION, rows, weight, bias, activation=fuse)
    model.specify_inputs_and_outputs([x], [rows])
    model.finish()
    return model


def client(address: str, batching: Batching | None, in_flight: int, barrier: Barrier, counts: Any) -> None:
    """Once per round: so many runs under way for a while; says how many ended."""
    x = [np.ones((1, LAYERS[0]), np.float32)]
    with Runtime([address]) as runtime, Compilation(dense_network(), runtime.device()) as compilation:
        compilation.set_batching(batching)
        compilation.build()
        with Executor(compilation) as executor:
            for _ in range(20):
                executor.run_sync(x)
            for _ in range(ROUNDS):
                barrier.wait()
                counts.put(runs_at_a_time(executor, x, in_flight, WINDOW_S))
                barrier.wait()


class Work(NamedTuple):
    """Work of a round: runs per second, and the processor time of each, of clients and daemon."""

    per_s: float
    clients_us: float
    daemon_us: float


class Clients:
    """Client processes that stand ready to run at the same time."""

    def __init__(self, address: str, batching: Batching | None, in_flight: int) -> None:
        context = mp.get_context("spawn")
        self._barrier = context.Barrier(CLIENTS + 1)
        self._counts = context.Queue()
        arguments = (address, batching, in_flight // CLIENTS, self._barrier, self._counts)
        self._processes = [context.Process(target=client, args=arguments) for _ in range(CLIENTS)]
        for process in self._processes:
            process.start()

    def work(self, daemon: int) -> Work:
        """Have all work for one window, and tell what they and the daemon of this pid did."""
        self._barrier.wait()
        whose = [process.pid for process in self._processes if process.pid], [daemon]
        before = list(map(processor_s, whose))
        count: int = sum(self._counts.get() for _ in range(CLIENTS))
        spent = (processor_s(pids) - earlier for pids, earlier in zip(whose, before, strict=True))
        clients_us, daemon_us = (seconds / count * 1e6 for seconds in spent)
        self._barrier.wait()
        return Work(count / WINDOW_S, clients_us, daemon_us)

    def join(self) -> None:
        for process in self._processes:
            process.join()


def alone_ms(address: str) -> list[tuple[float, float]]:
    """Medians of runs that no others are beside, without and with batching, in turns."""
    x = [np.ones((1, LAYERS[0]), np.float32)]
    medians = []
    with Runtime([address]) as runtime, Compilation(dense_network(), runtime.device()) as off:
        off.build()
        with Compilation(dense_network(), runtime.device()) as on:
            on.set_batching(Batching(MAX_SIZE))
            on.build()
            with Executor(off) as plain, Executor(on) as batched:
                for executor in (plain, batched):
                    _times_ms(executor, x)
                for _ in range(ROUNDS):
                    medians.append((statistics.median(_times_ms(plain, x)), statistics.median(_times_ms(batched, x))))
    return medians


def _times_ms(executor: Executor, x: list[NDArray[np.float32]]) -> list[float]:
    times = []
    for _ in range(ALONE_RUNS):
        began = time.perf_counter()
        executor.run_sync(x)
        times.append((time.perf_counter() - began) * 1e3)
    return times


def measure(backend: str = "onnxruntime") -> list[Report]:
    throughput = Report(
        "Runs of several clients computed together",
        f"A dense network of {'-'.join(map(str, LAYERS))} on {backend}, a row in each run, from {CLIENTS} client"
        " processes on one host with so many runs in flight together: rows per second without and with"
        f" Batching(max_size={MAX_SIZE}), {ROUNDS} rounds of {WINDOW_S:g} s taken in turns, and the median"
        " of their ratios with its quartiles; and what processor time a run takes of its client and of the daemon.",
        (
            "in flight",
            "alone /s",
            "together /s",
            "ratio",
            "quartiles",
            "rows in a batch",
            "alone µs",
            "together µs",
        ),
    )
    alone = Report(
        "A run that finds no company",
        f"The same network for one client, one run after another: medians of {ALONE_RUNS} runs without and with"
        f" batching, taken in turns {ROUNDS} times.",
        ("without ms", "with ms", "ratio", "quartiles"),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        device_daemon(f"unix:{folder}/device", "--backend", backend) as (address, pid),
    ):
        pairs = alone_ms(address)
        alone.add(*pair_cells(pairs))
        for in_flight in IN_FLIGHT:
            off, on = Clients(address, None, in_flight), Clients(address, Batching(MAX_SIZE), in_flight)
            rounds = [(off.work(pid), on.work(pid)) for _ in range(ROUNDS)]
            off.join()
            on.join()
            sides = [list(side) for side in zip(*rounds, strict=True)]
            rates = pair_cells((one.per_s, many.per_s) for one, many in rounds)
            throughput.add(str(in_flight), *rates, _mean_rows(address), *map(_costs, sides))
    return [throughput, alone]


def _costs(side: list[Work]) -> str:
    """The medians of what a run takes of the clients and of the daemon."""
    clients_us, daemon_us = (statistics.median(each) for each in list(zip(*side, strict=True))[1:])
    return f"{clients_us:.0f} + {daemon_us:.0f}"


def _mean_rows(address: str) -> str:
    """Of all batches so far."""
    with Runtime([address]) as runtime:
        load = runtime.device().counters().load
    return f"{load.batches.mean_rows:.1f}" if load else ""


if __name__ == "__main__":
    for report in measure(*sys.argv[1:]):
        report.show()
