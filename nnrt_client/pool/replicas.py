"""Replicas of a model, and the choice of one for each run."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from nnrt_client.pool.attempts import has_tensors
from nnrt_client.pool.candidate import Candidate
from nnrt_client.pool.ejection import IN_A_ROW, Ejection
from nnrt_client.pool.loads import Loads, Place, Wanted
from nnrt_client.pool.parking import Parking, Waiting
from nnrt_client.pool.replica import WARMING_RUNS, Replica
from nnrt_client.pool.roster import Roster
from nnrt_client.pool.supply import Supply
from nnrt_client.run.dispatcher import Targets
from nnrt_client.run.signature import Inputs
from nnrt_client.session.latch import Changes
from nnrt_client.session.reasons import is_refused_identity, is_unreached, joined_reasons
from nnrt_hdi.errors import NnrtError, OperationFailed


class Replicas(Supply):
    """Supply of a model's replicas. The loop adds and removes them in `update`; any thread chooses one for a run.

    A thread that chooses takes no lock, and compares all replicas.
    """

    def __init__(
        self,
        place: Place,
        wanted: Wanted,
        wake: Callable[[], None],
        call_back: Callable[..., object],
        begin_soon: Callable[[Callable[[], object]], object],
    ) -> None:
        """Create it.

        Args:
            place: Loads the model on a device.
            wanted: The wanted number of replicas.
            wake: Makes the loop call `update` soon.
            call_back: Calls a function in a thread for callbacks.
            begin_soon: Calls a function in a thread for starting runs.
        """
        self._wake = wake
        self.call_back = call_back
        self.begin_soon = begin_soon
        self.roster = Roster(Loads(place, wanted, wake))
        self._ejection = Ejection(wake)
        # The replicas that get runs, listed twice, so that a slice from any index of the first half has each one once.
        self._ring: tuple[Replica, ...] = ()
        self._turns = count()
        self._parking = Parking()
        self.missing = {}
        # Whether any device may still get a replica; and the error with which all daemons refuse the client, or None.
        self._may_come = True
        self._refusal: NnrtError | None = None
        self._changes = Changes()
        self.is_open = True
        self.end_reason = None

    # ---- for runs

    def choose(self) -> Replica | None:
        """Return the replica that will likely finish a run first, or None if none gets runs."""
        ring = self._ring
        many = len(ring) >> 1
        if many == 1:
            return None if ring[0].is_suspended else ring[0]
        if not many:
            return None
        chosen, least = None, math.inf
        first = next(self._turns) % many
        for replica in ring[first : first + many]:
            cost = (len(replica.under_way) + 1) * replica.latency_s  # As `cost_s`, without the time of a call.
            if cost < least and not replica.is_suspended:
                chosen, least = replica, cost
        return chosen

    def choose_another(self, tried: Iterable[Replica]) -> Replica | None:
        """Return a replica that is not in `tried`. If there is none, return the same as `choose`."""
        others = [one for one in self.serving if one not in tried]
        return min(others, key=lambda one: one.cost_s, default=None) or self.choose()

    def offer(self, inputs: Inputs, outputs: Targets | None, unwanted: Sequence[int]) -> None:
        """Pass a run for trials of ejected replicas to copy."""
        if self._ejection.wants_run and not has_tensors(inputs, outputs):
            self._ejection.offer(inputs, unwanted)

    def count_run(self, replica: Replica, seconds: float, queued_s: float = 0.0) -> None:
        """Count a run that the device did not fail. The first runs also set the expected latency of other replicas."""
        replica.count_run(seconds, queued_s)
        if replica.runs <= WARMING_RUNS:
            self.roster.expect(replica.latency_s)
        if replica.slow_in_a_row == IN_A_ROW:
            self._wake()

    def count_failure(self, replica: Replica) -> None:
        """Count a failed run, and suspend the replica until its daemon confirms that it takes work."""
        replica.count_failure()
        self._wake()

    def wait_first(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for the first replica. Return early if no device can get one."""
        self._changes.wait_for(lambda: self.choose() is not None or not self.is_open or not self._may_come, timeout_s)

    def wait_settled(self) -> None:
        """Wait until there are as many replicas as wanted, or no device could take another one now."""
        self._changes.wait_for(lambda: self.roster.loads.is_settled or not self.is_open)

    def resize(self, replicas: int | None) -> None:
        """Change the wanted number of replicas; None: one on each device. Raises NnrtError if no model can be read."""
        self.roster.loads.resize(replicas)
        self._wake()

    def park(self, run: Waiting) -> None:
        """Queue a run until there is a replica or the run is late.

        Raises:
            NnrtError: All daemons refuse the client with this error.
        """
        if self._refusal is not None and self.choose() is None:
            raise self._refusal.copy()
        self._parking.add(run)
        if not self.is_open:  # `end` may not have seen the run.
            self._parking.resume_all()
        self._wake()

    @property
    def serving(self) -> tuple[Replica, ...]:
        """Replicas that get runs."""
        ring = self._ring
        return tuple(replica for replica in ring[: len(ring) >> 1] if not replica.is_suspended)

    # ---- the end

    def end(self, reason: NnrtError) -> None:
        """Accept no more runs, and end those that wait with `reason`."""
        self.end_reason, self.is_open = reason, False
        self._ring = ()
        self._changes.announce()
        self._parking.resume_all()

    def enter_child(self, reason: NnrtError) -> None:
        """End the supply in a forked child. Take no lock, because the parent's threads may have locked it."""
        self._changes = Changes()
        self.end_reason, self.is_open = reason, False

    def close(self) -> None:
        """End the runs under way, and free the model on all devices. Idempotent."""
        if self.is_open:
            self.end(OperationFailed("the session was closed"))
        self.roster.close()

    # ---- in the loop

    def update(self, candidates: Sequence[Candidate], now: float) -> float:
        """Add and remove replicas, start loads and ejections, and resume waiting runs.

        Args:
            candidates: All daemons of the pool.
            now: The present time (time.monotonic()).

        Returns:
            The latest time for the next call.
        """
        roster = self.roster
        roster.update(now)
        if roster.all:
            self.signature = roster.all[0].dispatcher.signature
        listed = [candidate for candidate in candidates if candidate.is_listed]
        due = min(
            self._ejection.update(roster.all, now),
            roster.loads.begin(listed, [replica.candidate for replica in roster.all], now),
        )
        ring = tuple(replica for replica in roster.all if not (replica.is_suspended or replica.is_ejected))
        self._ring = ring + ring if self.is_open else ()
        self._explain(listed)
        self._changes.announce()
        are_all = self.choose() is not None or self._refusal is not None
        return min(due, self._parking.resume_due(now, are_all, self.begin_soon))

    def _explain(self, listed: Sequence[Candidate]) -> None:
        """Record why the pool has no replica, if it has none."""
        self.missing = missing = {} if self.roster.all else self.roster.reasons(listed)
        are_all = len(missing) == len(listed)
        self._may_come = not are_all or not listed or any(map(is_unreached, missing.values()))
        # Only if all daemons refuse the client. A device that is up and refuses the model doesn't count.
        is_refused = bool(missing) and not any(one.is_up or not is_refused_identity(one.trouble) for one in listed)
        self._refusal = joined_reasons(missing) if is_refused else None
