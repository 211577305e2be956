"""Replica: a model loaded on one device of a pool."""

import math
import time
from collections.abc import Sequence
from typing import Protocol

from nnrt_client.build.build_task import BuildReport
from nnrt_client.pool.candidate import Candidate
from nnrt_client.run.executor import Executor
from nnrt_client.run.signature import Inputs
from nnrt_client.session.device import Device

# Weight of the latest run in the moving average of latencies.
_LATEST = 0.125
# Assumed latency before the first run.
GUESSED_S = 1e-3
# Number of first runs that may be slow on any device: the average begins with the last of them.
WARMING_RUNS = 2


class Loaded(Protocol):
    """Model that is ready to run on one device."""

    _executor: Executor

    @property
    def device(self) -> Device:
        """The model's device."""

    @property
    def report(self) -> BuildReport:
        """Report of the build on the device."""

    def close(self) -> None:
        """Free the model."""


class Replica:
    """Model on a device, with counters of its runs there.

    Threads count runs without a lock: if a count is lost now and then, it does no harm.
    """

    def __init__(self, candidate: Candidate, loaded: Loaded, latency_s: float) -> None:
        """Create it. `latency_s` is an estimate before the first run."""
        self.candidate = candidate
        self.loaded = loaded
        self.dispatcher = loaded._executor._dispatcher
        # This pool's runs that are under way there.
        self.under_way = self.dispatcher.runs
        # Average seconds of recent runs. The loop lowers it while there are none, so that the replica is chosen again.
        self.latency_s = latency_s
        # The same average without the wait in the device's queue, which other clients may cause.
        self.own_s = latency_s
        self.runs = 0
        self.failures = 0
        self.failures_in_a_row = 0
        # Number of runs in a row that took longer than `slow_s` without the queue. Each began after the former one had
        # ended.
        self.slow_s = math.inf
        self.slow_in_a_row = 0
        self._slow_until = -math.inf
        # Whether it gets no runs for now, and whether it has been freed or will be at once.
        self.is_suspended = False
        self.is_freed = False
        # Number of runs when the loop last checked.
        self.seen_runs = 0
        # `Ejection` sets the following.
        self.is_ejected = False
        self.is_tried = False
        self.ejected_for_s = 0.0
        self.ejected_until = -math.inf
        self.returned_at = -math.inf

    @property
    def is_alive(self) -> bool:
        """True if the daemon lives, as far as the session knows."""
        return self.dispatcher.death is None

    @property
    def cost_s(self) -> float:
        """Estimated seconds until a further run would end on this replica."""
        return (len(self.under_way) + 1) * self.latency_s

    def count_run(self, seconds: float, queued_s: float = 0.0) -> None:
        """Count a run that the device did not fail. It took `seconds`, `queued_s` of them in the device's queue."""
        self.runs += 1
        self.failures_in_a_row = 0
        own_s = seconds - queued_s
        if own_s <= self.slow_s:
            self.slow_in_a_row = 0
        else:
            self._count_slow_run(seconds)
        part = _LATEST if self.runs > WARMING_RUNS else 1.0
        self.latency_s += (seconds - self.latency_s) * part
        self.own_s += (own_s - self.own_s) * part

    def count_failure(self) -> None:
        """Count a run that the device failed. The replica gets no runs until its daemon confirms that it takes work."""
        self.is_suspended = True
        self.failures += 1
        self.failures_in_a_row += 1
        self.candidate.doubt()

    def _count_slow_run(self, seconds: float) -> None:
        """Count a slow run. Runs under way at the same time count once, because they may have the same cause."""
        now = time.monotonic()
        if now - seconds >= self._slow_until:
            self._slow_until = now
            self.slow_in_a_row += 1

    def time_run(self, inputs: Inputs, timeout_ms: int, unwanted: Sequence[int]) -> float:
        """Make a run that doesn't count, and return the seconds that it took, without the device's queue.

        Raises:
            NnrtError: As `Dispatcher.run`.
        """
        began = time.monotonic()
        result = self.dispatcher.run(inputs, None, timeout_ms, unwanted)
        return time.monotonic() - began - result._queued_s
