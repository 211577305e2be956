"""Measures what runs that are on the device cost a daemon, with a thread for each and without.

    PYTHONPATH=tests python benchmarks/started_runs.py

The device is tests/plugins/timed_backend.py, which keeps each run for a given time.
"""

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
from daemon_process import DaemonProcess
from in_flight import runs_at_a_time
from processor_time import processor_s
from report import Report
from small_run import identity_model

from nnrt_client import Compilation, Executor, Runtime

# The runs on the device at a time, and how long each is there.
LOADS = ((1, 0.0), (8, 1.0), (64, 20.0))
WINDOW_S = 1.0
ROUNDS = 3


class Work(NamedTuple):
    """Work of a round: runs per second, the daemon's processor time for each, and its threads while many are there."""

    per_s: float
    daemon_us: float
    threads: int


def opened(stack: ExitStack, slots: int, milliseconds: float, *options: str) -> Callable[[], Work]:
    """Start a daemon and a client that keeps all its slots busy; gives what has both work for a while."""
    device = "--backend", "timed", "--option", f"ms={milliseconds:g}", "--concurrent-runs", str(slots)
    daemon = DaemonProcess(*device, "--session-streams", str(slots + 8), *options)
    stack.callback(daemon.kill)
    runtime = stack.enter_context(Runtime([daemon.address]))
    compilation = stack.enter_context(Compilation(identity_model(), runtime.device()))
    compilation.build()
    executor = stack.enter_context(Executor(compilation))
    x = [np.ones(256, np.float32)]
    runs_at_a_time(executor, x, slots, WINDOW_S)

    def work() -> Work:
        before = processor_s([daemon.pid])
        ended = runs_at_a_time(executor, x, slots, WINDOW_S)
        daemon_us = (processor_s([daemon.pid]) - before) / ended * 1e6
        under_way, threads = [executor.submit(x) for _ in range(slots)], 0
        for run in under_way:
            threads = max(threads, len(list(Path(f"/proc/{daemon.pid}/task").iterdir())))
            run.result()
        return Work(ended / WINDOW_S, daemon_us, threads)

    return work


def measure() -> list[Report]:
    report = Report(
        "Runs on the device without threads",
        "Runs of 1 KB from one client, as many under way as the device takes at a time, which keeps each for so long:"
        " where `run` waits in a thread, and where they are started (ADR 17). Medians of"
        f" {ROUNDS} rounds of {WINDOW_S:g} s taken in turns; processor time and threads are the daemon's.",
        ("on the device", "ms", "run /s", "start /s", "run µs", "start µs", "run threads", "start threads"),
    )
    for slots, milliseconds in LOADS:
        with ExitStack() as stack:
            ways = opened(stack, slots, milliseconds), opened(stack, slots, milliseconds, "--option", "started=1")
            rounds = [[work() for work in ways] for _ in range(ROUNDS)]
        run, start = (
            [statistics.median(each) for each in zip(*side, strict=True)] for side in zip(*rounds, strict=True)
        )
        pairs = ((run[at], start[at]) for at in range(3))
        cells = (f"{value:.0f}" for pair in pairs for value in pair)
        report.add(str(slots), f"{milliseconds:g}", *cells)
    return [report]


if __name__ == "__main__":
    for report in measure():
        report.show()
