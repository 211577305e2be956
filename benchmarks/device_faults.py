"""Measure what a canary takes from its device and from runs, and how soon it finds a fault.

PYTHONPATH=tests python benchmarks/device_faults.py
"""

import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from daemon_process import DaemonProcess
from report import Report, pair_cells
from small_run import KILOBYTE, identity_model, in_turns

from nnrt_client import CanaryState, Compilation, Device, Executor, Runtime

INTERVAL_S = 1.0
# A device that is slow is told from a busy machine by more than such a machine adds.
ANSWER_MS, LATE_MS = 5, 20
FAULTS, TIMES = ("crash", "wrong", "stall", "slow"), 5
_LOOK_S = 0.01


def measure() -> list[Report]:
    return [_cost(), _discovery()]


def _cost() -> Report:
    report = Report(
        "The canary",
        f"A run of 1 KB over the local socket, on a daemon without a canary and on one with `--canary {INTERVAL_S:g}`,"
        " taken in turns as above; and the part of the device's time that the canary took meanwhile.",
        ("backend", "of the device's time", "without µs", "with µs", "ratio", "quartiles"),
    )
    for backend in ("reference", "onnxruntime"):
        with ExitStack() as stack:
            (_, without), (device, with_it) = (
                stack.enter_context(_runner("--backend", backend, "--canary", seconds))
                for seconds in ("0", str(INTERVAL_S))
            )
            cells = pair_cells(in_turns(without, with_it))
            report.add(backend, f"{_share(device):.2%}", *cells)
    return report


def _share(device: Device) -> float:
    counters = device.counters()
    (canary,) = (one for one in counters.identities if one.identity == "daemon canary")
    return canary.run_s / counters.uptime_s


@contextmanager
def _runner(*arguments: str) -> Iterator[tuple[Device, Callable[[], Any]]]:
    """A device, and what runs the identity once there."""
    daemon = DaemonProcess(*arguments)
    try:
        with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
            compilation.build()
            with Executor(compilation) as executor:
                yield runtime.device(), partial(executor.run_sync, [np.ones(KILOBYTE, np.float32)])
    finally:
        daemon.kill()


def _discovery() -> Report:
    report = Report(
        "From a fault to a device that is out",
        f"Faults of a device, switched on and off {TIMES} times at any moment, in intervals of its canary"
        f" (`--canary {INTERVAL_S:g}`; its answers take {ANSWER_MS} ms, when the device is slow ten times as long).",
        ("fault", "out after, median", "at most", "back after, median", "at most"),
    )
    for fault in FAULTS:
        with TemporaryDirectory() as folder:
            rounds = _rounds(Path(folder) / "fault", fault)
        report.add(
            fault, *(f"{kind(side):.2f}" for side in zip(*rounds, strict=True) for kind in (statistics.median, max))
        )
    return report


def _rounds(file: Path, fault: str) -> list[tuple[float, float]]:
    """Intervals until the device was out, and until it was back."""
    chance, rounds = random.Random(0), list[tuple[float, float]]()  # noqa: S311  (no secret)
    options = ("--option", f"fault={file}", "--option", f"ms={ANSWER_MS}", "--canary-late-ms", str(LATE_MS))
    with _runner("--backend", "injected", "--canary", str(INTERVAL_S), *options) as (device, _):
        for _ in range(TIMES):
            time.sleep(INTERVAL_S * (1 + chance.random()))
            file.write_text(fault)
            out = _intervals_until(device, lambda state: state.is_out)
            file.unlink()
            rounds.append((out, _intervals_until(device, lambda state: not state.is_out)))
    return rounds


def _intervals_until(device: Device, is_so: Callable[[CanaryState], bool]) -> float:
    began = time.monotonic()
    while not is_so(device.canary() or CanaryState()):
        time.sleep(_LOOK_S)
    return (time.monotonic() - began) / INTERVAL_S


if __name__ == "__main__":
    for report in measure():
        report.show()
