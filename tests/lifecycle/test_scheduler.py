"""Whose turn it is, and when no more work is taken: the daemon's rules for threads, without a daemon."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest

from nnrt_device_service.scheduler import Gate, Scheduler
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import OperationFailed, TimedOut, UnavailableDevice

DEADLINE_S = 20.0


def wait_until(wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not wanted():
        assert time.monotonic() < deadline
        time.sleep(0)


def within(seconds: float) -> Cancellation:
    return Cancellation(time.monotonic() + seconds)


def take_turn(scheduler: Scheduler, cancellation: Cancellation, work: Callable[[], object]) -> None:
    with scheduler.turn(cancellation):
        work()


def is_queued(scheduler: Scheduler, count: int) -> bool:
    return scheduler.queued == count


def counts(scheduler: Scheduler) -> tuple[int, int]:
    return scheduler.running, scheduler.queued


@pytest.mark.parametrize("slots", [1, 3])
def test_no_more_than_the_slots_at_a_time(slots: int) -> None:
    """And all of them are used."""
    scheduler, lock, most = Scheduler(slots), threading.Lock(), 0
    all_inside = threading.Barrier(slots, timeout=DEADLINE_S)

    def work() -> None:
        nonlocal most
        with lock:
            most = max(most, scheduler.running)
        all_inside.wait()

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda _: take_turn(scheduler, Cancellation(), work), range(12)))
    assert most == slots
    assert counts(scheduler) == (0, 0)


def test_first_come_first_served() -> None:
    """Turns come in the order in which they were asked for."""
    scheduler, order = Scheduler(1), list[int]()
    with ThreadPoolExecutor(10) as pool, scheduler.turn(Cancellation()):
        for run in range(10):
            pool.submit(take_turn, scheduler, Cancellation(), partial(order.append, run))
            wait_until(partial(is_queued, scheduler, run + 1))
        assert counts(scheduler) == (1, 10)
        assert order == []
    assert order == list(range(10))
    assert counts(scheduler) == (0, 0)


def test_cancelled_while_queued() -> None:
    """It leaves the queue at once and never starts; those behind it keep their places."""
    scheduler, order = Scheduler(1), list[str]()
    cancellations = {name: Cancellation() for name in ("first", "cancelled", "last")}
    with ThreadPoolExecutor(3) as pool, scheduler.turn(Cancellation()):
        futures = {}
        for waiting, (name, cancellation) in enumerate(cancellations.items()):
            futures[name] = pool.submit(take_turn, scheduler, cancellation, partial(order.append, name))
            wait_until(partial(is_queued, scheduler, waiting + 1))
        cancellations["cancelled"].cancel()
        with pytest.raises(OperationFailed, match="cancelled"):
            futures["cancelled"].result(DEADLINE_S)
        assert counts(scheduler) == (1, 2)
    assert order == ["first", "last"]
    assert counts(scheduler) == (0, 0)


def test_expired_while_queued() -> None:
    """A deadline ends the wait without a turn."""
    scheduler = Scheduler(1)
    with scheduler.turn(Cancellation()):
        asked_at = time.monotonic()
        with pytest.raises(TimedOut):
            take_turn(scheduler, within(0.05), lambda: pytest.fail("it started"))
        assert time.monotonic() - asked_at >= 0.05
        assert counts(scheduler) == (1, 0)
    assert counts(scheduler) == (0, 0)


@pytest.mark.parametrize("expired", [True, False])
def test_over_before_it_asked(expired: bool) -> None:
    """Even on an idle device what is expired or cancelled does not start."""
    scheduler, cancellation = Scheduler(1), within(0) if expired else Cancellation()
    if not expired:
        cancellation.cancel()
    with pytest.raises(TimedOut if expired else OperationFailed):
        take_turn(scheduler, cancellation, lambda: pytest.fail("it started"))
    assert counts(scheduler) == (0, 0)


def test_failed_work_gives_its_turn_back() -> None:
    scheduler = Scheduler(1)
    with pytest.raises(ZeroDivisionError):
        take_turn(scheduler, Cancellation(), lambda: 1 / 0)
    take_turn(scheduler, Cancellation(), lambda: None)
    assert counts(scheduler) == (0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_no_turn_is_lost_where_grants_cancellations_and_deadlines_race(seed: int) -> None:
    """Whatever happens first: every call ends, and the slots are all free again."""
    scheduler = Scheduler(2)
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
                take_turn(scheduler, cancellation, lambda: time.sleep(2e-4))
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


# ---- the gate


def test_closed_gate_lets_nobody_in() -> None:
    gate = Gate()
    with gate.passage():
        pass
    assert gate.close(0.0)
    assert gate.is_closed
    with pytest.raises(UnavailableDevice, match="shutting down"), gate.passage():
        pytest.fail("it was let in")
    assert gate.close(0.0)


def test_gate_waits_for_those_inside() -> None:
    """Until all are out, or its time is over; whoever is inside stays there."""
    gate = Gate()
    with ExitStack() as inside, ThreadPoolExecutor(1) as pool:
        inside.enter_context(gate.passage())
        inside.enter_context(gate.passage())
        assert not gate.close(0.05)
        closing = pool.submit(gate.close, DEADLINE_S)
        inside.pop_all().close()
        assert closing.result(DEADLINE_S)


def test_gate_counts_those_who_fail() -> None:
    gate = Gate()
    with pytest.raises(ZeroDivisionError), gate.passage():
        1 / 0  # noqa: B018
    assert gate.close(0.0)


def test_gate_that_closes_in_a_crowd() -> None:
    """Everybody either passed entirely before it closed or was refused."""
    for _ in range(20):
        gate, inside, refused = Gate(), set[int](), threading.Semaphore(0)

        def pass_until_refused(
            number: int, gate: Gate = gate, inside: set[int] = inside, refused: threading.Semaphore = refused
        ) -> None:
            while True:
                try:
                    with gate.passage():
                        inside.add(number)
                        time.sleep(0)
                        inside.discard(number)
                except UnavailableDevice:
                    refused.release()
                    return

        threads = [threading.Thread(target=pass_until_refused, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        assert gate.close(DEADLINE_S)
        assert not inside
        for thread in threads:
            thread.join()
