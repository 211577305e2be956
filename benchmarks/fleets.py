"""A pool of daemons beside what it should be: under restarts, deaths and a slow device, its cost, and how it scales.

    PYTHONPATH=tests python benchmarks/fleets.py [--quick] [--only kills]

`make bench-fleet` writes the table into docs/fleet.md. Answers of all runs are compared with the right ones. Runs are
on a device for a given time (tests/plugins/timed_backend.py), as on accelerators that need no core of this machine,
unless a row says compute-bound.
"""

import argparse
import datetime
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory

# Before numpy is imported, and for the daemons: four of them share two cores.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import host_start
import numpy as np
from daemon_process import DaemonProcess
from discovery import discovery_table
from fairness import ROWS, WIDTH, dense_model
from fleet.fleet_process import FleetProcess, fleet_file, kill_one, nnrt_device, ps
from fleet_load import Array, Load, Outcome, Question, affine_load, affine_model, affine_questions
from report import Report, machine
from small_run import KILOBYTE, identity_model, in_turns

from nnrt_client import Model, ModelSession, load

PAGE = Path(__file__).resolve().parent.parent / "docs" / "fleet.md"
BEGIN, END = "<!-- figures: `make bench-fleet` writes them -->\n", "<!-- end of figures -->\n"
RUN_MS = 25
WINDOW_S = 0.25
SEED = 0


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long the rows measure."""

    undisturbed_s: float = 15.0
    restarts: int = 3
    kills: int = 120
    rounds: int = 12
    round_s: float = 2.0
    new_daemons: int = 5


QUICK = Lengths(undisturbed_s=4.0, restarts=1, kills=15, rounds=3, round_s=2.0, new_daemons=2)


def timed(ms: float = RUN_MS, slots: int = 1) -> list[str]:
    """The arguments of a daemon whose runs take so long."""
    return ["--backend", "timed", "--option", f"ms={ms:g}", "--concurrent-runs", str(slots)]


@contextmanager
def daemons(*arguments: Sequence[str]) -> Iterator[list[str]]:
    """A daemon for each set of arguments; their addresses."""
    with ThreadPoolExecutor(len(arguments)) as threads:
        starting = [
            threads.submit(DaemonProcess, "--name", f"device-{index}", *each) for index, each in enumerate(arguments)
        ]
    try:
        yield [each.result().address for each in starting]
    finally:
        for each in starting:
            each.result().kill()


@contextmanager
def fleet(*arguments: Sequence[str]) -> Iterator[ModelSession]:
    """The model on daemons with these arguments."""
    with daemons(*arguments) as addresses, pool(addresses) as session:
        yield session


@contextmanager
def supervised(count: int) -> Iterator[Path]:
    """So many timed daemons that `nnrt-device up` keeps alive; the directory of what is known of them."""
    with TemporaryDirectory(prefix="fleet-") as folder:
        names = [f"device-{index}" for index in range(count)]
        file = fleet_file(Path(folder, "fleet.toml"), *names, backend="timed", option=[f"ms={RUN_MS}"])
        host = FleetProcess(Path(folder, "state"), file)
        try:
            yield host.state
        finally:
            host.send(signal.SIGTERM)
            host.wait()
            host.kill()


def addresses_of(state: Path) -> list[str]:
    return [daemon["addresses"][0] for daemon in ps(state).values()]


def pool(addresses: Sequence[str], model: Model | None = None) -> ModelSession:
    """A session with as many replicas as there are daemons."""
    return load(model or affine_model(), device=addresses, replicas=len(addresses), cache=False)


def runs_of(session: ModelSession) -> Callable[[Array], Array]:
    """What makes a run of one input and one output."""
    (output,) = (desc.name for desc in session.outputs)
    return lambda array: session.run([array])[output]


# ---- rows


def restarts(report: Report, lengths: Lengths) -> None:
    with supervised(8) as state, pool(addresses_of(state)) as session, affine_load(session, 16) as load:
        before = undisturbed(load, lengths)
        started = time.monotonic()
        for _ in range(lengths.restarts):
            done = nnrt_device("restart", "--all", "--rolling", "--state-dir", state)
            assert done.returncode == 0, done.stderr
        outcome = load.outcome(started, time.monotonic())
    least = before.rate * 6 / 8
    low_s = WINDOW_S * longest(rate < least for rate in outcome.rates(WINDOW_S))
    report.add(
        f"rolling restart of 8 daemons under full load, {lengths.restarts} times",
        "0 failed, 0 wrong; throughput below 6/8 for no longer than a restart takes",
        f"{verdict(outcome)}; below 6/8 for {low_s:.2f} s at most, a restart takes"
        f" {outcome.seconds / lengths.restarts / 8:.2f} s",
        f"{before.rate:.0f} runs/s before, {outcome.rate / before.rate:.2f} of that meanwhile",
    )


def kills(report: Report, lengths: Lengths) -> None:
    with supervised(8) as state, pool(addresses_of(state)) as session, affine_load(session, 16) as load:
        before = undisturbed(load, lengths)
        chance, pause, started = random.Random(SEED), every(1.0), time.monotonic()  # noqa: S311  (no secret)
        for _ in range(lengths.kills):
            pause()
            kill_one(state, chance)
        outcome = load.outcome(started, time.monotonic())
    report.add(
        f"kill -9 of a random one of 8 every second for {lengths.kills} s",
        "0 failed; p99 at most 3x of undisturbed",
        f"{verdict(outcome)}; p99 {outcome.percentile_s(99) / before.percentile_s(99):.2f}x",
        f"p99 {milliseconds(before)} before, {milliseconds(outcome)} meanwhile;"
        f" {outcome.rate / before.rate:.2f} of the throughput",
    )


def slow_device(report: Report, lengths: Lengths) -> None:
    slow, others = timed(10 * RUN_MS, slots=4), [timed(slots=4)] * 3
    with fleet(*[timed(slots=4)] * 4) as equal, fleet(slow, *others) as mixed:
        for name, workers, to_reach in (
            ("half of the slots in use", 8, "p99 at most 1.3x of four equal ones"),
            ("4 runs for each slot", 64, "no bound: three do the work of four, at best with 1.33x"),
        ):
            pairs = []
            for _ in range(lengths.rounds):
                of_equal, of_mixed = (closed_loop(session, workers, lengths.round_s) for session in (equal, mixed))
                pairs.append((of_equal.percentile_s(99), of_mixed.percentile_s(99)))
            report.add(
                f"one of 4 daemons ten times slower, {name}",
                to_reach,
                f"p99 {ratio(pairs)}",
                f"p99 of equal ones {1000 * statistics.median(equal for equal, _ in pairs):.0f} ms",
            )


def pinned(report: Report, lengths: Lengths) -> None:
    dense = dense_model()
    x = np.random.default_rng(SEED).standard_normal((ROWS, WIDTH), np.float32)
    for name, arguments, model in (
        ("compute-bound", ["--backend", "reference"], dense),
        (f"{RUN_MS} ms each", timed(), affine_model()),
    ):
        with ExitStack() as stack:
            addresses = stack.enter_context(daemons(*[arguments] * 4))
            alone = [stack.enter_context(load(model, device=each, cache=False)) for each in addresses]
            together = stack.enter_context(pool(addresses, model))
            questions = [(x, runs_of(alone[0])(x))] if model is dense else affine_questions()
            pairs = []
            for _ in range(lengths.rounds):
                sum_of_alone = side_by_side(alone, questions, 2, lengths.round_s)
                pairs.append((sum_of_alone, side_by_side([together], questions, 8, lengths.round_s)))
        report.add(
            f"a pool of 4 and four clients pinned to one each, runs {name}",
            "at least 0.95x",
            ratio(pairs),
            f"{statistics.median(pinned for pinned, _ in pairs):.0f} runs/s pinned",
        )


def own_cost(report: Report, lengths: Lengths) -> None:
    x = [np.ones(KILOBYTE, np.float32)]
    with ExitStack() as stack:
        addresses = stack.enter_context(daemons(*[["--backend", "reference"]] * 4))
        model = identity_model()
        one = stack.enter_context(load(model, device=addresses[0], cache=False))
        for count in 1, 4:
            several = stack.enter_context(pool(addresses[:count], model))
            pairs = in_turns(partial(one.run, x), partial(several.run, x))
            added = [pooled - single for single, pooled in pairs]
            report.add(
                f"the pool's own cost per run, {count} {'replicas' if count > 1 else 'replica'}",
                "at most 15 µs",
                f"{statistics.median(added):.1f} µs",
                f"a run of 1 KB on one device takes {statistics.median(single for single, _ in pairs):.0f} µs",
            )


def scaling(report: Report, lengths: Lengths) -> None:
    with ExitStack() as stack:
        addresses = stack.enter_context(daemons(*[timed(2 * RUN_MS)] * 16))
        pools = {count: stack.enter_context(pool(addresses[:count])) for count in (1, 2, 4, 8, 16)}
        rates: dict[int, list[float]] = {count: [] for count in pools}
        for _ in range(lengths.rounds):
            for count, session in pools.items():
                rates[count].append(closed_loop(session, 2 * count, lengths.round_s).rate)
    shares = {
        count: statistics.median(many / (count * one) for one, many in zip(rates[1], rates[count], strict=True))
        for count in pools
    }
    report.add(
        "replicas 1 to 16",
        "throughput at least 0.9 of linear",
        ", ".join(f"{count}: {share:.2f}" for count, share in shares.items() if count > 1),
        f"{statistics.median(rates[1]):.1f} runs/s of one, {statistics.median(rates[16]):.0f} of 16",
    )


def start_of_a_host(report: Report, lengths: Lengths) -> None:
    (table,) = host_start.measure()
    alone, together, beyond = (row[1] for row in table.rows)
    report.add(
        f"`nnrt-device up` on {host_start.DEVICES} devices to ready",
        "under 3 s beyond one daemon's start",
        f"{beyond} s beyond it",
        f"{alone} s for one daemon, {together} s for all",
    )


def discovery(report: Report, lengths: Lengths) -> None:
    table = discovery_table(lengths.new_daemons)
    ways = {way: median for way, median, _ in table.rows}
    known = ways.pop("address")
    report.add(
        "a new daemon appears: to its first run",
        "under 2 s with dns, file and mdns",
        ", ".join(f"{way} {median} s" for way, median in ways.items()),
        f"{known} s where its address is known",
    )


MEASURES: dict[str, Callable[[Report, Lengths], None]] = {
    "restarts": restarts,
    "kills": kills,
    "slow": slow_device,
    "pinned": pinned,
    "cost": own_cost,
    "scaling": scaling,
    "discovery": discovery,
    "host": start_of_a_host,
}


# ---- what rows share


def undisturbed(load: Load, lengths: Lengths) -> Outcome:
    """The load as it is without anything that happens, when it has warmed up."""
    time.sleep(1.0)
    return load.during(lambda: time.sleep(lengths.undisturbed_s))


def closed_loop(session: ModelSession, workers: int, seconds: float) -> Outcome:
    with affine_load(session, workers) as load:
        outcome = load.during(lambda: time.sleep(seconds))
    assert not outcome.failures, outcome.failures
    return outcome


def side_by_side(
    sessions: Sequence[ModelSession], questions: Sequence[Question], workers: int, seconds: float
) -> float:
    """Right answers per second of sessions that each have so many workers."""
    with ExitStack() as stack:
        loads = [stack.enter_context(Load(runs_of(session), questions, workers)) for session in sessions]
        start = time.monotonic()
        time.sleep(seconds)
        outcomes = [load.outcome(start, start + seconds) for load in loads]
    assert not any(outcome.failures for outcome in outcomes), [outcome.failures for outcome in outcomes]
    return sum(outcome.rate for outcome in outcomes)


def every(seconds: float) -> Callable[[], None]:
    """What sleeps until the next of moments that are so far apart."""
    at = time.monotonic()

    def pause() -> None:
        nonlocal at
        at += seconds
        time.sleep(max(at - time.monotonic(), 0.0))

    return pause


def longest(flags: Iterable[bool]) -> int:
    """The length of the longest row of true ones."""
    return max((len(list(same)) for flag, same in groupby(flags) if flag), default=0)


# ---- in words


def verdict(outcome: Outcome) -> str:
    """Count what went wrong, on the terminal with the reasons."""
    for failure, count in outcome.failures.most_common(5):
        print(f"{count} x {failure}", file=sys.stderr)
    return f"{outcome.failed} failed and {outcome.wrong} wrong of {outcome.runs + outcome.failures.total()} runs"


def milliseconds(outcome: Outcome) -> str:
    return f"{1000 * outcome.percentile_s(99):.0f} ms"


def ratio(pairs: Sequence[tuple[float, float]]) -> str:
    """The median of the rounds' ratios of the second to the first, with their quartiles."""
    low, middle, high = statistics.quantiles(second / first for first, second in pairs)
    return f"{middle:.2f}x ({low:.2f}..{high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="measure for a short time")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES), help="some of the rows")
    parser.add_argument("--write", action="store_true", help="write the table into docs/fleet.md")
    options = parser.parse_args()
    report = Report("A fleet", "", ("work", "to reach", "reached", "in the same run"))
    for name in options.only:
        told = len(report.rows)
        MEASURES[name](report, QUICK if options.quick else Lengths())
        for row in report.rows[told:]:
            print("|", " | ".join(row), "|", flush=True)
    if options.write:
        write(report)


def write(report: Report) -> None:
    """Put these rows in the place of those that the page has of the same work, or below them."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    lines = [line for line in old.splitlines() if line.startswith("| ")][2:]
    rows = {row[0]: row for row in [*(line.strip("| ").split(" | ") for line in lines), *report.rows]}
    day = datetime.datetime.now(datetime.timezone.utc).date()
    whole = replace(report, rows=list(rows.values()))
    PAGE.write_text(f"{before}{BEGIN}\nMeasured until {day} ({machine()}).\n\n{whole.table()}\n{END}{after}")


if __name__ == "__main__":
    main()
