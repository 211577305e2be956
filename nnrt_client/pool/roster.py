"""The replicas of a model that there are, and that come and go."""

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

# What is left of the latency of a replica each time, if others have run in between, and it hasn't.
_REMEMBERED = 0.9
_FORGET_S = 0.5


class Roster:
    """The replicas of one model. The loop brings them to where they should be; any thread may look."""

    def __init__(self, loads: Loads) -> None:
        """`loads` brings new ones."""
        self.loads = loads
        # Those that there are.
        self.all: list[Replica] = []
        # Those that still make runs, though they get no more.
        self._leaving: list[Replica] = []
        self._forgets_at = 0.0
        self._is_open = True

    @property
    def everywhere(self) -> list[Replica]:
        """Those that there are, and those that still make runs though they get no more."""
        return [*self.all, *self._leaving]

    @property
    def reports(self) -> dict[str, BuildReport]:
        """How each device got the model, by address."""
        return {replica.candidate.address: replica.loaded.report for replica in self.all}

    def reasons(self, candidates: Iterable[Candidate]) -> dict[str, NnrtError]:
        """Why devices have no replica, by address."""
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
        """Tell if a device has a replica, or is about to."""
        return self.loads.on(candidate) or any(one.candidate is candidate for one in self.everywhere)

    def expect(self, latency_s: float) -> None:
        """Expect this of replicas that have not run often enough, or what the quickest of the others has shown: a first
        run that took long is to keep nobody from the second."""
        cold = [one for one in list(self.all) if one.runs < WARMING_RUNS]
        warm = [one.latency_s for one in list(self.all) if one.runs >= WARMING_RUNS]
        for replica in cold:
            replica.latency_s = min(warm, default=latency_s)

    def close(self) -> None:
        """Free the model everywhere. Idempotent."""
        self._is_open = False
        with ExitStack() as stack:  # Who is interrupted closes the others, too.
            stack.callback(self.loads.close)
            for replica in self.everywhere:
                stack.callback(replica.loaded.close)

    # ---- the loop's

    def look(self, now: float) -> None:
        """Take in replicas that have come, and let go of those whose device is gone."""
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
        self._leaving.append(replica)  # First: another thread may look for all, to close them.
        self.all.remove(replica)

    def _forget(self, now: float) -> None:
        """Have replicas that were slow be tried again some time."""
        if now < self._forgets_at:
            return
        self._forgets_at = now + _FORGET_S
        has_run = [replica.runs != replica.seen_runs for replica in self.all]
        for replica, is_fresh in zip(self.all, has_run, strict=True):
            if not is_fresh and any(has_run):
                replica.latency_s *= _REMEMBERED
            replica.seen_runs = replica.runs

    def _close_left(self) -> None:
        """Free replicas that get no more runs, and have none."""
        for replica in list(self._leaving):
            if not replica.under_way or not replica.is_alive:
                self._leaving.remove(replica)
                replica.is_left = True
                replica.candidate.past_runs += replica.runs
                replica.candidate.past_failures += replica.failures
                name = f"nnrt-pool-close {replica.candidate.address}"
                threading.Thread(target=replica.loaded.close, name=name, daemon=True).start()
