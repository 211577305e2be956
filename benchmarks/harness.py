"""Shared parts of all benchmarks: daemons, client processes, alternating measurements, and tables.

A benchmark is a function that measures alternatives and returns tables. It takes several rounds and measures each
alternative once per round. On a shared machine a single time proves little, so tables show the ratio of two figures of
the same round, and the quartiles over all rounds.
"""

import json
import multiprocessing as mp
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
# Number of float32 elements.
SIZES = {"1 KB": 256, "600 KB": 3 * 224 * 224, "64 MB": 16 << 20}
ROUNDS, RUNS = 30, 100
# Clock ID bits for a process' user and kernel time over all threads, see clock_getcpuclockid(3).
_OF_ALL_THREADS = 2

T = TypeVar("T")
N = TypeVar("N", int, float)
Run: TypeAlias = Callable[[], Any]

is_brief = False
"""True to take very few rounds, which only shows that a benchmark works."""

is_large = False
"""True to measure models of gigabytes, too."""


def at_most(count: N, brief: N) -> N:
    """Return how many rounds, runs or seconds to measure: `count`, limited to `brief` in a brief benchmark."""
    return min(count, brief) if is_brief else count


# ---- tables


@dataclass
class Report:
    """Table of figures with a title and a text that says what was measured."""

    title: str
    about: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        self.rows.append(cells)

    def add_ways(self, case: Sequence[str], rounds: Mapping[str, Sequence[float]], base: str, scale: float = 1) -> None:
        """Add a row per alternative: its figure, its ratio to the alternative `base`, and the ratio's quartiles.

        The figure is that of the round with the median ratio, multiplied by `scale`. `case` has the first cells of
        each row.
        """
        for name, figures in rounds.items():
            self.add(*case, name, *pair_cells(zip(rounds[base], figures, strict=True), scale=scale)[1:])

    def show(self) -> None:
        """Print the table."""
        table = Table(*self.columns, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        Console(width=None if sys.stdout.isatty() else 180).print(table)

    def markdown(self) -> str:
        """Return title, text and table as Markdown."""
        return "\n".join([f"## {self.title}", "", self.about, "", self.table()])

    def table(self) -> str:
        """Return only the table as Markdown."""
        rows = (self.columns, ["---"] * len(self.columns), *self.rows)
        return "\n".join([*("| " + " | ".join(row) + " |" for row in rows), ""])


def pair_cells(
    pairs: Iterable[tuple[float, float]], ratios: str = ".2f", scale: float = 1
) -> tuple[str, str, str, str]:
    """Return four cells for pairs of figures, one pair per round.

    The cells are both figures of the round with the median ratio, this ratio (second to first), and the quartiles of
    all ratios. The figures are not the columns' medians: these would come from different rounds, and their quotient
    would not be a measured ratio.
    """
    rounds = sorted(pairs, key=lambda pair: pair[1] / pair[0])
    first, second = rounds[(len(rounds) - 1) // 2]
    quartiles = spread((second / first for first, second in rounds), ratios)[1]
    return _figure(first * scale), _figure(second * scale), f"{second / first:{ratios}}", quartiles


def spread(figures: Iterable[float], digits: str = ".2f") -> tuple[str, str]:
    """Return the median and the quartiles."""
    low, middle, high = statistics.quantiles(figures)
    return f"{middle:{digits}}", f"{low:{digits}}..{high:{digits}}"


def machine() -> str:
    """Return a description of the machine."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()},"
        f" grpcio {version('grpcio')}, protobuf {version('protobuf')}, numpy {version('numpy')}"
    )


def _figure(number: float) -> str:
    """Format a number with at least three digits, so that two figures of a table yield nearly the ratio beside them."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


# ---- measurements


def in_rounds(ways: Mapping[str, Callable[[], T]], rounds: int = ROUNDS) -> dict[str, list[T]]:
    """Measure each alternative once per round and return its figures by name.

    The order changes randomly from round to round. A warm-up before the first round is not counted.
    """
    figures: dict[str, list[T]] = {name: [] for name in ways}
    order = random.Random(0)  # noqa: S311  (no secret)
    for measure in ways.values():
        measure()
    for _ in range(at_most(rounds, 3)):
        for name in order.sample(list(ways), len(ways)):
            figures[name].append(ways[name]())
    return figures


def alternate(one: Run, other: Run, runs: int = RUNS, rounds: int = ROUNDS) -> list[tuple[float, float]]:
    """Measure two functions in rounds and return each round's median µs per call of both."""
    figures = in_rounds({name: partial(median_us, run, runs) for name, run in (("one", one), ("other", other))}, rounds)
    return list(zip(figures["one"], figures["other"], strict=True))


def median_us(run: Run, runs: int = RUNS) -> float:
    """Call a function `runs` times and return the median duration in µs."""
    return statistics.median(seconds(run) for _ in range(at_most(runs, 5))) * 1e6


def seconds(run: Run) -> float:
    """Call a function and return its duration in seconds."""
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time that these processes have used, in seconds."""
    return sum(time.clock_gettime(~pid << 3 | _OF_ALL_THREADS) for pid in pids)


# ---- processes


class Daemon(NamedTuple):
    """Daemon process."""

    address: str
    pid: int


def environment(checkout: Path = ROOT) -> dict[str, str]:
    """Return the environment of a process that runs a checkout's code and finds the tests' backends."""
    tests = [ROOT / "tests" / "plugins", ROOT / "tests"]
    folders = [checkout, *sorted(path for path in (checkout / "backends").iterdir() if path.is_dir()), *tests]
    return {**os.environ, "PYTHONPATH": ":".join(map(str, folders))}


@contextmanager
def device_daemon(listen: str = "127.0.0.1:0", *arguments: str, checkout: Path = ROOT) -> Iterator[Daemon]:
    """Start a daemon of a checkout, and kill it afterwards.

    Its backend is the reference unless the arguments name another.
    """
    command = [sys.executable, "-m", "nnrt_device_service", "serve", "--listen", listen, *arguments]
    where: Any = {"cwd": checkout, "env": environment(checkout)}  # With -m the working directory comes first.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **where) as process:
        assert process.stdout is not None
        try:
            yield Daemon(process.stdout.readline().split()[2], process.pid)
        finally:
            process.kill()


class Work(NamedTuple):
    """Report of a client process: completed runs, their median latency, and the elapsed time."""

    runs: int
    median_us: float
    seconds: float


class Client:
    """Client process (see working_client.py). Created by `clients`."""

    def __init__(self, command: Sequence[str], checkout: Path) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(checkout)
        )
        self.pid = self._process.pid

    def wait_until_ready(self) -> None:
        """Wait until the client has built its model and warmed up."""
        self._line()

    def begin(self, seconds: float) -> None:
        """Ask the client to work for some seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def end(self) -> Work:
        """Wait until the client has finished its work and return its report."""
        return Work(*json.loads(self._line()))

    def close(self) -> None:
        """Close the client's standard input, which ends it."""
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"a client ended without output: {self._process.args!r}")
        return line


@contextmanager
def clients(
    count: int,
    address: str,
    options: Mapping[str, Any],
    command: Sequence[str] = (sys.executable, str(ROOT / "benchmarks" / "working_client.py")),
    checkout: Path = ROOT,
) -> Iterator[list[Client]]:
    """Start client processes and wait until all are ready; `options` are those of working_client.py."""
    with ExitStack() as stack:
        crowd = []
        for _ in range(count):
            crowd.append(Client([*command, address, json.dumps(options)], checkout))
            stack.callback(crowd[-1].close)
        for client in crowd:
            client.wait_until_ready()
        yield crowd


def work(crowd: Sequence[Client], window_s: float) -> list[Work]:
    """Let all clients work at the same time for `window_s` seconds and return their reports."""
    window_s = at_most(window_s, 0.2)
    for client in crowd:
        client.begin(window_s)
    return [client.end() for client in crowd]


def per_second(works: Iterable[Work]) -> float:
    """Return the total runs per second of clients that worked at the same time."""
    return sum(each.runs / each.seconds for each in works)


@contextmanager
def call_in_process(serve: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """Call a function with one end of a pipe in another process, and yield the other end.

    The function must return when the pipe is closed, which happens at the end of the block.
    """
    context = mp.get_context("spawn")
    pipe, there = context.Pipe()
    process = context.Process(target=serve, args=(there, *arguments))
    process.start()
    there.close()
    with pipe:
        yield pipe
    process.join()
