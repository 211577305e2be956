"""Pools of devices: what they cost, how they balance, and what a run has of daemons that are slow, killed or restarted.

    PYTHONPATH=tests python benchmarks/pools.py [--seconds 20] [NAME...]

Sleep-bound daemons (`steady`) stand for accelerators, for the cores of one machine can't be those of several.
"""

import argparse
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from daemon_process import DaemonProcess
from networks import identity_model
from report import Report, machine
from typing_extensions import Self

from nnrt_client import Model, ModelSession, NnrtError, OperationType, Pool, load

ROUNDS, RUNS = 41, 200
ONE = np.ones(1, np.float32)
STEADY = ("--backend", "steady", "--option")


@contextmanager
def fleet(count: int, *arguments: str) -> Iterator[list[DaemonProcess]]:
    """So many daemons on sockets, which can be started there again."""
    with tempfile.TemporaryDirectory() as place:
        daemons = [started(number, f"unix:{place}/{number}", arguments) for number in range(count)]
        try:
            yield daemons
        finally:
            for daemon in daemons:
                daemon.kill()


def started(number: int, listen: str, arguments: Sequence[str]) -> DaemonProcess:
    return DaemonProcess("--name", f"d{number}", *arguments, listen=listen)


def addresses(daemons: Sequence[DaemonProcess]) -> list[str]:
    return [daemon.address for daemon in daemons]


class Load:
    """Threads that run a session without a pause, and note when each run ended and how long it took."""

    def __init__(self, sessions: Sequence[ModelSession], inputs: Any) -> None:
        self._inputs = inputs
        self._is_over = False
        self.ends: list[tuple[float, float]] = []
        self.errors: list[NnrtError] = []
        self.wrong = 0
        self._threads = [threading.Thread(target=self._run, args=(session,)) for session in sessions]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()

    def _run(self, session: ModelSession) -> None:
        expected: Any = None
        while not self._is_over:
            began = time.monotonic()
            try:
                (output,) = session.run(self._inputs).values()
            except NnrtError as error:
                self.errors.append(error)
                continue
            now = time.monotonic()
            self.ends.append((now, now - began))
            expected = output if expected is None else expected
            self.wrong += not np.array_equal(output, expected)

    def rate(self, since: float, until_s: float) -> float:
        """Runs per second between two times."""
        return sum(since < end <= until_s for end, _ in self.ends) / (until_s - since)

    def p99_ms(self, since: float = 0.0) -> float:
        return float(np.percentile([took for end, took in self.ends if end > since], 99)) * 1e3


def measured(sessions: Sequence[ModelSession], inputs: Any, seconds: float) -> Load:
    """A load for so long, of which the first half second doesn't count."""
    with Load(sessions, inputs) as running:
        time.sleep(0.5)
        began = time.monotonic()
        time.sleep(seconds)
    running.ends = [one for one in running.ends if began < one[0] <= began + seconds]
    return running


# ---- what is measured


def cost(seconds: float, report: Report) -> None:
    """A pool beside the executor of its first replica, in turns."""
    with fleet(8) as daemons:
        for count in (1, 4, 8):
            with load(identity_model(), addresses(daemons[:count]), cache=False) as session:
                executor: Any = session._executor
                alone, pooled = executor.supply.serving[0].executor._run, executor._run
                pairs = [(took_us(alone), took_us(pooled)) for _ in range(ROUNDS)]
            more = [with_pool - without for without, with_pool in pairs]
            low, middle, high = statistics.quantiles(more, n=4)
            report.add(
                f"its own cost per run, {count} replicas", f"{middle:.1f} us ({low:.1f}..{high:.1f})", "at most 15 us"
            )


def took_us(run: Callable[..., Any]) -> float:
    began = time.perf_counter()
    for _ in range(RUNS):
        run([ONE], None, None)
    return (time.perf_counter() - began) / RUNS * 1e6


def compute(seconds: float, report: Report) -> None:
    """Four daemons that compute, in turns used by four clients of one each and by one pool."""
    x = np.random.default_rng(0).standard_normal((64, 256), np.float32)
    model = Model()
    given = model.input((64, 256), name="x")
    y = given
    for seed in range(8):
        y = model.apply(OperationType.MATMUL, y, np.random.default_rng(seed).standard_normal((256, 256), np.float32))
    model.specify_inputs_and_outputs([given], [y])
    model.finish()
    ratios = []
    with fleet(4) as daemons:
        pinned = [load(model, daemon.address, cache=False) for daemon in daemons]
        pooled = load(model, addresses(daemons), cache=False)
        for _ in range(5):
            alone, together = measured(pinned, [x], seconds / 5), measured([pooled] * 4, [x], seconds / 5)
            ratios.append(len(together.ends) / len(alone.ends))
        for session in (*pinned, pooled):
            session.close()
    report.add(
        "throughput of a pool of 4 to that of 4 clients of one each",
        f"{statistics.median(ratios):.3f} ({min(ratios):.3f}..{max(ratios):.3f})",
        "at least 0.95",
    )


def slow_one(seconds: float, report: Report) -> None:
    """Three runs in flight on four devices."""
    p99 = []
    for last in ("0.005", "0.05"):
        with (
            fleet(3, *STEADY, "seconds=0.005") as daemons,
            fleet(1, *STEADY, f"seconds={last}") as others,
            load(identity_model(), addresses([*daemons, *others]), cache=False) as session,
        ):
            p99.append(measured([session] * 3, [ONE], seconds).p99_ms())
    report.add(
        "p99 with one of 4 ten times slower",
        f"{p99[1]:.2f} ms to {p99[0]:.2f} ms: {p99[1] / p99[0]:.2f}x",
        "at most 1.3x",
    )


def scaling(seconds: float, report: Report) -> None:
    """Two runs in flight for each device, 20 ms each."""
    with fleet(16, *STEADY, "seconds=0.02") as daemons:
        rates = {}
        for count in (1, 2, 4, 8, 16):
            with load(identity_model(), addresses(daemons[:count]), cache=False) as session:
                rates[count] = len(measured([session] * 2 * count, [ONE], seconds / 4).ends)
    linear = {count: rate / rates[1] / count for count, rate in rates.items()}
    told = ", ".join(f"{count}: {part:.3f}" for count, part in linear.items())
    report.add("throughput of n replicas to n times that of one", told, "at least 0.9")


def restarts(seconds: float, report: Report) -> None:
    """Eight daemons are drained and started again, one after the other, three times, under full load."""
    arguments = (*STEADY, "seconds=0.02")
    with fleet(8, *arguments) as daemons, Pool(addresses(daemons)) as pool:
        with pool.load(identity_model(), cache=False) as session, Load([session] * 16, [ONE]) as running:
            time.sleep(3)
            began = time.monotonic()
            before = running.rate(began - 2, began)
            for _ in range(3):
                for number, daemon in enumerate(daemons):
                    daemon.send(signal.SIGTERM)
                    daemon.wait()
                    daemon.kill()
                    daemons[number] = started(number, daemon.address, arguments)
                    while len(session.devices) < 8:
                        time.sleep(0.01)
            ended = time.monotonic()
        windows = [running.rate(at, at + 1) / before for at in np.arange(began, ended - 1, 0.25)]
        report.add(
            f"rolling restart of 8 daemons, 3 times, in {ended - began:.0f} s, {len(running.ends)} runs",
            f"{len(running.errors)} failed, {running.wrong} wrong; least throughput in a second"
            f" {min(windows) * 8:.1f}/8 of before",
            "0 failed, 0 wrong; 6/8",
        )


def kills(seconds: float, report: Report) -> None:
    """kill -9 of one of eight daemons each second, which is started again at once."""
    arguments = (*STEADY, "seconds=0.02")
    random = np.random.default_rng(0)
    with fleet(8, *arguments) as daemons, Pool(addresses(daemons)) as pool:
        with pool.load(identity_model(), cache=False) as session:
            with Load([session] * 6, [ONE]) as undisturbed:
                time.sleep(5)
            with Load([session] * 6, [ONE]) as running:
                ends = time.monotonic() + seconds
                count = 0
                while time.monotonic() < ends:
                    next_at = time.monotonic() + 1
                    number = int(random.integers(8))
                    daemons[number].kill()
                    daemons[number] = started(number, daemons[number].address, arguments)
                    count += 1
                    time.sleep(max(next_at - time.monotonic(), 0))
        report.add(
            f"kill -9 of one of 8 each second, {count} times, {len(running.ends)} runs",
            f"{len(running.errors)} failed, {running.wrong} wrong; p99 {running.p99_ms():.1f} ms to"
            f" {undisturbed.p99_ms():.1f} ms: {running.p99_ms() / undisturbed.p99_ms():.2f}x",
            "0 failed; p99 3x",
        )


def newcomer(seconds: float, report: Report) -> None:
    """A daemon that listens is written into the file of names; the time to the end of the first run there."""
    took = []
    with fleet(6) as daemons, tempfile.NamedTemporaryFile("w") as names:
        path = Path(names.name)
        path.write_text(daemons[0].address + "\n")
        with Pool([f"file://{path}"]) as pool, pool.load(identity_model(), cache=False) as session:
            for daemon in daemons[1:]:
                began = time.monotonic()
                with path.open("a") as file:
                    file.write(daemon.address + "\n")
                while not any(member.address == daemon.address and member.runs for member in pool.members()):
                    session.run([ONE])
                took.append(time.monotonic() - began)
    report.add(
        "a new daemon in a file of names: to its first run",
        f"median {statistics.median(took):.2f} s, at most {max(took):.2f} s",
        "under 2 s",
    )


MEASUREMENTS = {
    function.__name__: function for function in (cost, compute, slow_one, scaling, restarts, kills, newcomer)
}


def measure(names: Sequence[str] = tuple(MEASUREMENTS), seconds: float = 10.0) -> Iterator[Report]:
    report = Report("Pools", f"See benchmarks/pools.py ({machine()}).", ("what", "measured", "to reach"))
    for name in names:
        MEASUREMENTS[name](seconds, report)
    yield report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    parser.add_argument("--seconds", type=float, default=10.0)
    asked = parser.parse_args()
    for one in measure(asked.names or tuple(MEASUREMENTS), asked.seconds):
        one.show()
