"""Load on a session: a number of runs always in flight, measured in windows until they agree."""

import queue
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.model_session.model_session import ModelSession
from nnrt_hdi.tensor import Array

# So many windows in a row have to agree, and are what is reported.
WINDOWS = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """Rule for a stable measurement: throughput and latency of the last windows are within `tolerance` of their mean.

    The latency is the mean of a window, or a percentile of it. A window lasts `window_s`, and until at least
    `least_runs` have ended in it.
    """

    window_s: float
    most_windows: int
    tolerance: float
    percentile: float | None = None
    least_runs: int = 10

    def latency_s(self, latencies_s: NDArray[np.float64]) -> float:
        """Give the one latency that counts: the mean, or the percentile."""
        if self.percentile is None:
            return float(latencies_s.mean())
        return float(np.percentile(latencies_s, self.percentile))

    def is_stable(self, windows: list["Window"]) -> bool:
        """Tell if the last windows agree."""
        last = windows[-WINDOWS:]
        if len(last) < WINDOWS:
            return False
        measured = np.array([(window.runs_per_s, self.latency_s(window.latencies_s)) for window in last])
        means = measured.mean(axis=0)
        return bool((np.abs(measured - means) <= self.tolerance * means).all())


@dataclass(frozen=True, slots=True)
class Window:
    """The runs that ended within some time."""

    latencies_s: NDArray[np.float64]
    seconds: float

    @property
    def runs_per_s(self) -> float:
        """Throughput of the window."""
        return len(self.latencies_s) / self.seconds


@dataclass(frozen=True, slots=True)
class Measurement:
    """Figures for a number of runs in flight: the last windows together."""

    concurrency: int
    windows: int
    is_stable: bool
    latencies_s: NDArray[np.float64]
    runs_per_s: float

    def percentile_ms(self, percentile: float) -> float:
        """Give a percentile of the latency."""
        return float(np.percentile(self.latencies_s, percentile)) * 1e3

    @property
    def mean_ms(self) -> float:
        """Mean of the latency."""
        return float(self.latencies_s.mean()) * 1e3


class ClosedLoop:
    """Keeps runs in flight: whenever one ends, the next begins."""

    def __init__(self, session: ModelSession, inputs: Mapping[str, Array], concurrency: int, timeout_ms: int) -> None:
        self._session = session
        self._inputs = inputs
        self._timeout_ms = timeout_ms
        self._concurrency = concurrency
        self._ended: queue.SimpleQueue[tuple[float, float, Future[Any]]] = queue.SimpleQueue()
        self._in_flight: deque[Future[Any]] = deque()

    def measure(self, rule: Rule, step: Callable[[], object]) -> Measurement:
        """Warm up, then measure until it is stable, or until there have been enough windows. Raises what a run does.

        `step` is called after each window.
        """
        try:
            for _ in range(self._concurrency):
                self._begin()
            self._window(0.0, self._concurrency)  # The first of each are slower than those that follow.
            windows: list[Window] = []
            while len(windows) < rule.most_windows and not rule.is_stable(windows):
                windows.append(self._window(rule.window_s, rule.least_runs))
                step()
            while self._in_flight:
                self._in_flight.popleft().result()
        finally:
            for future in self._in_flight:
                future.cancel()
        last = windows[-WINDOWS:]
        return Measurement(
            self._concurrency,
            len(windows),
            rule.is_stable(windows),
            np.concatenate([window.latencies_s for window in last]),
            sum(len(window.latencies_s) for window in last) / sum(window.seconds for window in last),
        )

    def _window(self, seconds: float, least_runs: int) -> Window:
        began = now = time.perf_counter()
        latencies: list[float] = []
        while now - began < seconds or len(latencies) < least_runs:
            start, end, future = self._ended.get()
            future.result()
            self._begin()
            latencies.append(end - start)
            now = time.perf_counter()
        return Window(np.array(latencies), now - began)

    def _begin(self) -> None:
        started = time.perf_counter()
        future = self._session.submit(self._inputs, timeout_ms=self._timeout_ms)
        # The time is taken where the reply is read, not where it is waited for.
        future.add_done_callback(lambda future: self._ended.put((started, time.perf_counter(), future)))
        self._in_flight.append(future)
        while self._in_flight and self._in_flight[0].done():
            self._in_flight.popleft()
