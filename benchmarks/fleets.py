"""Benchmarks of pools: restarts, deaths, a slow device, cost per run, and scaling, each against its target.

    PYTHONPATH=tests python benchmarks/fleets.py [--brief] [--only kills]

`make bench-fleet` writes the table into docs/guides/pools.md. Answers of all runs are compared with the right ones. A
run occupies its device for a given time (tests/plugins/timed_backend.py), like on accelerators that need no CPU core of
this machine, unless a row says compute-bound.
"""

import argparse
import datetime
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

# Set before NumPy is imported, also for the daemons: four of them share two cores.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import harness
import numpy as np
from fleet.fleet_process import FleetProcess, fleet_file, kill_one, nnrt_device, ps
from fleet_load import Array, Load, Outcome, Question, affine_load, affine_model, affine_questions
from harness import ROOT, Report, alternate, at_most, device_daemon, in_rounds, machine, spread
from resolvers.name_server import NameServer
from working_client import dense, identity

from nnrt_client import AddressChange, Model, ModelSession, Runtime, load

PAGE = ROOT / "docs/guides/pools.md"
BEGIN, END = "<!-- figures: `make bench-fleet` writes them -->\n", "<!-- end of figures -->\n"
RUN_MS = 25
UNDISTURBED_S, RESTARTS, KILLS, ROUNDS, ROUND_S, STARTS = 15.0, 3, 120, 12, 2.0, 5
WINDOW_S = 0.25
DEADLINE_S = 60.0
SEED = 0
# Settings of daemons under a supervisor.
TIMED = {"backend": "timed", "option": [f"ms={RUN_MS}"]}


def timed(ms: float = RUN_MS, slots: int = 1) -> list[str]:
    """Return the arguments of a daemon whose runs take `ms` milliseconds."""
    return ["--backend", "timed", "--option", f"ms={ms:g}", "--concurrent-runs", str(slots)]


@contextmanager
def daemons(*arguments: Sequence[str]) -> Iterator[list[str]]:
    """Start a daemon for each set of arguments and yield their addresses."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(device_daemon("127.0.0.1:0", "--name", f"device-{index}", *each)).address
            for index, each in enumerate(arguments)
        ]


@contextmanager
def supervise(count: int, **defaults: object) -> Iterator[Path]:
    """Start `count` daemons under `nnrt-device up` and yield the supervisor's state directory."""
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        names = [f"device-{index}" for index in range(count)]
        file = fleet_file(Path(folder, "fleet.toml"), *names, **defaults)
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
    """Load a model with one replica per daemon."""
    return load(model or affine_model(), device=addresses, replicas=len(addresses), cache=False)


def run_function(session: ModelSession) -> Callable[[Array], Array]:
    """Return a function that runs a model with one input and one output."""
    (output,) = (desc.name for desc in session.outputs)
    return lambda array: session.run([array])[output]


# ---- rows


def restarts(report: Report) -> None:
    times = at_most(RESTARTS, 1)
    with supervise(8, **TIMED) as state, pool(addresses_of(state)) as session, affine_load(session, 16) as load:
        before = measure_undisturbed(load)
        started = time.monotonic()
        for _ in range(times):
            done = nnrt_device("restart", "--all", "--rolling", "--state-dir", state)
            assert done.returncode == 0, done.stderr
        outcome = load.outcome(started, time.monotonic())
    least = before.rate * 6 / 8
    low_s = WINDOW_S * longest_streak(rate < least for rate in outcome.rates(WINDOW_S))
    report.add(
        f"rolling restart of 8 daemons under full load, {times} times",
        "0 failed, 0 wrong; throughput below 6/8 for no longer than a restart takes",
        f"{verdict(outcome)}; below 6/8 for {low_s:.2f} s at most, a restart takes {outcome.seconds / times / 8:.2f} s",
        f"{before.rate:.0f} runs/s before, {outcome.rate / before.rate:.2f} of that meanwhile",
    )


def kills(report: Report) -> None:
    times = at_most(KILLS, 8)
    with supervise(8, **TIMED) as state, pool(addresses_of(state)) as session, affine_load(session, 16) as load:
        before = measure_undisturbed(load)
        chance, started = random.Random(SEED), time.monotonic()  # noqa: S311  (no secret)
        for number in range(times):
            time.sleep(max(started + number + 1 - time.monotonic(), 0.0))
            kill_one(state, chance)
        outcome = load.outcome(started, time.monotonic())
    report.add(
        f"kill -9 of a random one of 8 every second for {times} s",
        "0 failed; p99 at most 3x of undisturbed",
        f"{verdict(outcome)}; p99 {outcome.percentile_s(99) / before.percentile_s(99):.2f}x",
        f"p99 {milliseconds(before)} before, {milliseconds(outcome)} meanwhile;"
        f" {outcome.rate / before.rate:.2f} of the throughput",
    )


def slow_device(report: Report) -> None:
    with ExitStack() as stack:
        kinds = {"equal": [timed(slots=4)] * 4, "mixed": [timed(10 * RUN_MS, slots=4), *[timed(slots=4)] * 3]}
        pools = {kind: stack.enter_context(pool(stack.enter_context(daemons(*each)))) for kind, each in kinds.items()}
        for name, workers, to_reach in (
            ("half of the slots in use", 8, "p99 at most 1.3x of four equal ones"),
            ("4 runs for each slot", 64, "no bound: three do the work of four, at best with 1.33x"),
        ):
            ways = {kind: partial(measure_closed_loop, session, workers) for kind, session in pools.items()}
            p99 = {kind: [each.percentile_s(99) for each in r] for kind, r in in_rounds(ways, ROUNDS).items()}
            report.add(
                f"one of 4 daemons ten times slower, {name}",
                to_reach,
                f"p99 {ratio(p99['equal'], p99['mixed'])}",
                f"p99 of equal ones {1000 * statistics.median(p99['equal']):.0f} ms",
            )


def pinned(report: Report) -> None:
    x = np.random.default_rng(SEED).standard_normal((64, 512), np.float32)
    for name, arguments, model in (
        ("compute-bound", ["--backend", "reference"], dense(*[512] * 9, rows=64)),
        (f"{RUN_MS} ms each", timed(), affine_model()),
    ):
        with ExitStack() as stack:
            addresses = stack.enter_context(daemons(*[arguments] * 4))
            alone = [stack.enter_context(load(model, device=each, cache=False)) for each in addresses]
            together = stack.enter_context(pool(addresses, model))
            questions = [(x, run_function(alone[0])(x))] if name == "compute-bound" else affine_questions()
            ways = {
                "pinned": partial(measure_together, alone, questions, 2),
                "pool": partial(measure_together, [together], questions, 8),
            }
            rates = in_rounds(ways, ROUNDS)
        report.add(
            f"a pool of 4 and four clients pinned to one each, runs {name}",
            "at least 0.95x",
            ratio(rates["pinned"], rates["pool"]),
            f"{statistics.median(rates['pinned']):.0f} runs/s pinned",
        )


def cost_per_run(report: Report) -> None:
    x = [np.ones(harness.SIZES["1 KB"], np.float32)]
    with daemons(*[["--backend", "reference"]] * 4) as addresses:
        for count in 1, 4:
            with (
                load(identity(), device=addresses[0], cache=False) as one,
                pool(addresses[:count], identity()) as several,
            ):
                pairs = alternate(partial(one.run, x), partial(several.run, x))
            report.add(
                f"the pool's own cost per run, {count} {'replicas' if count > 1 else 'replica'}",
                "at most 15 µs",
                f"{statistics.median(pooled - single for single, pooled in pairs):.1f} µs",
                f"a run of 1 KB on one device takes {statistics.median(single for single, _ in pairs):.0f} µs",
            )


def scaling(report: Report) -> None:
    with ExitStack() as stack:
        addresses = stack.enter_context(daemons(*[timed(2 * RUN_MS)] * 16))
        pools = {count: stack.enter_context(pool(addresses[:count])) for count in (1, 2, 4, 8, 16)}
        ways = {str(count): partial(measure_closed_loop, session, 2 * count) for count, session in pools.items()}
        rates = {count: [each.rate for each in outcomes] for count, outcomes in in_rounds(ways, ROUNDS).items()}
    shares = {
        count: statistics.median(many / (int(count) * one) for one, many in zip(rates["1"], rates[count], strict=True))
        for count in ways
    }
    report.add(
        "replicas 1 to 16",
        "throughput at least 0.9 of linear",
        ", ".join(f"{count}: {share:.2f}" for count, share in shares.items() if count != "1"),
        f"{statistics.median(rates['1']):.1f} runs/s of one, {statistics.median(rates['16']):.0f} of 16",
    )


def start_of_a_host(report: Report) -> None:
    ways = {
        "alone": partial(time_start, device_daemon),
        "together": partial(time_start, partial(supervise, 4, backend="reference")),
    }
    alone, together = in_rounds(ways, STARTS).values()
    beyond = statistics.median(several - one for one, several in zip(alone, together, strict=True))
    report.add(
        "`nnrt-device up` on 4 devices to ready",
        "under 3 s beyond one daemon's start",
        f"{beyond:.2f} s beyond it",
        f"{statistics.median(alone):.2f} s for one daemon, {statistics.median(together):.2f} s for all",
    )


def discovery(report: Report) -> None:
    ways = {way: partial(time_first_run, way) for way in ("address", "file", "dns", "mdns")}
    medians = {way: f"{statistics.median(times):.2f} s" for way, times in in_rounds(ways, STARTS).items()}
    known = medians.pop("address")
    report.add(
        "a new daemon appears: to its first run",
        "under 2 s with dns, file and mdns",
        ", ".join(f"{way} {median}" for way, median in medians.items()),
        f"{known} where its address is known",
    )


MEASURES: Mapping[str, Callable[[Report], None]] = {
    "restarts": restarts,
    "kills": kills,
    "slow": slow_device,
    "pinned": pinned,
    "cost": cost_per_run,
    "scaling": scaling,
    "discovery": discovery,
    "host": start_of_a_host,
}


# ---- what rows share


def measure_undisturbed(load: Load) -> Outcome:
    """Measure the load after a warm-up, without any disturbance."""
    time.sleep(1.0)
    return load.during(lambda: time.sleep(at_most(UNDISTURBED_S, 4.0)))


def measure_closed_loop(session: ModelSession, workers: int) -> Outcome:
    with affine_load(session, workers) as load:
        outcome = load.during(lambda: time.sleep(at_most(ROUND_S, 1.0)))
    assert not outcome.failures, outcome.failures
    return outcome


def measure_together(sessions: Sequence[ModelSession], questions: Sequence[Question], workers: int) -> float:
    """Return the right answers per second of all sessions together, each with `workers` workers."""
    with ExitStack() as stack:
        loads = [stack.enter_context(Load(run_function(session), questions, workers)) for session in sessions]
        start = time.monotonic()
        time.sleep(at_most(ROUND_S, 1.0))
        outcomes = [load.outcome(start, time.monotonic()) for load in loads]
    assert not any(outcome.failures for outcome in outcomes), [outcome.failures for outcome in outcomes]
    return sum(outcome.rate for outcome in outcomes)


def time_start(start: Callable[[], AbstractContextManager[object]]) -> float:
    """Return the seconds that a start takes."""
    began = time.perf_counter()
    with start():
        return time.perf_counter() - began


def time_first_run(way: str) -> float:
    """Return the seconds from a daemon's readiness to its first answer.

    `way` says how the application finds the daemon: by "file", "dns" or "mdns", or because it knows the "address".
    The file and the DNS records get the address when the daemon is ready; with mdns the daemon announces itself.
    """
    appeared: dict[str, threading.Event] = {}

    def listen(change: AddressChange) -> None:
        for address in change.added:
            appeared.setdefault(address, threading.Event()).set()

    with ExitStack() as stack:
        file = Path(stack.enter_context(tempfile.TemporaryDirectory()), "devices")
        file.write_text("")
        server = stack.enter_context(NameServer())
        names = {
            "file": f"file://{file}",
            "dns": f"dns://{server.address}/_nnrt._tcp.test",
            "mdns": "mdns:///?interface=127.0.0.1",
        }
        runtime = stack.enter_context(Runtime([names[way]] if way in names else []))
        runtime.watch(listen)
        announcing = ("--announce", "--announce-interface", "127.0.0.1") if way == "mdns" else ()
        at, _ = stack.enter_context(device_daemon("127.0.0.1:0", *announcing))
        began = time.perf_counter()
        file.write_text(f"{at}\n")
        host, port = at.split(":")
        server.say("one.test", "A", host).say("_nnrt._tcp.test", "SRV", f"0 0 {port} one.test.")
        if way in names:
            assert appeared.setdefault(at, threading.Event()).wait(DEADLINE_S)
        with load(affine_model(), runtime.device(at) if way in names else at) as session:
            question, answer = affine_questions(1)[0]
            assert np.array_equal(run_function(session)(question), answer)
            return time.perf_counter() - began


def longest_streak(flags: Iterable[bool]) -> int:
    """Return the length of the longest run of true values."""
    return max((len(list(same)) for flag, same in groupby(flags) if flag), default=0)


# ---- in words


def verdict(outcome: Outcome) -> str:
    """Return the counts of failed and wrong runs; print the reasons to stderr."""
    for failure, count in outcome.failures.most_common(5):
        print(f"{count} x {failure}", file=sys.stderr)
    return f"{outcome.failed} failed and {outcome.wrong} wrong of {outcome.runs + outcome.failures.total()} runs"


def milliseconds(outcome: Outcome) -> str:
    return f"{1000 * outcome.percentile_s(99):.0f} ms"


def ratio(first: Sequence[float], second: Sequence[float]) -> str:
    """Return the median and quartiles of second / first over all rounds."""
    middle, quartiles = spread(after / before for before, after in zip(first, second, strict=True))
    return f"{middle}x ({quartiles})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--brief", action="store_true", help="measure for a short time")
    parser.add_argument("--only", nargs="+", choices=MEASURES, default=list(MEASURES), help="some of the rows")
    parser.add_argument("--write", action="store_true", help="write the table into docs/guides/pools.md")
    options = parser.parse_args()
    harness.is_brief = options.brief
    report = Report("A fleet", "", ("case", "target", "result", "reference in the same run"))
    for name in options.only:
        shown = len(report.rows)
        MEASURES[name](report)
        for row in report.rows[shown:]:
            print("|", " | ".join(row), "|", flush=True)
    if options.write:
        write(report)


def write(report: Report) -> None:
    """Write the report's rows into the table of PAGE: replace rows of the same cases, and append the others."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    old, _, after = rest.partition(END)
    lines = [line for line in old.splitlines() if line.startswith("| ")][2:]
    rows = {row[0]: row for row in [*(line.strip("| ").split(" | ") for line in lines), *report.rows]}
    day = datetime.datetime.now(datetime.timezone.utc).date()
    whole = replace(report, rows=list(rows.values()))
    PAGE.write_text(f"{before}{BEGIN}\nMeasured until {day} ({machine()}).\n\n{whole.table()}\n{END}{after}")


if __name__ == "__main__":
    main()
