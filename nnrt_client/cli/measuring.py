"""Measurement of a load on a session, in successive windows of time until their results agree."""

import queue
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.cli.run_parts import mean_times
from nnrt_client.model_session.model_session import ModelSession
from nnrt_hdi.run_times import RunTimes
from nnrt_hdi.tensor import Array

# Number of consecutive windows that must agree; the report covers these.
WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for a stable measurement: the last windows are within `tolerance` of their mean.

    The rule compares the windows' latency (its mean or `percentile`) and, if `counts_throughput`, their throughput. A
    window ends after `window_s`, but not before `least_runs` runs have ended.
    """

    window_s: float
    most_windows: int
    tolerance: float
    percentile: float | None = None
    least_runs: int = 10
    counts_throughput: bool = True

    def latency_s(self, latencies_s: NDArray[np.float64]) -> float:
        """Return the latency that the rule compares: the mean or the percentile."""
        if self.percentile is None:
            return float(latencies_s.mean())
        return float(np.percentile(latencies_s, self.percentile))

    def is_stable(self, windows: Sequence["Window"]) -> bool:
        """Return whether the last windows agree."""
        last = windows[-WINDOWS:]
        if len(last) < WINDOWS:
            return False
        latencies = [self.latency_s(window.latencies_s) for window in last]
        rates = [window.runs_per_s for window in last if self.counts_throughput]
        return all(self._agree(figures) for figures in (latencies, rates) if figures)

    def _agree(self, figures: Sequence[float]) -> bool:
        mean = np.mean(figures)
        return bool((np.abs(np.array(figures) - mean) <= self.tolerance * mean).all())


@dataclass(frozen=True, slots=True)
class RunTime:
    """Latency of a run, and its parts (None if the run consisted of several runs, which report none)."""

    latency_s: float
    times: RunTimes | None


@dataclass(frozen=True, slots=True)
class Window:
    """Runs that ended within one window."""

    runs: Sequence[RunTime]
    seconds: float

    @property
    def latencies_s(self) -> NDArray[np.float64]:
        return np.array([run.latency_s for run in self.runs])

    @property
    def runs_per_s(self) -> float:
        return len(self.runs) / self.seconds


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of measuring one load (runs in flight, or runs per second), over the last windows together."""

    load: float
    windows: int
    is_stable: bool
    runs: Sequence[RunTime]
    runs_per_s: float

    @property
    def latencies_s(self) -> NDArray[np.float64]:
        return np.array([run.latency_s for run in self.runs])

    def percentile_ms(self, percentile: float) -> float:
        """Return a percentile of the latency in milliseconds."""
        return float(np.percentile(self.latencies_s, percentile)) * 1e3

    @property
    def mean_ms(self) -> float:
        return float(self.latencies_s.mean()) * 1e3

    @property
    def parts_ms(self) -> dict[str, float] | None:
        """Mean latency by part: the device's queue and compute, and transfer for the rest; None if unknown."""
        if (mean := self._mean_of(0.0, 1.0)) is None:
            return None
        queue_ms, compute_ms = mean.queued_ns / 1e6, mean.computed_ns / 1e6
        return {"queue": queue_ms, "transfer": self.mean_ms - queue_ms - compute_ms, "compute": compute_ms}

    @property
    def typical(self) -> RunTimes | None:
        """Parts of a run near the median latency: means over the middle fifth of all runs."""
        return self._mean_of(0.4, 0.6)

    @property
    def slow(self) -> RunTimes | None:
        """Parts of a slow run: means over the slowest 1 % of all runs, at least one run."""
        return self._mean_of(0.99, 1.0)

    def _mean_of(self, first: float, last: float) -> RunTimes | None:
        """Return the mean parts of the runs between two quantiles of the latency, or None if a run reports none."""
        runs = sorted(self.runs, key=lambda run: run.latency_s)
        end = max(round(last * len(runs)), 1)
        times = [run.times for run in runs[min(round(first * len(runs)), end - 1) : end]]
        known = [one for one in times if one is not None]
        return mean_times(known) if len(known) == len(times) else None


class Runs:
    """Runs of a session with the same inputs, any number in flight."""

    def __init__(self, session: ModelSession, inputs: Mapping[str, Array], timeout_ms: int) -> None:
        self._submit = partial(session._executor._submit, session._order_inputs(inputs), None, timeout_ms, None)
        self._ended: queue.SimpleQueue[tuple[float, float, Future[Any]]] = queue.SimpleQueue()
        self._in_flight: set[Future[Any]] = set()

    def __len__(self) -> int:
        """Return the number of runs in flight."""
        return len(self._in_flight)

    def start(self, counted_from: float) -> None:
        """Start a run whose latency counts from `counted_from`, a time of `time.perf_counter`."""
        future = self._submit()
        self._in_flight.add(future)
        # The thread that reads the reply takes the time, not the one that waits for it.
        future.add_done_callback(lambda future: self._ended.put((counted_from, time.perf_counter(), future)))

    def next_end(self, timeout_s: float | None = None) -> RunTime | None:
        """Wait for a run to end; return None if none ends in time. Raises the error of a failed run."""
        try:
            start, end, future = self._ended.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self._in_flight.discard(future)
        return RunTime(end - start, _add_start_delay(end - start, future.result().times))

    def end(self) -> None:
        """Wait for all runs in flight. Raises the error of a failed run."""
        while self._in_flight:
            self.next_end()

    def cancel(self) -> None:
        """Cancel the runs in flight."""
        for future in self._in_flight:
            future.cancel()


def _add_start_delay(latency_s: float, times: RunTimes | None) -> RunTimes | None:
    """Return the times with `waited_ns` extended to cover the time between the scheduled and the actual start."""
    if times is None:
        return None
    return times._replace(waited_ns=times.waited_ns + max(round(latency_s * 1e9) - times.total_ns, 0))


class Loop(ABC):
    """Generator of a load on a session, which it also measures."""

    def __init__(self, runs: Runs, load: float) -> None:
        self._runs = runs
        self._load = load

    def measure(self, rule: Rule, step: Callable[[], object]) -> Measurement:
        """Warm up, then measure windows until they are stable or their maximum number is reached.

        `step` is called after each window. Raises the error of a failed run.
        """
        try:
            self._warm_up()
            windows: list[Window] = []
            while len(windows) < rule.most_windows and not rule.is_stable(windows):
                windows.append(self._window(rule.window_s, rule.least_runs))
                step()
            self._runs.end()
        finally:
            self._runs.cancel()
        last = windows[-WINDOWS:]
        runs = [run for window in last for run in window.runs]
        seconds = sum(window.seconds for window in last)
        return Measurement(self._load, len(windows), rule.is_stable(windows), runs, len(runs) / seconds)

    @abstractmethod
    def _warm_up(self) -> None:
        """Start the load, and wait for the first runs, which are slower than later ones."""

    @abstractmethod
    def _window(self, seconds: float, least_runs: int) -> Window:
        """Keep up the load for `seconds`, and longer until `least_runs` runs have ended; return the runs that ended."""
