"""The replicas of a model: where there are some, and which of them makes a run."""

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import count

from nnrt_client.build.build_task import BuildReport
from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.ejection import IN_A_ROW, Ejection
from nnrt_client.pool.loads import Loads, Place, Wanted
from nnrt_client.pool.replica import GUESSED_S, WARMING_RUNS, Replica, has_tensors
from nnrt_client.pool.supply import Specs, Supply, Waiting, resume_all
from nnrt_client.run.base_executor import Targets
from nnrt_client.run.signature import Inputs
from nnrt_client.session.latch import Changes
from nnrt_client.session.reasons import is_refused_identity, is_unreached, joined_reasons
from nnrt_hdi.errors import NnrtError, OperationFailed

_log = logging.getLogger(__name__)

# What is left of the latency of a replica each time, if others have run in between, and it hasn't.
_REMEMBERED = 0.9
_FORGET_S = 0.5


class Replicas(Supply):
    """The replicas of one model. What comes and goes is decided in the loop, by `look`; any thread chooses.

    A thread that chooses takes no lock, and looks at each replica that there is.
    """

    def __init__(
        self,
        place: Place,
        wanted: Wanted,
        wake: Callable[[], None],
        call_back: Callable[..., object],
        begin_soon: Callable[[Callable[[], object]], object],
    ) -> None:
        """`wake` has the loop look soon; the others have a thread for callbacks call something, and one that
        begins runs."""
        self._wake = wake
        self._call_back = call_back
        self._begin_soon = begin_soon
        self.loads = Loads(place, wanted, wake)
        self.ejection = Ejection(wake)
        self._all: list[Replica] = []
        # Those that get runs, twice in a row: from any of the first ones on, all come once.
        self._ring: tuple[Replica, ...] = ()
        self._turns = count()
        self._leaving: list[Replica] = []
        self._waiting: deque[Waiting] = deque()
        self._forgets_at = 0.0
        # Why devices have no replica, by address, while none has.
        self.missing: Mapping[str, NnrtError] = {}
        # Whether a device may still come to have one, and what all refuse the client with, if that is why none has.
        self._may_come = True
        self._refusal: NnrtError | None = None
        self._changes = Changes()
        self.is_open = True
        # Why it isn't.
        self.end_reason: NnrtError | None = None

    # ---- for runs

    def choose(self) -> Replica | None:
        """The replica that is likely to make a run the soonest; None where there is none that gets runs."""
        ring = self._ring
        many = len(ring) >> 1
        if many == 1:
            return None if ring[0].is_out else ring[0]
        if not many:
            return None
        chosen, least = None, math.inf
        first = next(self._turns) % many
        for replica in ring[first : first + many]:
            cost = (len(replica.under_way) + 1) * replica.latency_s  # `cost_s`, without the call.
            if cost < least and not replica.is_out:
                chosen, least = replica, cost
        return chosen

    def choose_another(self, tried: Iterable[Replica]) -> Replica | None:
        """One that has not been tried, if there is one; else as `choose`."""
        others = [one for one in self.serving if one not in tried]
        return min(others, key=lambda one: one.cost_s, default=None) or self.choose()

    def offer(self, inputs: Inputs, outputs: Targets | None, unwanted: Sequence[int]) -> None:
        """Offer a run for the trial of a replica that is ejected, if one is wanted."""
        if self.ejection.wants_run and not has_tensors(inputs, outputs):
            self.ejection.offer(inputs, unwanted)

    def ran(self, replica: Replica, seconds: float, queued_s: float = 0.0) -> None:
        """Count a run. The first ones tell what to expect of the others."""
        replica.ran(seconds, queued_s)
        if replica.runs <= WARMING_RUNS:
            self._expect(replica.latency_s)
        if replica.slow_in_a_row == IN_A_ROW:
            self._wake()

    def _expect(self, latency_s: float) -> None:
        """Expect this of replicas that have not run often enough, or what the quickest of the others has shown: a first
        run that took long is to keep nobody from the second."""
        cold = [one for one in list(self._all) if one.runs < WARMING_RUNS]
        warm = [one.latency_s for one in list(self._all) if one.runs >= WARMING_RUNS]
        for replica in cold:
            replica.latency_s = min(warm, default=latency_s)

    def failed(self, replica: Replica) -> None:
        """Have a replica get no runs for now, whose device failed one."""
        replica.failed()
        self._wake()

    def wait(self, timeout_s: float) -> None:
        """Wait for a replica that gets runs, or for the end, so long at most. Raises what all devices refuse the client
        with."""
        self._changes.wait_for(lambda: self.choose() is not None or not self.is_open or self._refusal, timeout_s)
        self._require_admitted()

    def wait_first(self, timeout_s: float) -> None:
        """Wait for the first replica as long as devices that are not reached may come, and so long at most."""
        self._changes.wait_for(lambda: self.choose() is not None or not self.is_open or not self._may_come, timeout_s)

    def wait_settled(self) -> None:
        """Wait until there are as many as there are to be, or no device could have another one now."""
        self._changes.wait_for(lambda: self.loads.is_settled or not self.is_open)

    def park(self, run: Waiting) -> None:
        """Have a run go on when there is a replica, or when its time is over. Raises as `wait`."""
        self._require_admitted()
        self._waiting.append(run)
        if not self.is_open:  # `end` may have looked before.
            resume_all(self._waiting)
        self._wake()

    def call_back(self, function: Callable[..., object], *arguments: object) -> None:
        """Have a thread for callbacks call this."""
        self._call_back(function, *arguments)

    def begin_soon(self, begin: Callable[[], object]) -> None:
        """Have a thread call this that begins runs."""
        self._begin_soon(begin)

    # ---- what there is

    @property
    def specs(self) -> Specs | None:
        """Inputs and outputs of the model; None before the first replica."""
        return self.loads.specs

    @property
    def is_living(self) -> bool:
        """True until it is closed: replicas come back by themselves."""
        return self.is_open

    @property
    def serving(self) -> tuple[Replica, ...]:
        """Those that get runs."""
        ring = self._ring
        return tuple(replica for replica in ring[: len(ring) >> 1] if not replica.is_out)

    @property
    def everywhere(self) -> list[Replica]:
        """Those that there are, and those that still make runs though they get no more."""
        return [*self._all, *self._leaving]

    @property
    def reports(self) -> dict[str, BuildReport]:
        """How each device got the model, by address."""
        return {replica.candidate.address: replica.loaded.report for replica in self._all}

    def reasons(self, candidates: Iterable[Candidate]) -> dict[str, NnrtError]:
        """Why devices have no replica, by address."""
        reasons: dict[str, NnrtError] = {}
        there = {replica.candidate for replica in self._all}
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

    # ---- the end

    def end(self, reason: NnrtError) -> None:
        """Have no run begin any more; those that wait end with the reason."""
        self.end_reason, self.is_open = reason, False
        self._ring = ()
        self._changes.announce()
        resume_all(self._waiting)

    def enter_child(self, reason: NnrtError) -> None:
        """End after a fork, whoever held locks before."""
        self._changes = Changes()
        self.end_reason, self.is_open = reason, False

    def close(self) -> None:
        """End the runs that are under way, and free the model everywhere. Idempotent."""
        if self.is_open:
            self.end(OperationFailed("the session was closed"))
        with ExitStack() as stack:  # Who is interrupted closes the others, too.
            stack.callback(self.loads.close)
            for replica in self.everywhere:
                stack.callback(replica.loaded.close)

    def _require_admitted(self) -> None:
        if self._refusal is not None and self.choose() is None:
            raise self._refusal.copy()

    # ---- the loop's

    def look(self, candidates: Sequence[Candidate], now: float) -> float:
        """Bring replicas to where they should be; give when to look again, if nothing happens before."""
        for candidate, loaded in self.loads.arrived(now):
            known = [replica.latency_s for replica in self._all if replica.runs]
            self._all.append(Replica(candidate, loaded, min(known, default=GUESSED_S)))
            _log.info("a replica is ready on %s", loaded.device)
            if not self.is_open:  # `close` may have looked before.
                loaded.close()
        for replica in list(self._all):
            self._look_at(replica)
        self._forget(now)
        self._close_left()
        listed = [candidate for candidate in candidates if candidate.is_listed]
        due = min(
            self.ejection.look(self._all, now),
            self.loads.begin(listed, [replica.candidate for replica in self._all], now),
        )
        ring = tuple(replica for replica in self._all if not (replica.is_out or replica.is_ejected))
        self._ring = ring + ring if self.is_open else ()
        self._explain(listed)
        self._changes.announce()
        return min(due, self._resume_waiting(now))

    def _explain(self, listed: Sequence[Candidate]) -> None:
        """Enter why there is no replica, where there is none."""
        self.missing = missing = {} if self._all else self.reasons(listed)
        are_all = len(missing) == len(listed)
        self._may_come = not are_all or not listed or any(map(is_unreached, missing.values()))
        # By daemons, not by devices that are up and don't take the model.
        is_refused = bool(missing) and not any(one.is_up or not is_refused_identity(one.trouble) for one in listed)
        self._refusal = joined_reasons(missing) if is_refused else None

    def _look_at(self, replica: Replica) -> None:
        candidate = replica.candidate
        if not replica.executor._is_living:
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
        self._all.remove(replica)

    def _forget(self, now: float) -> None:
        """Have replicas that were slow be tried again some time."""
        if now < self._forgets_at:
            return
        self._forgets_at = now + _FORGET_S
        has_run = [replica.runs != replica.seen_runs for replica in self._all]
        for replica, is_fresh in zip(self._all, has_run, strict=True):
            if not is_fresh and any(has_run):
                replica.latency_s *= _REMEMBERED
            replica.seen_runs = replica.runs

    def _close_left(self) -> None:
        """Free replicas that get no more runs, and have none."""
        for replica in list(self._leaving):
            if not replica.under_way or not replica.executor._is_living:
                self._leaving.remove(replica)
                replica.is_left = True
                replica.candidate.past_runs += replica.runs
                replica.candidate.past_failures += replica.failures
                name = f"nnrt-pool-close {replica.candidate.address}"
                threading.Thread(target=replica.loaded.close, name=name, daemon=True).start()

    def _resume_waiting(self, now: float) -> float:
        """Have runs go on that wait, where they can or their time is over; give when the next one's is."""
        due, has_replica = math.inf, self.choose() is not None
        for _ in range(len(self._waiting)):
            try:
                run = self._waiting.popleft()
            except IndexError:  # `end` has another thread do the same.
                break
            if has_replica or self._refusal or run.waits_until <= now:
                self.begin_soon(run.resume)
            else:
                due = min(due, run.waits_until)
                self._waiting.append(run)
        return due
