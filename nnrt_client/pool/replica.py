"""A model on one of the devices of a pool."""

import math
import time
from collections.abc import Sequence
from typing import Protocol

from nnrt_client.build.build_task import BuildReport
from nnrt_client.pool.candidate import Candidate
from nnrt_client.run.executor import Executor
from nnrt_client.run.signature import Inputs
from nnrt_client.session.device import Device

# The latest run has this part of the average.
_LATEST = 0.125
# Where nothing has been measured yet.
GUESSED_S = 1e-3
# Runs of which only the last one counts: the first ones may be slow on any device.
WARMING_RUNS = 2


class Loaded(Protocol):
    """A model that is ready to run on one device."""

    _executor: Executor

    @property
    def device(self) -> Device:
        """The device that has it."""

    @property
    def report(self) -> BuildReport:
        """How it got there."""

    def close(self) -> None:
        """Free it."""


class Replica:
    """A model on a device, with what is known of its runs there.

    Threads that run count without a lock: one that is lost now and then among many does no harm.
    """

    def __init__(self, candidate: Candidate, loaded: Loaded, latency_s: float) -> None:
        """The latency is an estimate."""
        self.candidate = candidate
        self.loaded = loaded
        self.dispatcher = loaded._executor._dispatcher
        # The runs of this pool that have not ended there.
        self.under_way = self.dispatcher.runs
        # Average of late runs; it sinks while there are none, so that it is tried again some time.
        self.latency_s = latency_s
        # The same without what runs waited for others of the device: that is no fault of its own.
        self.own_s = latency_s
        self.runs = 0
        self.failures = 0
        self.failures_in_a_row = 0
        # Runs that have taken longer than `slow_s`, what they waited for others left out, each begun after the one
        # before had ended, and none in between that hasn't.
        self.slow_s = math.inf
        self.slow_in_a_row = 0
        self._slow_until = -math.inf
        # Whether it gets no runs for now; and no more, for it is freed or about to be.
        self.is_out = False
        self.is_left = False
        # How many runs there were when the loop last looked.
        self.seen_runs = 0
        # See `Ejection`, whose these are.
        self.is_ejected = False
        self.is_tried = False
        self.ejected_for_s = 0.0
        self.ejected_until = -math.inf
        self.returned_at = -math.inf

    @property
    def is_alive(self) -> bool:
        """True while its daemon lives, as far as is known."""
        return self.dispatcher.death is None

    @property
    def cost_s(self) -> float:
        """How soon it is likely to have made another run, beside those it has."""
        return (len(self.under_way) + 1) * self.latency_s

    def ran(self, seconds: float, queued_s: float = 0.0) -> None:
        """Count a run that has ended as it should, after some seconds, of which it waited some for other runs."""
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
        """Count a run that the device failed. It gets no other before it has been asked whether it takes work."""
        self.is_out = True
        self.failures += 1
        self.failures_in_a_row += 1
        self.candidate.doubt()

    def _was_slow(self, seconds: float) -> None:
        """Count those that were under way together once: what has held them up may be over."""
        now = time.monotonic()
        if now - seconds >= self._slow_until:
            self._slow_until = now
            self.slow_in_a_row += 1

    def timed(self, inputs: Inputs, timeout_ms: int, unwanted: Sequence[int]) -> float:
        """Make a run that doesn't count, and give how many seconds it took, without those that it waited for others.
        Raises as `Dispatcher.run`."""
        began = time.monotonic()
        result = self.dispatcher.run(inputs, None, timeout_ms, unwanted)
        return time.monotonic() - began - result._queued_s
