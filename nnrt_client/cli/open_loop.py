"""Load with a given rate of arrivals, which doesn't depend on the device's speed, like requests from many users."""

import time

import numpy as np

from nnrt_client.cli.measuring import Loop, Runs, RunTime, Window
from nnrt_hdi.errors import OperationFailed

_MOST_WAITING = 1024


class OpenLoop(Loop):
    """Load that starts runs at the times of a Poisson process, `rate` per second on average.

    The latency of a run counts from its scheduled start, so it includes the delay by slow runs before it. A load that
    starts each run only when another has ended would miss that delay.
    """

    def __init__(self, runs: Runs, rate: float, seed: int) -> None:
        super().__init__(runs, rate)
        self._rate = rate
        self._random = np.random.default_rng(seed)
        self._next = 0.0

    def _warm_up(self) -> None:
        self._runs.start(time.perf_counter())
        self._runs.end()
        self._next = time.perf_counter()
        self._schedule()

    def _window(self, seconds: float, least_runs: int) -> Window:
        """Keep up the load; raise OperationFailed if more than _MOST_WAITING runs are in flight."""
        began = now = time.perf_counter()
        ended: list[RunTime] = []
        while now - began < seconds or len(ended) < least_runs:
            if now >= self._next:
                self._runs.start(self._next)
                self._schedule()
                if len(self._runs) > _MOST_WAITING:
                    raise OperationFailed(
                        f"it does not keep up with {self._rate:g} runs per second: {len(self._runs)} are in flight;"
                        " give a lower --rate"
                    )
            run = self._runs.next_end(max(0.0, self._next - time.perf_counter()))
            if run is not None:
                ended.append(run)
            now = time.perf_counter()
        return Window(ended, now - began)

    def _schedule(self) -> None:
        self._next += self._random.exponential(1 / self._rate)
