"""Measure what counting costs a run, and what Prometheus costs it.

    python benchmarks/counting.py

The daemons are used in turns, in one process; one of them is scraped all the time.
"""

import multiprocessing as mp
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from urllib.request import urlopen

import numpy as np
from report import Report, pair_cells
from small_run import KILOBYTE, ROUNDS, RUNS_PER_ROUND, device_daemon, in_turns, median_us, runner_at

from nnrt_client import Settings
from nnrt_device_service.access.counters import Usage

# Fifteen times as often as Prometheus does by default.
SCRAPE_S = 1.0
PERIOD_US = 15e6
COUNTS = 20_000


def measure() -> list[Report]:
    counting = Report(
        "Counting, and Prometheus",
        f"A run of 1 KB over the local socket, p50 of {RUNS_PER_ROUND} runs in turns on two daemons, {ROUNDS}"
        " rounds, and the median of their ratios with its quartiles. The second daemon has --metrics-listen and"
        f" --metrics-identities and is scraped every {SCRAPE_S:g} s; in the first row neither has: that is the noise."
        " Then, as parts of a run, what the daemon does in any case to count it; and as part of the fifteen seconds"
        " between two scrapes, one of them.",
        ("", "without µs", "with, or alone µs", "ratio", "quartiles"),
    )
    with ExitStack() as stack:
        address = _free_address()
        plain, other = (stack.enter_context(_runner()) for _ in range(2))
        scraped = stack.enter_context(_runner("--metrics-listen", address, "--metrics-identities"))
        stack.enter_context(_scraper(address))
        counting.add("two without metrics", *pair_cells(in_turns(plain, other)))
        counting.add("without and with metrics", *pair_cells(in_turns(plain, scraped)))
        counting.add("counting a run", *pair_cells([(median_us(plain), _count_us()) for _ in range(ROUNDS)], ".4f"))
        scrapes = [(PERIOD_US, median_us(partial(_scrape, address), 1)) for _ in range(ROUNDS)]
        counting.add("a scrape", *pair_cells(scrapes, ".4f"))
    return [counting]


def _free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def _runner(*flags: str) -> Iterator[Callable[[], Any]]:
    """Make what runs the identity once, on a daemon of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        device_daemon(f"unix:{folder}/device", *flags) as (at, _),
        runner_at(at, Settings(), np.ones(KILOBYTE, np.float32)) as run,
    ):
        yield run


@contextmanager
def _scraper(address: str) -> Iterator[None]:
    process = mp.get_context("spawn").Process(target=_scrape_for_ever, args=(address,), daemon=True)
    process.start()
    yield
    process.terminate()
    process.join()


def _scrape_for_ever(address: str) -> None:
    while True:
        _scrape(address)
        time.sleep(SCRAPE_S)


def _scrape(address: str) -> None:
    with urlopen(f"http://{address}/metrics") as reply:
        reply.read()


def _count_us() -> float:
    usage = Usage()
    began = time.perf_counter()
    for _ in range(COUNTS):
        usage.count_run(900, 4_000, 21_000, 1024, 1024)
    return (time.perf_counter() - began) / COUNTS * 1e6


if __name__ == "__main__":
    for report in measure():
        report.show()
