"""How many small runs a daemon makes for many clients on its host, beside what one makes alone.

python benchmarks/many_clients.py
"""

import multiprocessing as mp
import statistics
import tempfile
import time
from collections import deque
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
from report import Report
from small_run import KILOBYTE, device_daemon, identity_model

from nnrt_client import Compilation, Executor, Runtime

CLIENTS = 8
IN_FLIGHT = 16
WINDOW_S = 2.0
ROUNDS = 5


def client(address: str, in_flight: int, barrier: Barrier, counts: Any) -> None:
    """Once per round: so many runs under way for a while; says how many ended."""
    x = [np.ones(KILOBYTE, np.float32)]
    with Runtime([address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            for _ in range(20):
                executor.run_sync(x)
            for _ in range(ROUNDS):
                barrier.wait()
                counts.put(_runs_in_a_row(executor, x) if in_flight == 1 else _runs_at_a_time(executor, x, in_flight))
                barrier.wait()


def _runs_in_a_row(executor: Executor, x: list[Any]) -> int:
    ended, end = 0, time.monotonic() + WINDOW_S
    while time.monotonic() < end:
        executor.run_sync(x)
        ended += 1
    return ended


def _runs_at_a_time(executor: Executor, x: list[Any], in_flight: int) -> int:
    ended, end = 0, time.monotonic() + WINDOW_S
    under_way = deque(executor.submit(x) for _ in range(in_flight))
    while time.monotonic() < end:
        under_way.popleft().result()
        ended += 1
        under_way.append(executor.submit(x))
    for run in under_way:
        run.result()
    return ended


class Clients:
    """Client processes that stand ready to run at the same time."""

    def __init__(self, address: str, count: int, in_flight: int) -> None:
        context = mp.get_context("spawn")
        self._count = count
        self._barrier = context.Barrier(count + 1)
        self._counts = context.Queue()
        arguments = (address, in_flight, self._barrier, self._counts)
        self._processes = [context.Process(target=client, args=arguments) for _ in range(count)]
        for process in self._processes:
            process.start()

    def run(self) -> list[int]:
        """Count what each has done in one window."""
        self._barrier.wait()
        counts = [self._counts.get() for _ in range(self._count)]
        self._barrier.wait()
        return counts

    def join(self) -> None:
        for process in self._processes:
            process.join()


def measure() -> list[Report]:
    report = Report(
        "Many clients with small runs on one host",
        f"1 KB in and out over the local socket: runs per second of {CLIENTS} client processes that each have"
        f" {IN_FLIGHT} under way, and of one that runs one after another; medians of {ROUNDS} rounds of {WINDOW_S:g} s"
        " taken in turns, and the median of their ratios with its quartiles. Fairness is the runs of the slowest client"
        " as a share of the fastest's, in the worst round.",
        ("one, sequential /s", f"{CLIENTS} x {IN_FLIGHT} /s", "ratio", "quartiles", "slowest of fastest"),
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        device_daemon(f"unix:{folder}/device") as (address, _),
    ):
        alone, crowd = Clients(address, 1, 1), Clients(address, CLIENTS, IN_FLIGHT)
        rounds = [(alone.run(), crowd.run()) for _ in range(ROUNDS)]
        alone.join()
        crowd.join()
    pairs = [(sum(one) / WINDOW_S, sum(many) / WINDOW_S) for one, many in rounds]
    low, middle, high = statistics.quantiles(many / one for one, many in pairs)
    report.add(
        *(f"{statistics.median(side):.0f}" for side in zip(*pairs, strict=True)),
        f"{middle:.2f}",
        f"{low:.2f}..{high:.2f}",
        f"{min(min(many) / max(many) for _, many in rounds):.2f}",
    )
    return [report]


if __name__ == "__main__":
    for report in measure():
        report.show()
