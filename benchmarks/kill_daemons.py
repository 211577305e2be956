"""Kills daemons in the middle of runs, again and again, and counts what went wrong.

Every kill finds asynchronous runs of several executors in flight and queued, and one thread in `run_sync`. A hang is a
run that has not ended after HANG_S; a crash is a run that was told twice or of something else than a result or its
daemon's death.
"""

import argparse
import statistics
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from nnrt_client import Compilation, Executor, Model, NnrtError, OperationType, Runtime, UnavailableDevice

HANG_S = 10.0
EXECUTORS = 3
RUNS_PER_EXECUTOR = 12
TIMEOUT_MS = 600_000
SIZE = 256


@dataclass
class Kill:
    """The outcome of one kill."""

    hung: int
    crashed: int
    finished: int
    died: int
    last_end_s: float


class Outcomes:
    """How each run ended, and when the last one did."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.finished: Counter[int] = Counter()
        self.died: Counter[int] = Counter()
        self.wrong: list[NnrtError] = []
        self.last_at = 0.0

    def on_run_done(self, run: int, outputs: Any, error: NnrtError | None) -> None:
        with self._changed:
            if error is not None:
                self.wrong.append(error)
            self.finished[run] += 1
            self._note()

    def on_service_died(self, run: int) -> None:
        with self._changed:
            self.died[run] += 1
            self._note()

    def wait(self, runs: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.finished.total() + self.died.total() >= runs, HANG_S)

    def _note(self) -> None:
        self.last_at = time.monotonic()
        self._changed.notify_all()


def model() -> Model:
    """A few milliseconds of matrix products."""
    model = Model()
    x = model.input((SIZE, SIZE))
    y: Any = x
    for _ in range(4):
        y = model.apply(OperationType.MATMUL, y, np.eye(SIZE, dtype=np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def start_daemon(arguments: list[str]) -> tuple["subprocess.Popen[str]", str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "nnrt_device_service", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    return process, process.stdout.readline().split()[2]


def kill_once(graph: Model, after_s: float) -> Kill:
    process, address = start_daemon([])
    x = [np.ones((SIZE, SIZE), np.float32)]
    outcomes = Outcomes()
    runs = EXECUTORS * RUNS_PER_EXECUTOR
    blocked_ended_at: list[float] = []
    crashes: list[BaseException] = []
    with Runtime([address]) as runtime, Compilation(graph, runtime.device()) as compilation:
        compilation.build()
        executors = [Executor(compilation) for _ in range(EXECUTORS)]
        for executor in executors:
            executor.set_on_run_done(outcomes.on_run_done)
            executor.set_on_service_died(outcomes.on_service_died)

        def run_until_it_raises() -> None:
            try:
                while True:
                    executors[0].run_sync(x)
            except UnavailableDevice:
                blocked_ended_at.append(time.monotonic())
            except BaseException as error:
                crashes.append(error)

        blocked = threading.Thread(target=run_until_it_raises, daemon=True)
        blocked.start()
        for run in range(runs):
            executors[run % EXECUTORS].run_async(x, timeout_ms=TIMEOUT_MS, user_data=run)
        time.sleep(after_s)
        process.kill()
        killed_at = time.monotonic()
        outcomes.wait(runs)
        blocked.join(HANG_S)
        hung = runs - len(outcomes.finished | outcomes.died) + blocked.is_alive()
        if not hung:
            for executor in executors:
                executor.close()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()
    twice = sum(count - 1 for count in (outcomes.finished + outcomes.died).values())
    return Kill(
        hung=hung,
        crashed=twice + len(outcomes.wrong) + len(crashes),
        finished=outcomes.finished.total(),
        died=outcomes.died.total(),
        last_end_s=max([outcomes.last_at, *blocked_ended_at]) - killed_at,
    )


def table(kills: list[Kill]) -> Table:
    ends_ms = sorted(max(kill.last_end_s, 0.0) * 1000 for kill in kills)
    rows = {
        "kills": str(len(kills)),
        "runs in flight or queued when killed": str(sum(kill.died for kill in kills)),
        "runs that had finished before": str(sum(kill.finished for kill in kills)),
        "hangs": str(sum(kill.hung for kill in kills)),
        "crashes": str(sum(kill.crashed for kill in kills)),
        "kill to last run ended, p50": f"{statistics.median(ends_ms):.1f} ms",
        "kill to last run ended, max": f"{ends_ms[-1]:.1f} ms",
    }
    result = Table("what", "value")
    for row in rows.items():
        result.add_row(*row)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200, help="how many daemons to kill (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills (default 0)")
    options = parser.parse_args()
    moments = np.random.default_rng(options.seed)
    graph = model()
    console = Console()
    kills = [
        kill_once(graph, float(moments.uniform(0.0, 0.05)))
        for _ in track(range(options.kills), f"{Path(__file__).stem}", console=Console(stderr=True))
    ]
    console.print(table(kills))
    raise SystemExit(any(kill.hung or kill.crashed for kill in kills))


if __name__ == "__main__":
    main()
