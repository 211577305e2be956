"""How many small runs a daemon makes for many clients on its host, beside what it makes for few.

python benchmarks/many_clients.py
"""

import multiprocessing as mp
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np
from in_flight import runs_at_a_time
from report import Report, pair_cells
from small_run import KILOBYTE, device_daemon, identity_model

from nnrt_client import Compilation, Executor, Runtime

WINDOW_S = 2.0
ROUNDS = 5
# Clients may take that long to be ready, or to end what they have under way.
PATIENCE_S = 120.0
# Clients and the runs that each has under way: many beside few.
CASES = (((1, 1), (8, 16)), ((8, 1), (60, 1)))


def client(address: str, number: int, in_flight: int, barrier: Barrier, running: Any, counts: Any) -> None:
    """Whenever so many clients run that this one is among them: so many runs under way for a while; says how many
    ended. Until none are to run."""
    x = [np.ones(KILOBYTE, np.float32)]
    with Runtime([address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            for _ in range(20):
                executor.run_sync(x)
            barrier.wait(PATIENCE_S)
            while running.value:
                if number < running.value:
                    counts.put(
                        _runs_in_a_row(executor, x)
                        if in_flight == 1
                        else runs_at_a_time(executor, x, in_flight, WINDOW_S)
                    )
                barrier.wait(PATIENCE_S)
                barrier.wait(PATIENCE_S)


def _runs_in_a_row(executor: Executor, x: list[Any]) -> int:
    ended, end = 0, time.monotonic() + WINDOW_S
    while time.monotonic() < end:
        executor.run_sync(x)
        ended += 1
    return ended


class Clients:
    """Client processes that stand ready to run at the same time. Made by `clients`."""

    def __init__(self, address: str, count: int, in_flight: int) -> None:
        context = mp.get_context("forkserver")
        context.set_forkserver_preload(["nnrt_client", "rich.console", "rich.table"])  # Imported once for all.
        self._barrier = context.Barrier(count + 1)
        self._running = context.Value("i", 0)
        self._counts = context.Queue()
        shared = (in_flight, self._barrier, self._running, self._counts)
        self._processes = [context.Process(target=client, args=(address, number, *shared)) for number in range(count)]
        for process in self._processes:
            process.start()

    def run(self, count: int) -> list[int]:
        """Count what each of so many has done in one window."""
        self._running.value = count
        self._barrier.wait(PATIENCE_S)
        counts = [self._counts.get(timeout=PATIENCE_S) for _ in range(count)]
        self._barrier.wait(PATIENCE_S)
        return counts

    def end(self) -> None:
        self._running.value = 0
        self._barrier.wait(PATIENCE_S)
        for process in self._processes:
            process.join()


@contextmanager
def clients(address: str, count: int, in_flight: int) -> Iterator[Clients]:
    made = Clients(address, count, in_flight)
    yield made
    made.end()


def measure() -> list[Report]:
    report = Report(
        "Many clients with small runs on one host",
        "1 KB in and out over the local socket: runs per second of client processes that each have so many under way,"
        f" {ROUNDS} rounds of {WINDOW_S:g} s in which few and many take turns; and the median of the rounds'"
        " ratios with its quartiles. Fairness is the runs of the slowest of many as a share of the fastest's, in the"
        " median round and in the worst.",
        ("few", "/s", "many", "/s", "ratio", "quartiles", "slowest of fastest", "worst"),
    )
    for few, many in CASES:
        _measure(few, many, report)
    return [report]


def _measure(few: tuple[int, int], many: tuple[int, int], report: Report) -> None:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        address, _ = stack.enter_context(device_daemon(f"unix:{folder}/device", "--max-sessions", "100"))
        crowd = stack.enter_context(clients(address, *many))
        # Where they have as many under way, they are some of the many.
        small = crowd if few[1] == many[1] else stack.enter_context(clients(address, *few))
        rounds = [(small.run(few[0]), crowd.run(many[0])) for _ in range(ROUNDS)]
    rates = [(sum(one) / WINDOW_S, sum(other) / WINDOW_S) for one, other in rounds]
    one_rate, other_rate, *ratio = pair_cells(rates)
    shares = [min(counts) / max(counts) for _, counts in rounds]
    report.add(
        "{} x {}".format(*few),
        one_rate,
        "{} x {}".format(*many),
        other_rate,
        *ratio,
        f"{statistics.median(shares):.2f}",
        f"{min(shares):.2f}",
    )


if __name__ == "__main__":
    for report in measure():
        report.show()
