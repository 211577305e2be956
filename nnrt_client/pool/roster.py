"""Roster: the replicas of a model as they come and go."""

import logging
import threading
from collections.abc import Iterable
from contextlib import ExitStack

from nnrt_client.build.build_task import BuildReport
from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.loads import Loads
from nnrt_client.pool.replica import GUESSED_S, WARMING_RUNS, Replica
from nnrt_hdi.errors import NnrtError

_log = logging.getLogger(__name__)

# Factor on the latency of a replica that had no run while others had.
_REMEMBERED = 0.9
_FORGET_S = 0.5


class Roster:
    """Replicas of one model. The loop adds and removes them; any thread may read."""

    def __init__(self, loads: Loads) -> None:
        """Create it; `loads` brings new replicas."""
        self.loads = loads
        # The replicas in use.
        self.all: list[Replica] = []
        # Replicas that finish their runs and get no more.
        self._leaving: list[Replica] = []
        self._forgets_at = 0.0
        self._is_open = True

    @property
    def everywhere(self) -> list[Replica]:
        """All replicas, also those that only finish their runs."""
        return [*self.all, *self._leaving]

    @property
    def reports(self) -> dict[str, BuildReport]:
        """Build reports by address."""
        return {replica.candidate.address: replica.loaded.report for replica in self.all}

    def reasons(self, candidates: Iterable[Candidate]) -> dict[str, NnrtError]:
        """Return why devices have no replica, by address."""
        reasons: dict[str, NnrtError] = {}
        there = {replica.candidate for replica in self.all}
        for candidate in candidates:
            refusal = self.loads.refusal_of(candidate)
            if candidate in there:
                continue
            if not candidate.is_up:
                reasons[candidate.address] = candidate.trouble
            elif refusal is not None:
                reasons[candidate.address] = refusal
        return reasons

    def has(self, candidate: Candidate) -> bool:
        """Return whether a device has a replica or loads one."""
        return self.loads.on(candidate) or any(one.candidate is candidate for one in self.everywhere)

    def expect(self, latency_s: float) -> None:
        """Set the expected latency of replicas with few runs: this one, or that of the quickest other replica.

        So one long first run keeps nobody from trying a second.
        """
        cold = [one for one in list(self.all) if one.runs < WARMING_RUNS]
        warm = [one.latency_s for one in list(self.all) if one.runs >= WARMING_RUNS]
        for replica in cold:
            replica.latency_s = min(warm, default=latency_s)

    def close(self) -> None:
        """Free the model on all devices. Idempotent."""
        self._is_open = False
        with ExitStack() as stack:  # An interruption must not keep the others from being closed.
            stack.callback(self.loads.close)
            for replica in self.everywhere:
                stack.callback(replica.loaded.close)

    # ---- in the loop

    def look(self, now: float) -> None:
        """Add replicas that have been loaded, and remove those whose device is gone."""
        for candidate, loaded in self.loads.arrived(now):
            known = [replica.latency_s for replica in self.all if replica.runs]
            self.all.append(Replica(candidate, loaded, min(known, default=GUESSED_S)))
            _log.info("a replica is ready on %s", loaded.device)
            if not self._is_open:  # `close` may have looked before.
                loaded.close()
        for replica in list(self.all):
            self._look_at(replica)
        self._forget(now)
        self._close_left()

    def _look_at(self, replica: Replica) -> None:
        candidate = replica.candidate
        if not replica.is_alive:
            self._leave(replica, "its daemon died")
        elif not candidate.is_listed:
            self._leave(replica, "its address is gone")
        elif candidate.is_up:
            replica.is_out = False
        elif candidate.takes_work is not None:
            self._leave(replica, candidate.trouble.reason)
        else:
            replica.is_out = True

    def _leave(self, replica: Replica, why: str) -> None:
        _log.info("no replica on %s any more: %s", replica.loaded.device, why)
        replica.is_out = True
        self._leaving.append(replica)  # First: another thread may close all replicas.
        self.all.remove(replica)

    def _forget(self, now: float) -> None:
        """Lower the latency of slow replicas with time, so that they are tried again."""
        if now < self._forgets_at:
            return
        self._forgets_at = now + _FORGET_S
        has_run = [replica.runs != replica.seen_runs for replica in self.all]
        for replica, is_fresh in zip(self.all, has_run, strict=True):
            if not is_fresh and any(has_run):
                replica.latency_s *= _REMEMBERED
            replica.seen_runs = replica.runs

    def _close_left(self) -> None:
        """Free leaving replicas that have finished their runs."""
        for replica in list(self._leaving):
            if not replica.under_way or not replica.is_alive:
                self._leaving.remove(replica)
                replica.is_left = True
                replica.candidate.past_runs += replica.runs
                replica.candidate.past_failures += replica.failures
                name = f"nnrt-pool-close {replica.candidate.address}"
                threading.Thread(target=replica.loaded.close, name=name, daemon=True).start()
