"""What becomes of runs when nobody may be on the device."""

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

import pytest
from waiting import until

from nnrt_device_service.scheduling.flows import Account
from nnrt_device_service.scheduling.scheduler import Scheduler
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import OutOfMemory, UnavailableDevice

DEADLINE_S = 20.0
REASON = UnavailableDevice("the device is ill")


@contextmanager
def slot(scheduler: Scheduler, account: Account, cancellation: Cancellation | None = None) -> Iterator[Cancellation]:
    """Hold a slot while the block lasts."""
    run = cancellation or Cancellation()
    scheduler.acquire(account.flows[0], run)
    try:
        yield run
    finally:
        scheduler.release(run)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        yield pool


def test_it_ends_runs_wherever_they_are_and_refuses_others(threads: ThreadPoolExecutor) -> None:
    scheduler = Scheduler(1, 100, 1.0, run_bytes=10)
    account = scheduler.account("somebody")

    def take(size_bytes: int = 0) -> None:
        with slot(scheduler, account) as run:
            scheduler.reserve(run, size_bytes)

    with slot(scheduler, account) as holding:
        scheduler.reserve(holding, 10)
        waiting = threads.submit(take)
        until(lambda: scheduler.queued == 1)
        scheduler.suspend(REASON)
        with pytest.raises(UnavailableDevice, match="ill"):
            waiting.result(DEADLINE_S)
        with pytest.raises(UnavailableDevice, match="ill"):
            holding.check()
        with pytest.raises(UnavailableDevice, match="ill"):
            take()
    with pytest.raises(UnavailableDevice, match="ill"):
        take()
    scheduler.resume()
    take()
    assert (scheduler.running, scheduler.queued) == (0, 0)


def test_it_ends_runs_that_wait_for_memory(threads: ThreadPoolExecutor) -> None:
    scheduler = Scheduler(2, 100, 1.0, run_bytes=10)
    account = scheduler.account("somebody")

    def take() -> None:
        with slot(scheduler, account) as run:
            scheduler.reserve(run, 10)

    with slot(scheduler, account) as holding:
        scheduler.reserve(holding, 10)
        waiting = threads.submit(take)
        until(lambda: scheduler.queued == 1)
        scheduler.suspend(REASON)
        with pytest.raises(UnavailableDevice, match="ill"):
            waiting.result(DEADLINE_S)
    assert (scheduler.running, scheduler.queued) == (0, 0)


def test_the_privileged_get_slots_all_the_same(threads: ThreadPoolExecutor) -> None:
    """In their turn, and though nobody else may wait."""
    scheduler = Scheduler(1, 0, 1.0)
    account, privileged = scheduler.account("somebody"), scheduler.account("canary")
    scheduler.privilege(privileged)

    def take() -> None:
        with slot(scheduler, privileged):
            pass

    for is_suspended in (False, True):
        with slot(scheduler, account):
            if is_suspended:
                scheduler.suspend(REASON)
            else:
                with pytest.raises(OutOfMemory), slot(scheduler, account):
                    pass
            waiting = threads.submit(take)
            until(lambda: scheduler.queued == 1)
        waiting.result(DEADLINE_S)
    take()
    scheduler.resume()
    with slot(scheduler, account):
        pass
    assert (scheduler.running, scheduler.queued) == (0, 0)


def test_the_privileged_are_next(threads: ThreadPoolExecutor) -> None:
    """However many others wait whose share is still to come: each of their runs may last as long as any."""
    scheduler = Scheduler(1, 100, 1.0)
    others = [scheduler.account(str(number)) for number in range(3)]
    privileged = scheduler.account("canary")
    scheduler.privilege(privileged)
    order: list[Account] = []

    def take(account: Account) -> None:
        with slot(scheduler, account):
            order.append(account)

    with slot(scheduler, others[0]):
        runs = []
        for account in (*others, privileged):
            runs.append(threads.submit(take, account))
            until(lambda: scheduler.queued == len(runs))
    for run in runs:
        run.result(DEADLINE_S)
    assert order[0] is privileged
    assert (scheduler.running, scheduler.queued) == (0, 0)


def test_no_run_that_had_a_slot_before_is_overlooked(threads: ThreadPoolExecutor) -> None:
    """And no slot is lost, where runs come and go meanwhile."""
    scheduler = Scheduler(2, 1000, 1.0)
    privileged = scheduler.account("canary")
    scheduler.privilege(privileged)
    is_suspended = is_over = False
    overlooked = 0

    def run(account: Account) -> None:
        nonlocal overlooked
        while not is_over:
            was_suspended = is_suspended
            try:
                with slot(scheduler, account) as taken:
                    if account is not privileged and was_suspended and is_suspended and not taken.is_cancelled:
                        overlooked += 1
            except UnavailableDevice:
                pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        accounts = [privileged, *(scheduler.account(str(number)) for number in range(6))]
        runs = [threads.submit(run, account) for account in accounts]
        for _ in range(200):
            scheduler.suspend(REASON)
            is_suspended = True
            with slot(scheduler, privileged):
                pass
            is_suspended = False
            scheduler.resume()
        is_over = True
        assert not wait(runs, DEADLINE_S).not_done
    finally:
        is_over = True
        sys.setswitchinterval(interval)
    for each in runs:
        each.result()
    assert not overlooked
    assert (scheduler.running, scheduler.queued) == (0, 0)
