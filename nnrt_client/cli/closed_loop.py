"""Load with a constant number of runs in flight: each run that ends starts the next."""

import time

from nnrt_client.cli.measuring import Loop, Runs, RunTime, Window


class ClosedLoop(Loop):
    """Load with a constant number of runs in flight."""

    def __init__(self, runs: Runs, concurrency: int) -> None:
        super().__init__(runs, concurrency)
        self._concurrency = concurrency

    def _warm_up(self) -> None:
        for _ in range(self._concurrency):
            self._runs.start(time.perf_counter())
        self._window(0.0, self._concurrency)

    def _window(self, seconds: float, least_runs: int) -> Window:
        began = now = time.perf_counter()
        ended: list[RunTime] = []
        while now - began < seconds or len(ended) < least_runs:
            run = self._runs.next_end()
            assert run is not None
            self._runs.start(time.perf_counter())
            ended.append(run)
            now = time.perf_counter()
        return Window(ended, now - began)
