"""Slots on the device: the daemon's rules for threads, without a daemon."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jain import jain_index
from part import examples
from waiting import until

from nnrt_device_service.scheduling.flows import Account, IdentityFlow
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import OperationFailed, OutOfMemory, TimedOut

DEADLINE_S = 20.0
AGEING_S = 1.0
Work = Callable[[], object]


class Clock:
    """Stands still unless it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def new_scheduler(slots: int = 1, queued_runs: int = 1000, clock: Callable[[], float] = time.monotonic) -> Scheduler:
    return Scheduler(slots, queued_runs, AGEING_S, clock)


def let_others_run() -> None:
    """Hold a slot for a moment, in which others come."""
    for _ in range(5):
        os.sched_yield()


def within(seconds: float) -> Cancellation:
    return Cancellation(time.monotonic() + seconds)


@contextmanager
def slot(
    scheduler: Scheduler,
    cancellation: Cancellation,
    account: Account | None = None,
    priority: Priority = Priority.NONE,
) -> Iterator[None]:
    """Hold a slot while the block lasts."""
    scheduler.acquire((account or scheduler.account("somebody")).flows[priority.rank], cancellation)
    try:
        yield
    finally:
        scheduler.release(cancellation)


def take_slot(
    scheduler: Scheduler,
    cancellation: Cancellation,
    work: Work,
    account: Account | None = None,
    priority: Priority = Priority.NONE,
) -> None:
    with slot(scheduler, cancellation, account, priority):
        work()


@contextmanager
def occupied(scheduler: Scheduler) -> Iterator[Callable[..., "Future[None]"]]:
    """The device is busy during the block. What the block queues there waits in that order, and runs when it ends."""
    with ThreadPoolExecutor(200) as pool, slot(scheduler, Cancellation(), scheduler.account("nobody")):

        def queue(
            work: Work, account: Account, priority: Priority = Priority.NONE, cancellation: Cancellation | None = None
        ) -> "Future[None]":
            before = scheduler.queued
            future = pool.submit(take_slot, scheduler, cancellation or Cancellation(), work, account, priority)
            until(partial(is_queued, scheduler, before + 1))
            return future

        yield queue


def is_queued(scheduler: Scheduler, count: int) -> bool:
    return scheduler.queued == count


def counts(scheduler: Scheduler) -> tuple[int, int]:
    return scheduler.running, scheduler.queued


@pytest.mark.parametrize("slots", [1, 3])
def test_no_more_than_the_slots_at_a_time(slots: int) -> None:
    """And all of them are used."""
    scheduler, lock, most = new_scheduler(slots), threading.Lock(), 0
    all_inside = threading.Barrier(slots, timeout=DEADLINE_S)

    def work() -> None:
        nonlocal most
        with lock:
            most = max(most, scheduler.running)
        all_inside.wait()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: take_slot(scheduler, Cancellation(), work), range(12)))
    assert most == slots
    assert counts(scheduler) == (0, 0)


def test_first_come_first_served() -> None:
    """Turns come in the order in which they were asked for."""
    scheduler, order = new_scheduler(), list[int]()
    account = scheduler.account("somebody")
    with occupied(scheduler) as queue:
        for run in range(10):
            queue(partial(order.append, run), account)
        assert counts(scheduler) == (1, 10)
        assert order == []
    assert order == list(range(10))
    assert counts(scheduler) == (0, 0)


def test_cancelled_while_queued() -> None:
    """It leaves the queue at once and never starts; those behind it keep their places."""
    scheduler, order, cancellation = new_scheduler(), list[str](), Cancellation()
    account = scheduler.account("somebody")
    with occupied(scheduler) as queue:
        queue(partial(order.append, "first"), account)
        cancelled = queue(partial(order.append, "cancelled"), account, cancellation=cancellation)
        queue(partial(order.append, "last"), account)
        cancellation.cancel()
        with pytest.raises(OperationFailed, match="cancelled"):
            cancelled.result(DEADLINE_S)
        assert counts(scheduler) == (1, 2)
    assert order == ["first", "last"]
    assert counts(scheduler) == (0, 0)


def test_expired_while_queued() -> None:
    """A deadline ends the wait without a slot."""
    scheduler = new_scheduler()
    with occupied(scheduler):
        asked_at = time.monotonic()
        with pytest.raises(TimedOut):
            take_slot(scheduler, within(0.05), lambda: pytest.fail("it started"))
        assert time.monotonic() - asked_at >= 0.05
        assert counts(scheduler) == (1, 0)
    assert counts(scheduler) == (0, 0)


@pytest.mark.parametrize("expired", [True, False])
def test_over_before_it_asked(expired: bool) -> None:
    """Even on an idle device what is expired or cancelled does not start."""
    scheduler, cancellation = new_scheduler(), within(0) if expired else Cancellation()
    if not expired:
        cancellation.cancel()
    with pytest.raises(TimedOut if expired else OperationFailed):
        take_slot(scheduler, cancellation, lambda: pytest.fail("it started"))
    assert counts(scheduler) == (0, 0)


def test_failed_work_gives_its_slot_back() -> None:
    scheduler = new_scheduler()
    with pytest.raises(ZeroDivisionError):
        take_slot(scheduler, Cancellation(), lambda: 1 / 0)
    take_slot(scheduler, Cancellation(), lambda: None)
    assert counts(scheduler) == (0, 0)


def test_too_many_waiting() -> None:
    """One more is refused at once; when there is room again, it is taken."""
    scheduler, ran = new_scheduler(queued_runs=2), list[int]()
    account, cancellation = scheduler.account("somebody"), Cancellation()
    with occupied(scheduler) as queue:
        queue(partial(ran.append, 1), account)
        leaving = queue(partial(ran.append, 2), account, cancellation=cancellation)
        with pytest.raises(OutOfMemory, match=r"2 runs wait for the device, its limit; .* --queued-runs"):
            take_slot(scheduler, Cancellation(), lambda: pytest.fail("it started"))
        cancellation.cancel()
        with pytest.raises(OperationFailed):
            leaving.result(DEADLINE_S)
        queue(partial(ran.append, 3), account)
    assert ran == [1, 3]
    assert counts(scheduler) == (0, 0)


# ---- priorities


def test_high_before_medium_before_low() -> None:
    """Whatever session of the user they are of; no priority is as good as MEDIUM."""
    scheduler, order = new_scheduler(clock=Clock()), list[Priority]()
    one, other = scheduler.account("somebody"), scheduler.account("somebody")
    with occupied(scheduler) as queue:
        for account, priority in (
            (one, Priority.LOW),
            (one, Priority.NONE),
            (one, Priority.MEDIUM),
            (one, Priority.NONE),
            (other, Priority.HIGH),
        ):
            queue(partial(order.append, priority), account, priority)
    assert order == [Priority.HIGH, Priority.NONE, Priority.MEDIUM, Priority.NONE, Priority.LOW]


@pytest.mark.parametrize(
    ("waited_s", "priority", "goes_first"),
    [
        (1.75 * AGEING_S, Priority.LOW, False),
        (2 * AGEING_S, Priority.LOW, True),
        (0.75 * AGEING_S, Priority.MEDIUM, False),
        (AGEING_S, Priority.MEDIUM, True),
    ],
)
def test_a_class_that_waited_rises(waited_s: float, priority: Priority, goes_first: bool) -> None:
    """By one for each time of ageing; among equals who has waited longer goes first."""
    clock, order = Clock(), list[str]()
    scheduler = new_scheduler(clock=clock)
    account = scheduler.account("somebody")
    with occupied(scheduler) as queue:
        queue(partial(order.append, "aged"), account, priority)
        clock.advance(waited_s)
        queue(partial(order.append, "high"), account, Priority.HIGH)
    assert order == (["aged", "high"] if goes_first else ["high", "aged"])


def test_low_gets_on_under_a_flood_of_high() -> None:
    """A run in every two times of ageing, and no more: a long queue of low is no reason to go first."""
    clock, order = Clock(), list[str]()
    scheduler = new_scheduler(clock=clock)
    account = scheduler.account("somebody")

    def run(name: str) -> None:
        order.append(name)
        clock.advance(AGEING_S / 4)

    with occupied(scheduler) as queue:
        for _ in range(10):
            queue(partial(run, "low"), account, Priority.LOW)
        for _ in range(30):
            queue(partial(run, "high"), account, Priority.HIGH)
    assert [at for at, name in enumerate(order[:33]) if name == "low"] == [8, 16, 24, 32]


def test_priorities_take_nothing_from_other_users() -> None:
    """One name on another host is another user."""
    clock, order = Clock(), list[str]()
    scheduler = new_scheduler(clock=clock)

    def run(name: str) -> None:
        order.append(name)
        clock.advance(0.01)

    with occupied(scheduler) as queue:
        for user, priority in (("10.0.0.1 1000", Priority.LOW), ("10.0.0.2 1000", Priority.HIGH)):
            account = scheduler.account(user)
            for _ in range(10):
                queue(partial(run, user), account, priority)
    assert [order[:at].count("10.0.0.1 1000") for at in range(2, 21, 2)] == list(range(1, 11))


# ---- even shares


@pytest.mark.parametrize("users", [("one", "two", "three"), ("one", "one", "one")])
@pytest.mark.parametrize("of", [False, True], ids=["identities", "users of an identity"])
def test_even_shares_of_device_time(users: tuple[str, ...], of: bool) -> None:
    """Between identities, between the users of one, and between the sessions of one: however long their runs are, and
    however many wait."""
    clock = Clock()
    scheduler = new_scheduler(clock=clock)
    spent = [0.0] * len(users)
    shares_when_one_was_done = list[list[float]]()
    left = [60, 20, 8]
    lengths_s = [0.01, 0.03, 0.07]

    def run(client: int) -> None:
        clock.advance(lengths_s[client])
        spent[client] += lengths_s[client]
        left[client] -= 1
        if not left[client]:
            shares_when_one_was_done.append(list(spent))

    with occupied(scheduler) as queue:
        for client, user in enumerate(users):
            account = scheduler.account("same", user) if of else scheduler.account(user)
            for _ in range(left[client]):
                queue(partial(run, client), account)
    assert jain_index(shares_when_one_was_done[0]) >= 0.99


def test_a_user_has_one_share_however_many_sessions_it_opens() -> None:
    clock, order = Clock(), list[str]()
    scheduler = new_scheduler(clock=clock)

    def run(name: str) -> None:
        order.append(name)
        clock.advance(0.01)

    with occupied(scheduler) as queue:
        for user in ("many", "many", "many", "one"):
            account = scheduler.account(user)
            for _ in range(10):
                queue(partial(run, user), account)
    assert abs(order[:20].count("one") - 10) <= 1


def test_who_says_to_be_several_users_has_one_share() -> None:
    clock, order = Clock(), list[str]()
    scheduler = new_scheduler(clock=clock)

    def run(name: str) -> None:
        order.append(name)
        clock.advance(0.01)

    with occupied(scheduler) as queue:
        for identity, user in (("many", "1"), ("many", "2"), ("many", "3"), ("one", "1")):
            account = scheduler.account(identity, user)
            for _ in range(10):
                queue(partial(run, identity), account)
    assert abs(order[:20].count("one") - 10) <= 1


def test_an_identity_does_not_fill_the_queue() -> None:
    scheduler = Scheduler(1, 5, AGEING_S, identity_runs=3)
    with occupied(scheduler) as queue:
        for user in ("1", "2", "3"):
            queue(let_others_run, scheduler.account("many", user))
        with pytest.raises(OutOfMemory, match=r"3 runs of this identity wait .*--identity-share"):
            scheduler.acquire(scheduler.account("many", "4").flows[0], Cancellation())
        queue(let_others_run, scheduler.account("one"))


def test_a_user_does_not_leave_its_debt_behind() -> None:
    """Its sessions may end and others come: it still has spent what it has spent."""
    clock, order = Clock(), list[str]()
    scheduler = new_scheduler(clock=clock)
    steady = scheduler.account("steady")
    with occupied(scheduler) as queue:
        queue(partial(clock.advance, 1.0), scheduler.account("greedy"))  # Nobody has spent anything: it goes first.
        queue(partial(clock.advance, 0.125), steady)
        queue(partial(clock.advance, 0.125), steady)
    with occupied(scheduler) as queue:
        queue(partial(order.append, "greedy"), scheduler.account("greedy"))
        queue(partial(order.append, "steady"), steady)
    assert order == ["steady", "greedy"]


@pytest.mark.slow
def test_users_are_forgotten() -> None:
    """A user who comes again and again under other names leaves no trace."""

    def flows() -> int:
        gc.collect()
        return sum(isinstance(each, IdentityFlow) for each in gc.get_objects())

    before = flows()  # Other tests may have left some.
    clock = Clock()
    scheduler = new_scheduler(clock=clock)
    steady = scheduler.account("steady")
    with occupied(scheduler) as queue:
        for _ in range(150):
            queue(partial(clock.advance, 0.25), steady)
        for number in range(40):
            queue(partial(clock.advance, 0.25), scheduler.account(f"user {number}"))
    scheduler.account("the next")
    assert flows() - before <= 3


# ---- races


@pytest.mark.parametrize("seed", range(3))
def test_no_slot_is_lost_where_grants_cancellations_and_deadlines_race(seed: int) -> None:
    """Whatever happens first: every call ends, and the slots are all free again."""
    scheduler = new_scheduler(2)
    outcomes: dict[str, int] = dict.fromkeys(("ran", "cancelled", "expired"), 0)
    lock = threading.Lock()

    def client(number: int) -> None:
        rng = np.random.default_rng([seed, number])
        for _ in range(150):
            cancellation = within(rng.exponential(2e-3)) if rng.random() < 0.5 else Cancellation()
            canceller = threading.Timer(rng.exponential(2e-3), cancellation.cancel)
            if rng.random() < 0.5:
                canceller.start()
            try:
                take_slot(scheduler, cancellation, let_others_run)
                outcome = "ran"
            except TimedOut:
                outcome = "expired"
            except OperationFailed:
                outcome = "cancelled"
            with lock:
                outcomes[outcome] += 1
            if canceller.ident:
                canceller.join()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(client, range(8)))
    assert counts(scheduler) == (0, 0)
    assert sum(outcomes.values()) == 8 * 150
    assert all(outcomes.values()), outcomes


class LiveRun:
    """A run that waits for its slot, holds it until it is told to end, and tells where it stands."""

    def __init__(self, scheduler: Scheduler, account: Account, priority: Priority) -> None:
        self._scheduler, self._account, self._priority = scheduler, account, priority
        self._may_end = threading.Event()
        self.cancellation = Cancellation()
        self.has_started = False
        self.was_cancelled = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        self._may_end.set()
        self.join()

    def join(self) -> None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            take_slot(self._scheduler, self.cancellation, self._hold, self._account, self._priority)
        except OperationFailed:
            self.was_cancelled = True

    def _hold(self) -> None:
        self.has_started = True
        assert self._may_end.wait(DEADLINE_S)


_ARRIVE = st.tuples(st.just("arrive"), st.integers(0, 4), st.sampled_from(Priority))
_END = st.tuples(st.sampled_from(["end", "cancel"]), st.integers(0, 20), st.none())


@settings(max_examples=examples(40))
@given(st.integers(1, 3), st.lists(st.one_of(_ARRIVE, _ARRIVE, _END), max_size=25))
def test_every_run_gets_one_slot(slots: int, steps: Sequence[tuple[str, int, Priority | None]]) -> None:
    """Runs of any user, session and priority come, end and are cancelled in any order: after each step as many as
    possible run, and in the end each has run or was cancelled."""
    scheduler = new_scheduler(slots)
    accounts = [scheduler.account(user) for user in ("one", "one", "two", "two", "three")]
    runs, waiting, on_device = list[LiveRun](), list[LiveRun](), list[LiveRun]()

    def settle() -> None:
        alive = len(waiting) + len(on_device)
        until(lambda: counts(scheduler) == (min(alive, slots), max(alive - slots, 0)))
        until(lambda: len(on_device) + sum(run.has_started for run in waiting) == min(alive, slots))
        on_device.extend(run for run in waiting if run.has_started)
        waiting[:] = [run for run in waiting if not run.has_started]

    for step, number, priority in steps:
        if priority is not None:
            runs.append(LiveRun(scheduler, accounts[number], priority))
            waiting.append(runs[-1])
        elif step == "end" and on_device:
            on_device.pop(number % len(on_device)).end()
        elif step == "cancel" and waiting:
            leaving = waiting.pop(number % len(waiting))
            leaving.cancellation.cancel()
            leaving.join()
        settle()
    while on_device:
        on_device.pop().end()
        settle()
    assert not waiting
    assert all(run.has_started != run.was_cancelled for run in runs)
    assert counts(scheduler) == (0, 0)
