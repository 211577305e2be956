"""Replica: a model on one device of a pool."""

import math
import time
from collections.abc import Sequence
from typing import Protocol

from nnrt_client.build.build_task import BuildReport
from nnrt_client.pool.candidate import Candidate
from nnrt_client.run.executor import Executor
from nnrt_client.run.signature import Inputs
from nnrt_client.session.device import Device

# Weight of the latest run in the average.
_LATEST = 0.125
# Before anything is measured.
GUESSED_S = 1e-3
# The first runs may be slow on any device: of these only the last counts.
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

    Threads that run count without a lock: a run that is lost now and then among many does no harm.
    """

    def __init__(self, candidate: Candidate, loaded: Loaded, latency_s: float) -> None:
        """Create it; `latency_s` is an estimate."""
        self.candidate = candidate
        self.loaded = loaded
        self.dispatcher = loaded._executor._dispatcher
        # Runs of this pool under way there.
        self.under_way = self.dispatcher.runs
        # Average seconds of recent runs; it sinks while there are none, so that the replica is tried again.
        self.latency_s = latency_s
        # The same without the wait in the device's queue, which is not the replica's fault.
        self.own_s = latency_s
        self.runs = 0
        self.failures = 0
        self.failures_in_a_row = 0
        # Runs in a row that took longer than `slow_s` without the queue, each begun after the one before had ended.
        self.slow_s = math.inf
        self.slow_in_a_row = 0
        self._slow_until = -math.inf
        # Whether it gets no runs for now; and whether it is freed or about to be.
        self.is_out = False
        self.is_left = False
        # Number of runs when the loop last looked.
        self.seen_runs = 0
        # These belong to `Ejection`.
        self.is_ejected = False
        self.is_tried = False
        self.ejected_for_s = 0.0
        self.ejected_until = -math.inf
        self.returned_at = -math.inf

    @property
    def is_alive(self) -> bool:
        """True if the daemon lives, as far as known."""
        return self.dispatcher.death is None

    @property
    def cost_s(self) -> float:
        """Estimated seconds until another run would end here."""
        return (len(self.under_way) + 1) * self.latency_s

    def ran(self, seconds: float, queued_s: float = 0.0) -> None:
        """Count a successful run: its seconds, and those of them in the device's queue."""
        self.runs += 1
        self.failures_in_a_row = 0
        own_s = seconds - queued_s
        if own_s <= self.slow_s:
            self.slow_in_a_row = 0
        else:
            self._was_slow(seconds)
        part = _LATEST if self.runs > WARMING_RUNS else 1.0
        self.latency_s += (seconds - self.latency_s) * part
        self.own_s += (own_s - self.own_s) * part

    def failed(self) -> None:
        """Count a run that the device failed. The replica gets no run until its daemon says that it takes work."""
        self.is_out = True
        self.failures += 1
        self.failures_in_a_row += 1
        self.candidate.doubt()

    def _was_slow(self, seconds: float) -> None:
        """Count a slow run; runs that were under way together count once, because one cause may have slowed all."""
        now = time.monotonic()
        if now - seconds >= self._slow_until:
            self._slow_until = now
            self.slow_in_a_row += 1

    def timed(self, inputs: Inputs, timeout_ms: int, unwanted: Sequence[int]) -> float:
        """Make a run that doesn't count, and return its seconds without the device's queue.

        Raises:
            NnrtError: As `Dispatcher.run`.
        """
        began = time.monotonic()
        result = self.dispatcher.run(inputs, None, timeout_ms, unwanted)
        return time.monotonic() - began - result._queued_s
