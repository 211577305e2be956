"""Which runs are on the device, and which of those that wait is next."""

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from weakref import WeakValueDictionary

from nnrt_device_service.access.counters import Tally
from nnrt_device_service.host.steps import take_each
from nnrt_device_service.scheduling.fair_queue import FairQueue, Flow
from nnrt_device_service.scheduling.joinable import Bucket, Joinable, await_change
from nnrt_device_service.scheduling.run_memory import RunMemory
from nnrt_device_service.settings import LimitReached
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import NnrtError, TimedOut


class PriorityClass:
    """The runs of one user that have the same rank, and since when none of those waiting got a slot."""

    __slots__ = ("flows", "rank", "since")

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.flows: FairQueue[SessionFlow] = FairQueue()
        self.since = 0.0


class IdentityFlow(Flow):
    """The runs of one identity, which its users share."""

    __slots__ = ("ahead", "lacking", "named", "users")

    def __init__(self) -> None:
        super().__init__()
        # How many of its runs wait for memory.
        self.lacking = 0
        self.users: FairQueue[UserFlow] = FairQueue()
        # A user lives as long as a session has an account with it, or has spent more than its share.
        self.named: WeakValueDictionary[str, UserFlow] = WeakValueDictionary()
        self.ahead: set[UserFlow] = set()

    def user(self, name: str) -> "UserFlow":
        """The user of that name."""
        self.ahead = set(filter(self.users.is_ahead, self.ahead))
        known = self.named.get(name)
        if known is None:
            known = self.named[name] = UserFlow(self)
        return known


class UserFlow(Flow):
    """The runs of one user, which priorities order among each other."""

    __slots__ = ("classes", "identity")

    def __init__(self, identity: IdentityFlow) -> None:
        super().__init__()
        self.identity = identity
        self.classes = tuple(map(PriorityClass, range(Priority.HIGH.rank + 1)))

    def next_class(self, now: float, ageing_s: float) -> PriorityClass:
        waiting = [each for each in self.classes if each.flows]
        return max(waiting, key=lambda each: (each.rank + (now - each.since) // ageing_s, now - each.since))


class SessionFlow(Flow):
    """The runs of one session in one class, first come first served."""

    __slots__ = ("priority_class", "queued", "tally", "user")

    def __init__(self, user: UserFlow, priority_class: PriorityClass, tally: Tally) -> None:
        super().__init__()
        self.tally = tally
        self.user = user
        self.priority_class = priority_class
        self.queued: deque[_QueuedRun] = deque()


class Account:
    """On whom the device time of a session counts."""

    __slots__ = ("flows",)

    def __init__(self, user: UserFlow, tally: Tally) -> None:
        # By the ranks of priorities.
        self.flows = tuple(SessionFlow(user, each, tally) for each in user.classes)


class _QueuedRun:
    """A run that waits for a slot, and for memory too if it lacks bytes."""

    __slots__ = ("cancellation", "flow", "is_granted", "joinable", "lacks_bytes", "signals", "wake")

    def __init__(self, flow: SessionFlow, cancellation: Cancellation, lacks_bytes: int = 0) -> None:
        self.flow = flow
        self.cancellation = cancellation
        self.lacks_bytes = lacks_bytes
        self.is_granted = False
        # What it is where it may be computed with others.
        self.joinable: Joinable | None = None
        # Has something when the thread that waits is to go on; an event, which is Python, costs fifteen times as much.
        self.signals: SimpleQueue[None] = SimpleQueue()
        # Wakes that thread, or another one that waits for it.
        self.wake: Callable[[], None] = partial(self.signals.put, None)


class Scheduler:
    """Lets a number of runs onto the device at a time, and chooses among the others.

    Identities get even shares of the device's time, and of that of an identity its users. Of a user's runs those of the
    highest class go first, where a class rises by one for every `ageing_s` that it waits for a slot. Within a class the
    user's sessions get even shares, and within a session who came first is first. Only time for which somebody waits
    counts: nobody owes for having been alone.

    A run with a slot takes the memory for what it makes. One that finds too little left gives its slot back and waits
    for others to end. Of those the one is next whose identity has spent least, and none takes memory before it: smaller
    runs that follow each other would keep a large one out for ever. Runs that take none go on meanwhile.

    A run whose time is over or that is cancelled leaves the queue at once and never starts. Runs are known by their
    cancellations. While it is suspended, it lets nobody onto the device but the privileged.
    """

    def __init__(
        self,
        slots: int,
        queued_runs: int,
        ageing_s: float,
        clock: Callable[[], float] = time.monotonic,
        identity_runs: int = sys.maxsize,
        run_bytes: int = sys.maxsize,
    ) -> None:
        """At most `queued_runs` wait, `identity_runs` of them of one identity. Runs take `run_bytes` in all."""
        self._lock = threading.Lock()
        self._slots = slots
        # Those that a run may take without a look at who it is; none while it is suspended.
        self._free_for_all = slots
        self._suspended_for: NnrtError | None = None
        self._privileged: tuple[SessionFlow, ...] = ()
        self._running: dict[Cancellation, SessionFlow] = {}
        # Those of them whose time counts, for somebody waits or has waited meanwhile.
        self._counted: set[Cancellation] = set()
        # Of those that are computed together, by what holds their slot.
        self._joined: dict[Cancellation, Sequence[Joinable]] = {}
        # Whether a run would not have to wait, as far as one can tell.
        self.has_free_slot = True
        self._queued = 0
        self._queued_runs = queued_runs
        self._identity_runs = identity_runs
        self._ageing_s = ageing_s
        self._clock = clock
        self._flows: FairQueue[IdentityFlow] = FairQueue()
        self._memory = RunMemory(run_bytes)
        # The runs that wait for memory, first come first.
        self._lacking: list[_QueuedRun] = []
        # They live as their users do.
        self._identities: WeakValueDictionary[str, IdentityFlow] = WeakValueDictionary()
        self._ahead: set[IdentityFlow] = set()

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def queued(self) -> int:
        return self._queued

    @property
    def queue_full_ratio(self) -> float:
        """The part of the places in the queue that is taken: of all, or of those of an identity if that is more."""
        if not self._queued_runs:
            return 0.0
        with self._lock:
            most = max((each.waiting + each.lacking for each in self._identities.values()), default=0)
            return max(self._queued / self._queued_runs, most / self._identity_runs)

    def on_device(self) -> list[Cancellation]:
        """The runs that have a slot."""
        return list(self._running)

    def under_way_ns(self) -> Mapping[Tally, int]:
        """For how long the runs that have a slot have been on the device, by what will count them."""
        under_way, now_ns = Counter[Tally](), time.perf_counter_ns()
        with self._lock:
            for cancellation, flow in self._running.items():
                if (began_ns := cancellation.began_ns) is None:
                    continue
                for tally, on_device_ns in self._shares(cancellation, flow, max(now_ns - began_ns, 0)):
                    under_way[tally] += on_device_ns
        return under_way

    @property
    def run_bytes(self) -> int:
        """The memory that runs have taken."""
        return self._memory.limit_bytes - self._memory.left_bytes

    def account(self, identity: str, user: str = "", tally: Tally | None = None) -> Account:
        """An account for a session of that user, of those that the identity has. The tally counts what it runs."""
        with self._lock:
            self._ahead = set(filter(self._flows.is_ahead, self._ahead))
            known = self._identities.get(identity)
            if known is None:
                known = self._identities[identity] = IdentityFlow()
            return Account(known.user(user), tally or Tally())

    def privilege(self, account: Account) -> None:
        """Have the runs of this account be next, and no limit keep them from waiting for a slot, nor `suspend`."""
        self._privileged = account.flows

    def suspend(self, reason: NnrtError) -> None:
        """Cancel all runs, those that wait and those on the device, and refuse new ones with the same reason, until
        `resume`."""
        with self._lock:
            self._suspended_for = reason
            self._free_for_all = 0
            runs = [run for run, flow in self._running.items() if flow not in self._privileged]
            runs += [each.cancellation for each in self._waiting() if each.flow not in self._privileged]
        take_each([partial(run.cancel, reason) for run in runs], "ending the runs of the device")

    def resume(self) -> None:
        """Let everybody onto the device again."""
        with self._lock:
            self._suspended_for = None
            self._free_for_all = self._slots

    def acquire(self, flow: SessionFlow, cancellation: Cancellation) -> None:
        """Wait for a slot on the device, to be held until `release`.

        Raises OutOfMemory where too many wait already, TimedOut or OperationFailed (cancelled), and what it is
        suspended for.
        """
        queued = None
        with self._lock:
            if len(self._running) < self._free_for_all:  # Then nobody waits for a slot alone.
                self._running[cancellation] = flow
                self.has_free_slot = len(self._running) < self._slots
                if self._queued:
                    self._start(cancellation, flow, self._clock())
            else:
                queued = self._enqueued(flow, cancellation)
        if queued is not None:
            self._wait(queued)
        if cancellation.is_cancelled or cancellation.deadline is not None:
            try:
                cancellation.check()
            except BaseException:
                self.release(cancellation)
                raise

    def acquire_together(self, runs: Sequence[Joinable], slot: Cancellation) -> list[Joinable]:
        """Wait until one of these runs, which are of one bucket and fit into a batch, gets a slot on the device.

        `slot` holds it then until `release`, for the runs that this gives: these, and of those of the bucket that wait
        in other threads as many as there is room for. Gives none where all of these have been settled meanwhile,
        because their time was over, or have been computed by other threads.
        """
        with self._lock:
            if len(self._running) < self._free_for_all:
                self._running[slot] = runs[0].flow
                self.has_free_slot = len(self._running) < self._slots
                if self._queued:
                    self._start(slot, runs[0].flow, self._clock())
                self._joined[slot] = taken = list(runs)
                return taken
            wake = threading.Event()
            for run in runs:
                self._enqueue_joinable(run, wake)
        for run in runs:
            run.cancellation.on_cancel(wake.set)
        try:
            while True:
                with self._lock:
                    self._end_overdue(runs)
                    if any(run.queued is not None and run.queued.is_granted for run in runs):
                        return self._take(runs, slot)
                if all(run.is_settled for run in runs):
                    return []
                await_change(runs, wake)
        except BaseException:
            self._withdraw(runs)
            raise

    def _enqueue_joinable(self, run: Joinable, wake: threading.Event) -> None:
        run.wakes.append(wake)
        try:
            queued = self._enqueued(run.flow, run.cancellation)
        except NnrtError as error:
            run.settle(error)
            return
        run.queued, queued.joinable, queued.wake = queued, run, wake.set
        run.bucket.waiting[run] = None

    def _end_overdue(self, runs: Iterable[Joinable]) -> None:
        """Settle those that must not wait any longer, for a slot or for a thread that computes them."""
        for run in runs:
            queued = run.queued
            if run.is_over and (queued is None or not queued.is_granted):
                if queued is not None:
                    self._leave_queue(run, self._clock())
                run.settle_if_over()

    def _take(self, runs: Sequence[Joinable], slot: Cancellation) -> list[Joinable]:
        """Have `slot` hold the slot that one of the runs has got; those that are computed on it."""
        now = self._clock()
        leader: Joinable | None = None
        taken = []
        for run in runs:
            if run.queued is None:
                continue
            if run.queued.is_granted:
                flow = self._running.pop(run.cancellation)
                self._counted.discard(run.cancellation)
                if leader is None:
                    leader = run
                    self._running[slot] = flow
                    self._counted.add(slot)
                else:
                    self._stop(flow, now)
                run.queued = None
            else:
                self._leave_queue(run, now)
            taken.append(run)
        assert leader is not None
        room = leader.bucket.batching.max_size - sum(run.rows for run in taken)
        for other in _fairly(leader.bucket):
            if other.rows <= room and not other.is_over:
                room -= other.rows
                self._leave_queue(other, now)
                taken.append(other)
        self._joined[slot] = taken
        self._fill(now)
        return taken

    def _leave_queue(self, run: Joinable, now: float) -> None:
        """A run that may be joined waits no more for a slot of its own."""
        queued, run.queued = run.queued, None
        del run.bucket.waiting[run]
        queued.flow.queued.remove(queued)
        queued.flow.priority_class.since = now
        self._leave(queued.flow, now)

    def _withdraw(self, runs: Iterable[Joinable]) -> None:
        """Have none of these wait any more, nor hold a slot."""
        with self._lock:
            granted = [run for run in runs if run.queued is not None and run.queued.is_granted]
            for run in runs:
                if run.queued is not None and not run.queued.is_granted:
                    self._leave_queue(run, self._clock())
        for run in granted:
            self.release(run.cancellation)

    def _shares(self, cancellation: Cancellation, flow: SessionFlow, busy_ns: int) -> Iterable[tuple[Tally, int]]:
        """On whom time on the device counts: where runs are computed together by their rows."""
        runs = self._joined.get(cancellation)
        if runs is None:
            return ((flow.tally, busy_ns),)
        rows, counted, shares = sum(run.rows for run in runs), 0, []
        for run in runs:
            counted += run.rows
            shares.append((run.tally, busy_ns * counted // rows - busy_ns * (counted - run.rows) // rows))
        return shares

    def _share(self, runs: Sequence[Joinable], leader: SessionFlow, busy_ns: int, now: float) -> None:
        """Have each of the runs that were computed together pay for its rows, of what the leader has paid for all."""
        rows = sum(run.rows for run in runs)
        for run in runs:
            if run.flow is not leader:
                seconds = busy_ns / 1e9 * run.rows / rows
                self._charge(run.flow, seconds, now)
                self._charge(leader, -seconds, now)

    def _charge(self, flow: SessionFlow, seconds: float, now: float) -> None:
        flow.priority_class.flows.charge(flow, seconds, now)
        flow.user.identity.users.charge(flow.user, seconds, now)
        self._flows.charge(flow.user.identity, seconds, now)
        self._remember(flow.user)

    def reserve(self, cancellation: Cancellation, size_bytes: int) -> None:
        """Take memory for a run that has a slot, until `release`. Its time on the device so far is counted.

        Where too little is left the run waits, without a slot, for both. Raises OutOfMemory for more than there is at
        all, and TimedOut or OperationFailed (cancelled); a run that waited has no slot then.
        """
        self._memory.require_possible(size_bytes)
        with self._lock:
            if cancellation.began_ns is not None:
                self._running[cancellation].tally.busy_ns += time.perf_counter_ns() - cancellation.began_ns
                cancellation.began_ns = None
            if not self._lacking and self._memory.has_left(size_bytes):
                self._memory.take(cancellation, size_bytes)
                return
            queued = self._set_aside(cancellation, size_bytes)
        self._wait(queued)

    def release(self, cancellation: Cancellation, busy_ns: int = 0) -> None:
        """Free the slot and the memory of a run, for those who wait, and count its time. One without a slot has
        nothing."""
        with self._lock:
            flow = self._running.pop(cancellation, None)
            if flow is None:
                self._joined.pop(cancellation, None)
                return
            joined = None
            if self._joined:
                for tally, its_ns in self._shares(cancellation, flow, busy_ns):
                    tally.busy_ns += its_ns
                joined = self._joined.pop(cancellation, None)
            else:
                flow.tally.busy_ns += busy_ns
            self.has_free_slot = True
            if self._memory.taken:
                self._memory.give_back(cancellation)
            if cancellation not in self._counted:  # Then nobody waits.
                return
            self._counted.remove(cancellation)
            now = self._clock()
            self._stop(flow, now)
            if joined is not None:
                self._share(joined, flow, busy_ns, now)
            self._fill(now)

    def _wait(self, queued: _QueuedRun) -> None:
        try:
            queued.cancellation.on_cancel(queued.wake)
            with suppress(Empty):
                queued.signals.get(timeout=queued.cancellation.remaining)
        except BaseException:
            if self._taken_out(queued):
                self.release(queued.cancellation)
            raise
        if not self._taken_out(queued):
            queued.cancellation.check()
            raise TimedOut("the run's time was over before its turn came")

    def _taken_out(self, queued: _QueuedRun) -> bool:
        """Take a run that waits no longer out of the queue; true if it had been granted a slot before."""
        with self._lock:
            if not queued.is_granted:
                now = self._clock()
                if queued.lacks_bytes:
                    self._take_off(queued)
                    self._fill(now)  # Others may find what it lacked.
                else:
                    queued.flow.queued.remove(queued)
                    self._leave(queued.flow, now)
            return queued.is_granted

    def _require_room(self, flow: SessionFlow) -> None:
        """Raise OutOfMemory where no run of a flow may wait, and what this is suspended for."""
        if self._suspended_for is not None:
            raise self._suspended_for.copy()
        if self._queued >= self._queued_runs:
            raise LimitReached(
                f"{self._queued} runs wait for the device, its limit; try again later,"
                " or raise the daemon's --queued-runs",
                "--queued-runs",
            )
        if flow.user.identity.waiting + flow.user.identity.lacking >= self._identity_runs:
            raise LimitReached(
                f"{self._identity_runs} runs of this identity wait for the device, its limit; try again later, or raise"
                " the daemon's --identity-share or --queued-runs",
                "--identity-share",
            )

    def _enqueued(self, flow: SessionFlow, cancellation: Cancellation) -> _QueuedRun:
        if flow not in self._privileged:
            self._require_room(flow)
        queued = _QueuedRun(flow, cancellation)
        now = self._clock()
        self._count_all(now)
        if not flow.priority_class.flows:
            flow.priority_class.since = now
        self._queued += 1
        flow.queued.append(queued)
        flow.priority_class.flows.wait(flow, now)
        flow.user.identity.users.wait(flow.user, now)
        self._flows.wait(flow.user.identity, now)
        if self._suspended_for is not None:  # There may be slots.
            self._fill(now)
        return queued

    def _waiting(self) -> Iterator[_QueuedRun]:
        """All that wait, for a slot or for memory."""
        for identity in self._flows:
            for user in identity.users:
                for priority_class in user.classes:
                    for flow in priority_class.flows:
                        yield from flow.queued
        yield from self._lacking

    def _set_aside(self, cancellation: Cancellation, size_bytes: int) -> _QueuedRun:
        """Have a run wait for memory, and its slot go to others."""
        now = self._clock()
        self._count_all(now)
        flow = self._running.pop(cancellation)
        self._counted.remove(cancellation)
        self._stop(flow, now)
        queued = _QueuedRun(flow, cancellation, size_bytes)
        self._lacking.append(queued)
        flow.user.identity.lacking += 1
        self._queued += 1
        self._fill(now)
        return queued

    def _take_off(self, queued: _QueuedRun) -> None:
        """A run waits for memory no more."""
        self._lacking.remove(queued)
        queued.flow.user.identity.lacking -= 1
        self._queued -= 1

    def _count_all(self, now: float) -> None:
        """Have the time of all runs on the device count from now on, for somebody waits."""
        if not self._queued:
            for running, its_flow in self._running.items():
                if running not in self._counted:
                    self._start(running, its_flow, now)

    def _fill(self, now: float) -> None:
        """Give the free slots to those who wait, as far as they can start."""
        while self._queued and len(self._running) < self._slots and (queued := self._next(now)):
            flow = queued.flow
            self._running[queued.cancellation] = flow
            self._start(queued.cancellation, flow, now)
            if queued.lacks_bytes:
                self._take_off(queued)
                self._memory.take(queued.cancellation, queued.lacks_bytes)
            else:
                self._leave(flow, now)
            queued.is_granted = True
            if queued.joinable is not None:
                del queued.joinable.bucket.waiting[queued.joinable]
            queued.wake()
        self.has_free_slot = len(self._running) < self._slots

    def _next(self, now: float) -> _QueuedRun | None:
        """The run that starts next; None where each lacks memory. It is in no session's queue any more."""
        for flow in self._privileged:
            if flow.queued:
                return flow.queued.popleft()
        lacking = min(self._lacking, key=lambda each: _spent(each.flow, now), default=None)
        if lacking is not None and not self._memory.has_left(lacking.lacks_bytes):
            lacking = None
        identity = self._flows.next(now) if self._flows else None
        if identity is None or (lacking and lacking.flow.user.identity.spent_by(now) <= identity.spent_by(now)):
            return lacking
        chosen = identity.users.next(now).next_class(now, self._ageing_s)
        chosen.since = now
        return chosen.flows.next(now).queued.popleft()

    def _start(self, cancellation: Cancellation, flow: SessionFlow, now: float) -> None:
        self._counted.add(cancellation)
        flow.priority_class.flows.start(flow, now)
        flow.user.identity.users.start(flow.user, now)
        self._flows.start(flow.user.identity, now)

    def _stop(self, flow: SessionFlow, now: float) -> None:
        flow.priority_class.flows.stop(flow, now)
        flow.user.identity.users.stop(flow.user, now)
        self._flows.stop(flow.user.identity, now)
        self._remember(flow.user)

    def _leave(self, flow: SessionFlow, now: float) -> None:
        self._queued -= 1
        flow.priority_class.flows.leave(flow, now)
        flow.user.identity.users.leave(flow.user, now)
        self._flows.leave(flow.user.identity, now)
        self._remember(flow.user)

    def _remember(self, user: UserFlow) -> None:
        """Keep a user, and an identity, that becomes idle from coming back as a new one with less spent."""
        identity = user.identity
        if not (user.running or user.waiting) and identity.users.is_ahead(user):
            identity.ahead.add(user)
        if not (identity.running or identity.waiting) and self._flows.is_ahead(identity):
            self._ahead.add(identity)


def _spent(flow: SessionFlow, now: float) -> tuple[float, float]:
    """What its identity has spent, and its user."""
    return flow.user.identity.spent_by(now), flow.user.spent_by(now)


def _fairly(bucket: Bucket) -> list[Joinable]:
    """Those that wait, in the order in which they are taken along: by priority, then one of each session in turn."""
    turns = Counter[SessionFlow]()
    order = []
    for place, run in enumerate(bucket.waiting):
        order.append((-run.flow.priority_class.rank, turns[run.flow], place, run))
        turns[run.flow] += 1
    return [run for *_, run in sorted(order)]
