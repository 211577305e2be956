"""A model on one of the devices of a pool."""

from typing import Any, Protocol

from nnrt_client.build.build_task import BuildReport
from nnrt_client.pool.candidate import Candidate
from nnrt_client.run.base_executor import BaseExecutor
from nnrt_client.session.device import Device

# The latest run has this part of the average.
_LATEST = 0.125
# Where nothing has been measured yet.
GUESSED_S = 1e-3
# Runs of which only the last one counts: the first ones may be slow on any device.
_WARMING_RUNS = 2


class Loaded(Protocol):
    """A model that is ready to run on one device."""

    _executor: BaseExecutor

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

    __slots__ = (
        "candidate",
        "executor",
        "failures",
        "failures_in_a_row",
        "is_left",
        "is_out",
        "latency_s",
        "loaded",
        "runs",
        "seen_runs",
        "under_way",
    )

    def __init__(self, candidate: Candidate, loaded: Loaded, latency_s: float) -> None:
        self.candidate = candidate
        self.loaded = loaded
        self.executor = loaded._executor
        # The runs of this pool that have not ended there.
        self.under_way: set[Any] = self.executor._runs
        # Average of late runs, an estimate before the first; it sinks while there are none.
        self.latency_s = latency_s
        self.runs = 0
        self.seen_runs = 0
        self.failures = 0
        self.failures_in_a_row = 0
        # Whether it gets no runs for now.
        self.is_out = False
        # Whether it has been freed, or is about to be.
        self.is_left = False

    def ran(self, seconds: float) -> None:
        """Count a run that has ended as it should."""
        self.runs += 1
        self.failures_in_a_row = 0
        self.latency_s += (seconds - self.latency_s) * (_LATEST if self.runs > _WARMING_RUNS else 1.0)

    def failed(self) -> None:
        """Count a run that the device failed. It gets no other before it has been asked whether it takes work."""
        self.is_out = True
        self.failures += 1
        self.failures_in_a_row += 1
        self.candidate.doubt()
