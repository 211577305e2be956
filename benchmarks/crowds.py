"""Many clients of one daemon: compared with few clients, with and without batching, and with KServe's server."""

import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from harness import (
    SIZES,
    Client,
    Report,
    alternate,
    clients,
    cpu_seconds,
    device_daemon,
    in_rounds,
    pair_cells,
    per_second,
    work,
)
from kserve_peer import PEER, kserve_server
from working_client import WIDTHS, dense, executor_of

from nnrt_client import Batching, Runtime

ROUNDS = 5
WINDOW_S = 2.0
# Pairs to compare, few and many: number of clients, and runs in flight per client.
CROWDS = (((1, 1), (8, 16)), ((8, 1), (60, 1)))
BATCH_CLIENTS, BATCH_WINDOW_S, MAX_SIZE, ALONE_RUNS = 8, 1.0, 16, 400
# Beside the environment that this is run in; it has other versions of what both need.
PEERS_PYTHON = Path(__file__).resolve().parents[1] / ".nox/peers/bin/python"
KSERVE, ABSENT = "KServe, gRPC over TCP", "not installed; make peers installs it"


def measure() -> Iterator[Report]:
    yield _compare_crowds()
    yield from _batching()
    yield _compare_kserve()


def _compare_crowds() -> Report:
    report = Report(
        "Many clients with small runs on one host",
        "1 KB in and out over the local socket: runs per second of few and of many client processes (processes x runs"
        f" in flight each), in {ROUNDS} alternating rounds of {WINDOW_S:g} s. ratio: many divided by few, median over"
        " the rounds, with quartiles. fairness: runs of the slowest of the many clients divided by runs of the fastest,"
        " in the median round and in the worst.",
        ("few", "runs/s", "many", "runs/s", "ratio", "quartiles", "fairness", "worst"),
    )
    for few, many in CROWDS:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            at, _ = stack.enter_context(device_daemon(f"unix:{folder}/device", "--max-sessions", "100"))
            ways = {
                name: partial(work, stack.enter_context(clients(count, at, {"in_flight": in_flight})), WINDOW_S)
                for name, (count, in_flight) in (("few", few), ("many", many))
            }
            rounds = in_rounds(ways, ROUNDS)
        few_rate, many_rate, *ratio = pair_cells(
            zip(*(map(per_second, works) for works in rounds.values()), strict=True)
        )
        shares = [min(runs) / max(runs) for runs in ([each.runs for each in works] for works in rounds["many"])]
        fairness = f"{statistics.median(shares):.2f}", f"{min(shares):.2f}"
        report.add("{} x {}".format(*few), few_rate, "{} x {}".format(*many), many_rate, *ratio, *fairness)
    return report


# ---- batching


class Batched(NamedTuple):
    """Result of a round: runs per second, and CPU time per run in the clients and in the daemon."""

    per_s: float
    clients_us: float
    daemon_us: float


def _batching() -> Iterator[Report]:
    together = Report(
        "Batching of runs from several clients",
        f"A dense network of {'-'.join(map(str, WIDTHS))} on onnxruntime, one row per run, from {BATCH_CLIENTS} client"
        f" processes on one host: runs per second without and with Batching(max_size={MAX_SIZE}), in {ROUNDS}"
        f" alternating rounds of {BATCH_WINDOW_S:g} s. ratio: with batching divided by without, median over the rounds,"
        " with quartiles. CPU: CPU time per run in the client + in the daemon.",
        (
            *("runs in flight", "unbatched runs/s", "batched runs/s", "ratio", "quartiles", "rows per batch"),
            *("unbatched CPU µs", "batched CPU µs"),
        ),
    )
    alone = Report(
        "Batching with a single client",
        f"The same network for one client, one run at a time: p50 of {ALONE_RUNS} runs without and with batching, in"
        f" {ROUNDS} alternating rounds. ratio: with batching divided by without, median, with quartiles.",
        ("unbatched ms", "batched ms", "ratio", "quartiles"),
    )
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        at, pid = stack.enter_context(device_daemon(f"unix:{folder}/device", "--backend", "onnxruntime"))
        device = stack.enter_context(Runtime([at])).device()
        x = [np.ones((1, WIDTHS[0]), np.float32)]
        with (
            executor_of(dense(*WIDTHS), device) as off,
            executor_of(dense(*WIDTHS), device, batching=Batching(MAX_SIZE)) as on,
        ):
            pairs = alternate(partial(off.run_sync, x), partial(on.run_sync, x), ALONE_RUNS, ROUNDS)
            alone.add(*pair_cells(pairs, scale=1e-3))
        for each in (2, 16):
            with ExitStack() as crowds:
                ways = {
                    name: partial(_measure_batch, crowds.enter_context(clients(BATCH_CLIENTS, at, options)), pid)
                    for name, options in (
                        ("off", {"model": "dense", "in_flight": each}),
                        ("on", {"model": "dense", "in_flight": each, "batching": MAX_SIZE}),
                    )
                }
                rounds = in_rounds(ways, ROUNDS)
            rates = pair_cells(zip(*([each.per_s for each in side] for side in rounds.values()), strict=True))
            load = device.counters().load
            rows = f"{load.batches.mean_rows:.1f}" if load else ""
            together.add(str(each * BATCH_CLIENTS), *rates, rows, *map(_cpu_cell, rounds.values()))
    yield together
    yield alone


def _measure_batch(crowd: list[Client], daemon: int) -> Batched:
    whose = [client.pid for client in crowd], [daemon]
    before = list(map(cpu_seconds, whose))
    works = work(crowd, BATCH_WINDOW_S)
    count = sum(each.runs for each in works)
    clients_us, daemon_us = ((cpu_seconds(pids) - was) / count * 1e6 for pids, was in zip(whose, before, strict=True))
    return Batched(per_second(works), clients_us, daemon_us)


def _cpu_cell(side: list[Batched]) -> str:
    """Return the median CPU time per run of the clients and of the daemon."""
    return " + ".join(
        f"{statistics.median(getattr(each, name) for each in side):.0f}" for name in ("clients_us", "daemon_us")
    )


# ---- KServe


def _compare_kserve() -> Report:
    report = Report(
        "Compared with KServe",
        "y = x + 0 as a model of KServe's Python server, called by KServe's own gRPC client, and on a daemon with the"
        " reference backend. Inputs and outputs are equally large; each client is a process that sends one request at"
        f" a time. p50 latency of a request, and requests per second of all clients, in {ROUNDS} alternating rounds."
        " ratio: requests per second divided by KServe's, median over the rounds, with quartiles.",
        ("tensor", "clients", "server", "p50 µs", "requests/s", "ratio", "quartiles"),
    )
    python = _find_kserve()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        tcp, _ = stack.enter_context(device_daemon())
        local, _ = stack.enter_context(device_daemon(f"unix:{folder}/device"))
        kserve = stack.enter_context(kserve_server(python)) if python else ""
        for tensor, elements in SIZES.items():
            window_s = 1.0 if tensor == "64 MB" else 0.5
            for count in (1, 8):
                with ExitStack() as crowds:
                    given = {"elements": elements}
                    some = {
                        "nnrt, gRPC over TCP": clients(count, tcp, {**given, "share_memory": False}),
                        "nnrt, local socket": clients(count, local, given),
                    }
                    if python:
                        some = {KSERVE: clients(count, kserve, given, [python, PEER]), **some}
                    else:
                        report.add(tensor, str(count), KSERVE, "", "", "", ABSENT)
                    ways = {name: partial(work, crowds.enter_context(crowd), window_s) for name, crowd in some.items()}
                    rounds = in_rounds(ways, ROUNDS)
                rates = {name: list(map(per_second, works)) for name, works in rounds.items()}
                base = rates.get(KSERVE)
                for name, works in rounds.items():
                    p50 = statistics.median(each.median_us for crowd in works for each in crowd)
                    of = pair_cells(zip(base, rates[name], strict=True))[2:] if base and name != KSERVE else ("", "")
                    cells = f"{p50:.0f}", f"{statistics.median(rates[name]):.1f}"
                    report.add(tensor, str(count), name, *cells, *of)
    return report


def _find_kserve() -> str | None:
    """Return the path of a Python that has KServe, or None."""
    if PEERS_PYTHON.exists():
        return str(PEERS_PYTHON)
    return sys.executable if find_spec("kserve") else None
