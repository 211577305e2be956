"""The worth of a priority on a saturated device, its cost to others, and the evenness of two clients' shares.

    OPENBLAS_NUM_THREADS=1 PYTHONPATH=tests python benchmarks/fairness.py

One daemon with the reference backend; every client is a session of the same user. Alone and beside each other are
measured in turns.
"""

import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

import numpy as np
from jain import jain_index
from report import Report
from small_run import device_daemon

from nnrt_client import Compilation, Executor, Model, OperationType, Priority, Runtime

LAYERS = 8
WIDTH = 512
ROWS = 64
ROUNDS = 4
PHASE_S = 2.5
LOW_IN_FLIGHT = 6


def dense_model() -> Model:
    """A few ms of dense layers."""
    rng = np.random.default_rng(0)
    model = Model()
    x = y = model.input((ROWS, WIDTH), name="x")
    for _ in range(LAYERS):
        weights = rng.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(WIDTH**0.5)
        y = model.apply(OperationType.FULL_CONNECTION, y, weights, np.zeros(WIDTH, np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


@contextmanager
def client(address: str, priority: Priority = Priority.NONE) -> Iterator[Executor]:
    """A session of its own, with a model of that priority."""
    with Runtime([address]) as runtime, Compilation(dense_model(), runtime.device()) as compilation:
        compilation.set_priority(priority)
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


def run_beside(*loads: tuple[Executor, int]) -> list[list[float]]:
    """Each executor has that many runs under way for a while: the seconds that each run took, per executor."""
    array, over = np.ones((ROWS, WIDTH), np.float32), threading.Event()
    took_s: list[list[float]] = [[] for _ in loads]

    def keep_running(executor: Executor, times: list[float]) -> None:
        while not over.is_set():
            started = time.perf_counter()
            executor.run_sync([array])
            if not over.is_set():
                times.append(time.perf_counter() - started)

    with ThreadPoolExecutor(sum(in_flight for _, in_flight in loads)) as pool:
        for (executor, in_flight), times in zip(loads, took_s, strict=True):
            for _ in range(in_flight):
                pool.submit(keep_running, executor, times)
        time.sleep(PHASE_S)
        over.set()
    return took_s


def measure() -> list[Report]:
    with ExitStack() as stack:
        address, _ = stack.enter_context(device_daemon("127.0.0.1:0"))
        return [_measure_priority(address), _measure_shares(address)]


def _measure_priority(address: str) -> Report:
    report = Report(
        "High priority on a device saturated with low",
        f"Runs of {LAYERS} dense layers ({ROWS}x{WIDTH}); a client of low priority always has {LOW_IN_FLIGHT} under way"
        " beside one of high priority, of the same user. Latency of the high ones as a ratio to theirs on the otherwise"
        " idle device, and throughput of the low ones as a share of theirs: medians of"
        f" {ROUNDS} rounds of {PHASE_S:g} s each, with and without the other taken in turns (quartiles). A run that has"
        " begun is not interrupted, so one run of high priority at a time waits for one of low.",
        ("high runs under way", "idle p50 ms", "p50 ratio", "p95 ratio", "low throughput kept"),
    )
    with client(address, Priority.LOW) as low, client(address, Priority.HIGH) as high:
        run_beside((low, 1), (high, 1))
        for in_flight in (1, 6):
            idle_ms, p50, p95, kept = [], [], [], []
            for _ in range(ROUNDS):
                (low_alone,) = run_beside((low, LOW_IN_FLIGHT))
                (idle,) = run_beside((high, in_flight))
                low_beside, loaded = run_beside((low, LOW_IN_FLIGHT), (high, in_flight))
                idle_ms.append(statistics.median(idle) * 1000)
                p50.append(statistics.median(loaded) / statistics.median(idle))
                p95.append(_p95(loaded) / _p95(idle))
                kept.append(len(low_beside) / len(low_alone))
            report.add(
                f"{in_flight}",
                f"{statistics.median(idle_ms):.1f}",
                _with_quartiles(p50),
                _with_quartiles(p95),
                _with_quartiles(kept),
            )
    return report


def _measure_shares(address: str) -> Report:
    report = Report(
        "Shares of two clients",
        f"Two sessions of one user run the same model for {ROUNDS * PHASE_S:g} s; the Jain index is 1 for even shares,"
        " 0.5 where one client has everything.",
        ("runs under way", "runs of each", "Jain index"),
    )
    with client(address) as one, client(address) as other:
        run_beside((one, 1), (other, 1))
        for in_flight in ((1, 1), (8, 8), (1, 8)):
            counts = [0, 0]
            for _ in range(ROUNDS):
                for index, times in enumerate(run_beside((one, in_flight[0]), (other, in_flight[1]))):
                    counts[index] += len(times)
            report.add(
                "{} and {}".format(*in_flight),
                "{} and {}".format(*counts),
                f"{jain_index(counts):.3f}",
            )
    return report


def _p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def _with_quartiles(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values)
    return f"{middle:.2f} ({low:.2f}..{high:.2f})"


if __name__ == "__main__":
    for report in measure():
        report.show()
