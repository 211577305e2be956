"""Roster: the current replicas of a model."""

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

# Factor by which the latency of a replica is lowered for each `_FORGET_S` in which others had runs and it had none.
_REMEMBERED = 0.9
_FORGET_S = 0.5


class Roster:
    """Replicas of one model. The loop adds and removes them; any thread may read them."""

    def __init__(self, loads: Loads) -> None:
        """Create it. `loads` loads new replicas."""
        self.loads = loads
        # The replicas in use.
        self.all: list[Replica] = []
        # Replicas that get no more runs and finish those under way.
        self._leaving: list[Replica] = []
        self._forgets_at = 0.0
        self._is_open = True

    @property
    def everywhere(self) -> list[Replica]:
        """All replicas, including those that get no more runs and finish those under way."""
        return [*self.all, *self._leaving]

    @property
    def reports(self) -> dict[str, BuildReport]:
        """Build reports by address."""
        return {replica.candidate.address: replica.loaded.report for replica in self.all}

    def reasons(self, candidates: Iterable[Candidate]) -> dict[str, NnrtError]:
        """Return by address the reasons why devices have no replica."""
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
        return self.loads.is_loading(candidate) or any(one.candidate is candidate for one in self.everywhere)

    def expect(self, latency_s: float) -> None:
        """Set the expected latency of replicas with few runs to that of the quickest other replica, or to `latency_s`.

        Otherwise a long first run would keep a replica from ever getting a second one.
        """
        cold = [one for one in list(self.all) if one.runs < WARMING_RUNS]
        warm = [one.latency_s for one in list(self.all) if one.runs >= WARMING_RUNS]
        for replica in cold:
            replica.latency_s = min(warm, default=latency_s)

    def close(self) -> None:
        """Free the model on all devices. Idempotent."""
        self._is_open = False
        with ExitStack() as stack:  # If one `close` is interrupted, the stack still calls the others.
            stack.callback(self.loads.close)
            for replica in self.everywhere:
                stack.callback(replica.loaded.close)

    # ---- in the loop

    def update(self, now: float) -> None:
        """Add replicas that have been loaded, and remove those whose device takes no more work."""
        for candidate, loaded in self.loads.take_loaded(now):
            known = [replica.latency_s for replica in self.all if replica.runs]
            self.all.append(Replica(candidate, loaded, min(known, default=GUESSED_S)))
            _log.info("a replica is ready on %s", loaded.device)
            if not self._is_open:  # `close` may not have seen the replica.
                loaded.close()
        for replica in list(self.all):
            self._look_at(replica)
        for replica in self._surplus():
            self._leave(replica, "fewer are wanted")
        self._forget(now)
        self._close_left()

    def _look_at(self, replica: Replica) -> None:
        candidate = replica.candidate
        if not replica.is_alive:
            self._leave(replica, "its daemon died")
        elif not candidate.is_listed:
            self._leave(replica, "its address is gone")
        elif candidate.is_up:
            replica.is_suspended = False
        elif candidate.takes_work is not None:
            self._leave(replica, candidate.trouble.reason)
        else:
            replica.is_suspended = True

    def _surplus(self) -> list[Replica]:
        """Return the replicas that are more than wanted: first those that get no runs now, then the latest."""
        many = len(self.all) if self.loads.replicas is None else self.loads.replicas
        return sorted(self.all, key=lambda one: one.is_suspended or one.is_ejected)[many:]

    def _leave(self, replica: Replica, why: str) -> None:
        _log.info("no replica on %s any more: %s", replica.loaded.device, why)
        replica.is_suspended = True
        self._leaving.append(replica)  # Before the removal, so that `close` in another thread finds the replica.
        self.all.remove(replica)

    def _forget(self, now: float) -> None:
        """Lower the latency of replicas without recent runs, so that they are chosen again."""
        if now < self._forgets_at:
            return
        self._forgets_at = now + _FORGET_S
        has_run = [replica.runs != replica.seen_runs for replica in self.all]
        for replica, is_fresh in zip(self.all, has_run, strict=True):
            if not is_fresh and any(has_run):
                replica.latency_s *= _REMEMBERED
            replica.seen_runs = replica.runs

    def _close_left(self) -> None:
        """Free the leaving replicas that have finished their runs."""
        for replica in list(self._leaving):
            if not replica.under_way or not replica.is_alive:
                self._leaving.remove(replica)
                replica.is_freed = True
                replica.candidate.past_runs += replica.runs
                replica.candidate.past_failures += replica.failures
                name = f"nnrt-pool-close {replica.candidate.address}"
                threading.Thread(target=replica.loaded.close, name=name, daemon=True).start()
