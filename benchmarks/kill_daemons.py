"""Stress test that kills daemons during runs, and counts the runs that hang or end wrongly.

    python benchmarks/kill_daemons.py [--kills 200]

At each kill a client has RUNS asynchronous runs of several executors in flight or queued, and one thread in `run_sync`.
A run that has not ended HANG_S later hangs. A run counts as crashed if it ends twice, or with anything but a result or
its daemon's death.
"""

import argparse
import os
import signal
import statistics
import threading
import time
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from harness import Report, device_daemon
from working_client import finished

from nnrt_client import Compilation, Executor, Model, NnrtError, OperationType, Runtime, UnavailableDevice

HANG_S = 10.0
EXECUTORS = 3
RUNS = 36
TIMEOUT_MS = 600_000
SIZE = 256


class Kill(NamedTuple):
    """Result of one kill: runs by outcome, and the seconds from the kill to the end of the last run."""

    hung: int
    crashed: int
    done: int
    died: int
    last_end_s: float


class Ends:
    """Record of how each run ended, keyed by the run's number. The run in `run_sync` has the number RUNS."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.ways: dict[int, list[str]] = {run: [] for run in range(RUNS + 1)}
        self.last_at = 0.0

    def on_run_done(self, run: int, _: Any, error: NnrtError | None) -> None:
        """Record a run that ended while its daemon was alive. Callback of executors."""
        self.add(run, "done" if error is None else "crashed")

    def on_service_died(self, run: int) -> None:
        """Record a run whose daemon has died. Callback of executors."""
        self.add(run, "died")

    def add(self, run: int, way: str) -> None:
        """Record that a run has ended: "done", "died" or "crashed"."""
        with self._changed:
            self.ways[run].append(way)
            self.last_at = time.monotonic()
            self._changed.notify_all()

    def wait(self) -> bool:
        """Wait up to HANG_S until all runs have ended; return whether they have."""
        with self._changed:
            return self._changed.wait_for(lambda: all(self.ways.values()), HANG_S)


def model() -> Model:
    """Build a model whose runs take a few milliseconds."""
    model = Model()
    x = y = model.input((SIZE, SIZE))
    for _ in range(4):
        y = model.apply(OperationType.MATMUL, y, np.eye(SIZE, dtype=np.float32))
    return finished(model, x, y)


def kill_once(graph: Model, after_s: float) -> Kill:
    """Start a daemon and runs on it, kill it after `after_s`, and wait until the runs have ended."""
    x = [np.ones((SIZE, SIZE), np.float32)]
    ends = Ends()
    with (
        device_daemon() as (address, pid),
        Runtime([address]) as runtime,
        Compilation(graph, runtime.device()) as compilation,
    ):
        compilation.build()
        executors = [Executor(compilation) for _ in range(EXECUTORS)]
        for executor in executors:
            executor.set_on_run_done(ends.on_run_done)
            executor.set_on_service_died(ends.on_service_died)

        def run_until_it_raises() -> None:
            try:
                while True:
                    executors[0].run_sync(x)
            except UnavailableDevice:
                ends.add(RUNS, "died")
            except BaseException:
                ends.add(RUNS, "crashed")

        threading.Thread(target=run_until_it_raises, daemon=True).start()
        for run in range(RUNS):
            executors[run % EXECUTORS].run_async(x, timeout_ms=TIMEOUT_MS, user_data=run)
        time.sleep(after_s)
        os.kill(pid, signal.SIGKILL)
        killed_at = time.monotonic()
        if ends.wait():
            for executor in executors:
                executor.close()
    ways = Counter(way for each in ends.ways.values() for way in each)
    twice = sum(max(len(each) - 1, 0) for each in ends.ways.values())
    hung = sum(not each for each in ends.ways.values())
    return Kill(hung, ways["crashed"] + twice, ways["done"], ways["died"], max(ends.last_at - killed_at, 0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how many daemons to kill (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments of the kills (default 0)")
    options = parser.parse_args()
    moments = np.random.default_rng(options.seed)
    kills = [kill_once(model(), float(moments.uniform(0.0, 0.05))) for _ in range(options.kills)]
    report = Report(f"{len(kills)} daemons killed", "", ("what", "value"))
    report.add("runs in flight or queued when killed", str(sum(kill.died for kill in kills)))
    report.add("runs that had ended before", str(sum(kill.done for kill in kills)))
    report.add("hangs", str(sum(kill.hung for kill in kills)))
    report.add("crashes", str(sum(kill.crashed for kill in kills)))
    for name, of in (("p50", statistics.median), ("max", max)):
        report.add(f"kill to last run ended, {name}", f"{of(kill.last_end_s for kill in kills) * 1e3:.1f} ms")
    report.show()
    raise SystemExit(any(kill.hung or kill.crashed for kill in kills))


if __name__ == "__main__":
    main()
