"""Comparison of small runs with another checkout: `python benchmarks/run.py --only small --against PATH`.

Each checkout has daemon and client processes that run its code. All clients run this checkout's working_client.py. The
processes are restarted a few times, because two processes of the same code may differ in speed all their lives.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from harness import (
    ROOT,
    SIZES,
    Client,
    Report,
    at_most,
    clients,
    device_daemon,
    in_rounds,
    pair_cells,
    per_second,
    work,
)

STARTS, ROUNDS = 5, 6


@dataclass(frozen=True)
class Case:
    """Row of the table: `clients` processes with these options, which work for `window_s` seconds per round."""

    name: str
    options: Mapping[str, Any]
    clients: int = 1
    is_rate: bool = False
    window_s: float = 0.5


CASES = (
    Case("1 KB, local socket", {}),
    Case("1 KB, TCP", {"share_memory": False}),
    Case("600 KB, arrays", {"elements": SIZES["600 KB"]}),
    Case("600 KB, Tensors", {"elements": SIZES["600 KB"], "tensors": True}),
    Case("64 MB, arrays", {"elements": SIZES["64 MB"]}, window_s=1.0),
    Case("64 MB, Tensors", {"elements": SIZES["64 MB"], "tensors": True}, window_s=1.0),
    Case("8 threads x 16 in flight", {"threads": 8, "in_flight": 16}, is_rate=True),
    Case("8 clients x 16 in flight", {"in_flight": 16}, clients=8, is_rate=True),
)


def compare(other: Path) -> Report:
    """Measure the runs of all cases with another checkout and with this one, alternately."""
    report = Report(
        f"Small runs compared with {other}",
        "p50 latency of runs of x + 0 with equally large inputs and outputs, or runs per second, on the reference"
        f" backend; over the local socket unless stated. {ROUNDS} alternating rounds with each of {STARTS} pairs of a"
        " daemon and its clients. ratio: this checkout divided by the other, median over the rounds, with quartiles.",
        ("run", "unit", "other", "this", "ratio", "quartiles"),
    )
    for case in CASES:
        pairs: list[tuple[float, float]] = []
        for _ in range(at_most(STARTS, 1)):
            with _start_side(case, other.resolve()) as old, _start_side(case, ROOT) as new:
                rounds = in_rounds({"old": partial(_measure, case, old), "new": partial(_measure, case, new)}, ROUNDS)
            pairs += zip(rounds["old"], rounds["new"], strict=True)
        report.add(case.name, "runs/s" if case.is_rate else "µs", *pair_cells(pairs))
    return report


@contextmanager
def _start_side(case: Case, checkout: Path) -> Iterator[list[Client]]:
    """Start a checkout's daemon and the clients of a case; yield the clients."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        is_tcp = not case.options.get("share_memory", True)
        listen = "127.0.0.1:0" if is_tcp else f"unix:{folder}/device"
        at, _ = stack.enter_context(device_daemon(listen, checkout=checkout))
        yield stack.enter_context(clients(case.clients, at, case.options, checkout=checkout))


def _measure(case: Case, crowd: list[Client]) -> float:
    """Let the clients work once; return runs per second if the case is a rate, else the median µs of a run."""
    works = work(crowd, case.window_s)
    return per_second(works) if case.is_rate else works[0].median_us
