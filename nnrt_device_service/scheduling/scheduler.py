"""Scheduler: decides which runs are on the device, and which waiting run is next."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty

from nnrt_device_service.access.counters import Tally
from nnrt_device_service.host.steps import take_each
from nnrt_device_service.scheduling.flows import Account, Flows, QueuedRun, SessionFlow
from nnrt_device_service.scheduling.joinable import Bucket, Joinable, await_change
from nnrt_device_service.scheduling.run_memory import RunMemory
from nnrt_device_service.scheduling.waiting import WaitingRuns
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import NnrtError, TimedOut


class Scheduler:
    """Scheduler with a fixed number of slots on the device; `Flows` says in which order waiting runs get them.

    Device time counts only while some run waits: a client that had the device alone owes nothing for it.

    A run with a slot takes the memory that it is going to allocate. A run that finds too little memory gives its slot
    back and waits. Of the runs that wait for memory, the one whose identity has spent least is next, and no other run
    takes memory before it: a series of small runs could keep a large one waiting for ever. Runs that need no counted
    memory go on meanwhile.

    Long runs get all slots but one, if there are several, so that short runs of others needn't wait for a long one.

    A waiting run that is cancelled, or whose deadline passes, leaves the queue at once and never starts. Runs are
    identified by their cancellations. While the scheduler is suspended, only runs of the privileged account start.
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
        """Let at most `queued_runs` wait, `identity_runs` of one identity, and all runs allocate `run_bytes`."""
        self._lock = threading.Lock()
        self._slots = slots
        # Number of slots that a run may take without a check of its account: 0 while the scheduler is suspended.
        self._open_slots = slots
        # Reason of `suspend`; None while the scheduler isn't suspended.
        self.suspended_for: NnrtError | None = None
        self._running: dict[Cancellation, SessionFlow] = {}
        # Running runs whose time counts, because a run waits or has waited since they started.
        self._counted: set[Cancellation] = set()
        # Runs that are computed together, by the cancellation that has their slot.
        self._joined: dict[Cancellation, Sequence[Joinable]] = {}
        # Whether a run would probably not have to wait. May be read without the lock.
        self.has_free_slot = True
        self._clock = clock
        self.memory = RunMemory(run_bytes, max(slots - 1, 1))
        self._flows = Flows(ageing_s)
        self._waiting = WaitingRuns(self._flows, queued_runs, identity_runs)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def queued(self) -> int:
        return self._waiting.count

    @property
    def queue_full_ratio(self) -> float:
        """Fraction of the queue in use: of the whole queue, or of one identity's share if that is more."""
        with self._lock:
            return self._waiting.full_ratio

    def on_device(self) -> list[Cancellation]:
        """Return the runs that have a slot."""
        return list(self._running)

    def running_ns(self) -> Mapping[Tally, int]:
        """Return the nanoseconds that the runs with a slot have been on the device, by the tally that counts them."""
        under_way, now_ns = Counter[Tally](), time.perf_counter_ns()
        with self._lock:
            for cancellation, flow in self._running.items():
                if (began_ns := cancellation.began_ns) is None:
                    continue
                joined = self._joined.get(cancellation)
                for tally, on_device_ns in _split_busy_time(joined, flow, max(now_ns - began_ns, 0)):
                    under_way[tally] += on_device_ns
        return under_way

    def account(self, identity: str, user: str = "", tally: Tally | None = None) -> Account:
        """Return a new account for a session of one of the identity's users; `tally` counts its device time."""
        with self._lock:
            return self._flows.account(identity, user, tally or Tally())

    def privilege(self, account: Account) -> None:
        """Let runs of this account always go first, regardless of the queue's limits and of `suspend`."""
        self._waiting.privileged = account.flows

    def suspend(self, reason: NnrtError) -> None:
        """Cancel all waiting and running runs with this reason, and refuse new ones with it until `resume`.

        Runs of the privileged account are not affected.
        """
        with self._lock:
            self.suspended_for = reason
            self._open_slots = 0
            privileged = self._waiting.privileged
            runs = [run for run, flow in self._running.items() if flow not in privileged]
            runs += [each.cancellation for each in self._waiting if each.flow not in privileged]
        take_each([partial(run.cancel, reason) for run in runs], "ending the runs of the device")

    def resume(self) -> None:
        """Let runs of all accounts onto the device again."""
        with self._lock:
            self.suspended_for = None
            self._open_slots = self._slots

    def acquire(self, flow: SessionFlow, cancellation: Cancellation) -> None:
        """Wait for a slot on the device, which the run keeps until `release`.

        Raises OutOfMemory if the queue is full, TimedOut or OperationFailed (cancelled), and the reason of `suspend`.
        """
        queued = None
        with self._lock:
            if len(self._running) < self._open_slots:  # Then only runs that lack memory wait.
                self._running[cancellation] = flow
                self.has_free_slot = len(self._running) < self._slots
                if self._waiting.count:
                    self._count_running(cancellation, flow, self._clock())
            else:
                queued = self._enqueue(flow, cancellation)
        if queued is not None:
            self._wait(queued)
        if cancellation.is_cancelled or cancellation.deadline is not None:
            try:
                cancellation.check()
            except BaseException:
                self.release(cancellation)
                raise

    def acquire_together(self, runs: Sequence[Joinable], slot: Cancellation) -> list[Joinable]:
        """Wait until one of these runs gets a slot on the device, and return the runs to compute in it.

        The given runs must be of one bucket and fit into a batch. `slot` has the slot then, until `release`. The
        returned runs are the given ones, and as many of the bucket's runs that wait in other threads as the batch has
        room for. Returns an empty list if all given runs have an outcome by then, because their deadlines have passed
        or other threads have computed them.
        """
        with self._lock:
            if len(self._running) < self._open_slots:
                self._running[slot] = runs[0].flow
                self.has_free_slot = len(self._running) < self._slots
                if self._waiting.count:
                    self._count_running(slot, runs[0].flow, self._clock())
                self._joined[slot] = taken = list(runs)
                return taken
            wake = threading.Event()
            for run in runs:
                run.wakes.append(wake)
                try:
                    run.begin_to_wait(self._enqueue(run.flow, run.cancellation), wake)
                except NnrtError as error:
                    run.settle(error)
        for run in runs:
            run.cancellation.on_cancel(wake.set)
        try:
            while True:
                with self._lock:
                    for run in runs:
                        if run.is_over and not run.is_granted:
                            _leave_queue(self._waiting, run, self._clock())
                            run.settle_if_over()
                    if any(run.is_granted for run in runs):
                        return self._take_batch(runs, slot)
                if all(run.is_settled for run in runs):
                    return []
                await_change(runs, wake)
        except BaseException:
            with self._lock:
                granted = [run for run in runs if run.is_granted]
                for run in runs:
                    if not run.is_granted:
                        _leave_queue(self._waiting, run, self._clock())
            for run in granted:
                self.release(run.cancellation)
            raise

    def _take_batch(self, runs: Sequence[Joinable], slot: Cancellation) -> list[Joinable]:
        """Move the slot that one of the runs was granted to `slot`; return the runs to compute in it."""
        now = self._clock()
        leader: Joinable | None = None
        taken = []
        for run in runs:
            if run.queued is None:
                continue
            if run.is_granted:
                flow = self._running.pop(run.cancellation)
                self._counted.discard(run.cancellation)
                if leader is None:
                    leader = run
                    self._running[slot] = flow
                    self._counted.add(slot)
                else:
                    self._flows.stop(flow, now)
                run.queued = None
            else:
                _leave_queue(self._waiting, run, now)
            taken.append(run)
        assert leader is not None
        room = leader.bucket.batching.max_size - sum(run.rows for run in taken)
        for other in _in_fair_order(leader.bucket):
            if other.rows <= room and not other.is_over:
                room -= other.rows
                _leave_queue(self._waiting, other, now)
                taken.append(other)
        self._joined[slot] = taken
        self._fill_slots(now)
        return taken

    def reserve(self, cancellation: Cancellation, size_bytes: int, *, is_long: bool = False) -> None:
        """Take memory for a run that has a slot, until `release`, and count its time on the device so far.

        If too little memory is left, or if the run is long and has the last slot, it gives its slot back and waits.
        Raises OutOfMemory if the size exceeds the limit, and TimedOut or OperationFailed (cancelled); a run that waited
        has no slot after these.
        """
        self.memory.require_possible(size_bytes)
        with self._lock:
            if cancellation.began_ns is not None:
                self._running[cancellation].tally.busy_ns += time.perf_counter_ns() - cancellation.began_ns
                cancellation.began_ns = None
            memory = self.memory
            if memory.has_left(size_bytes) and memory.has_slot(is_long) and not self._waiting.next_for(memory):
                memory.take(cancellation, size_bytes, is_long)
                return
            now = self._clock()
            self._count_all_running(now)
            flow = self._running.pop(cancellation)
            self._counted.remove(cancellation)
            self._flows.stop(flow, now)
            queued = self._waiting.add_for_memory(flow, cancellation, size_bytes, is_long)
            self._fill_slots(now)
        self._wait(queued)

    def release(self, cancellation: Cancellation, busy_ns: int = 0) -> None:
        """Free the slot and the memory of a run and count its time; does nothing for a run without a slot."""
        with self._lock:
            flow = self._running.pop(cancellation, None)
            if flow is None:
                self._joined.pop(cancellation, None)
                return
            joined = None
            if self._joined:
                joined = self._joined.pop(cancellation, None)
                for tally, its_ns in _split_busy_time(joined, flow, busy_ns):
                    tally.busy_ns += its_ns
            else:
                flow.tally.busy_ns += busy_ns
            self.has_free_slot = True
            if self.memory.taken:
                self.memory.give_back(cancellation)
            if cancellation not in self._counted:  # Then no run waits.
                return
            self._counted.remove(cancellation)
            now = self._clock()
            self._flows.stop(flow, now)
            if joined is not None:
                _charge_by_rows(self._flows, joined, flow, busy_ns, now)
            self._fill_slots(now)

    def _wait(self, queued: QueuedRun) -> None:
        """Wait until the run is granted a slot; raise TimedOut or OperationFailed (cancelled)."""
        has_waited = False
        try:
            queued.cancellation.on_cancel(queued.wake)
            with suppress(Empty):
                queued.signals.get(timeout=queued.cancellation.remaining)
            has_waited = True
        finally:
            with self._lock:
                if not queued.is_granted:
                    now = self._clock()
                    self._waiting.remove(queued, now)
                    if queued.needs_bytes:
                        self._fill_slots(now)  # Runs that need less memory may start now.
            if queued.is_granted and not has_waited:
                self.release(queued.cancellation)
        if not queued.is_granted:
            queued.cancellation.check()
            raise TimedOut("the run's time was over before its turn came")

    def _enqueue(self, flow: SessionFlow, cancellation: Cancellation) -> QueuedRun:
        """Add a run to the queue; raise OutOfMemory, and the reason of `suspend`."""
        if flow not in self._waiting.privileged:
            if self.suspended_for is not None:
                raise self.suspended_for.copy()
            self._waiting.require_room(flow)
        now = self._clock()
        self._count_all_running(now)
        queued = self._waiting.add(flow, cancellation, now)
        if self.suspended_for is not None:  # A privileged run: slots may be free.
            self._fill_slots(now)
        return queued

    def _count_all_running(self, now: float) -> None:
        """Start counting the time of all runs on the device, because a run is about to wait."""
        if not self._waiting.count:
            for running, its_flow in self._running.items():
                if running not in self._counted:
                    self._count_running(running, its_flow, now)

    def _count_running(self, cancellation: Cancellation, flow: SessionFlow, now: float) -> None:
        """Start counting the time of a run that is on the device."""
        self._counted.add(cancellation)
        self._flows.start(flow, now)

    def _fill_slots(self, now: float) -> None:
        """Give free slots to waiting runs that can start."""
        waiting = self._waiting
        while waiting.count and len(self._running) < self._slots and (queued := waiting.next(self.memory, now)):
            self._running[queued.cancellation] = queued.flow
            self._count_running(queued.cancellation, queued.flow, now)
            waiting.leave(queued, now)
            if queued.needs_bytes:
                self.memory.take(queued.cancellation, queued.needs_bytes, queued.is_long)
            queued.is_granted = True
            queued.on_grant()
            queued.wake()
        self.has_free_slot = len(self._running) < self._slots


def _split_busy_time(runs: Sequence[Joinable] | None, flow: SessionFlow, busy_ns: int) -> Iterable[tuple[Tally, int]]:
    """Return the tallies that count time on the device; runs of a batch share it by their rows."""
    if runs is None:
        return ((flow.tally, busy_ns),)
    rows, counted, shares = sum(run.rows for run in runs), 0, []
    for run in runs:
        counted += run.rows
        shares.append((run.flow.tally, busy_ns * counted // rows - busy_ns * (counted - run.rows) // rows))
    return shares


def _charge_by_rows(flows: Flows, runs: Sequence[Joinable], leader: SessionFlow, busy_ns: int, now: float) -> None:
    """Charge each run of a batch for its rows, and take back what the leader has paid for the others."""
    rows = sum(run.rows for run in runs)
    for run in runs:
        if run.flow is not leader:
            seconds = busy_ns / 1e9 * run.rows / rows
            flows.charge(run.flow, seconds, now)
            flows.charge(leader, -seconds, now)


def _leave_queue(waiting: WaitingRuns, run: Joinable, now: float) -> None:
    """Remove a joinable run from the queue, if it waits for a slot of its own."""
    if run.queued is not None:
        queued, run.queued = run.queued, None
        del run.bucket.waiting[run]
        queued.flow.priority_class.waits_since = now
        waiting.remove(queued, now)


def _in_fair_order(bucket: Bucket) -> list[Joinable]:
    """Return the bucket's waiting runs in the order in which they join a batch: by priority, then sessions in turn."""
    turns = Counter[SessionFlow]()
    order = []
    for place, run in enumerate(bucket.waiting):
        order.append((-run.flow.priority_class.rank, turns[run.flow], place, run))
        turns[run.flow] += 1
    return [run for *_, run in sorted(order)]
