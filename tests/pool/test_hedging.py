"""Runs that take long are begun on a second device; the first reply counts."""

import threading

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model
from observer import Observer

from nnrt_client import Hedging, InvalidParameter, Pool
from nnrt_client.pool.hedging import Hedger
from nnrt_client.session.io_loop import io_loop
from pool.conftest import Fleet

ONE = np.ones(1, np.float32)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["run", "submit"])
def test_the_first_reply_counts(fleet: Fleet, start_daemon: StartDaemon, asynchronous: bool) -> None:
    """The slow device's runs end only by cancellation: each that it gets is made by the other one, and ended there."""
    (good,) = fleet(1)
    slow = start_daemon("--backend", "slow")
    with (
        Pool([good.address, slow.address]) as pool,
        pool.load(identity_model(), hedging=Hedging(after=50, budget=1)) as session,
        Observer(slow.address) as observer,
    ):
        for number in range(4):
            given = [ONE * number]
            outputs = session.submit(given).result(20) if asynchronous else session.run(given)
            assert [output.tolist() for output in outputs.values()] == [[number]]
        observer.wait_for(lambda state: (state.running, state.queued) == (0, 0))
        runs = {member.address: member.runs for member in pool.members()}
    assert runs[good.address] == 4
    assert runs[slow.address] >= 1


class _Run:
    """Counts how often it is begun twice."""

    def __init__(self) -> None:
        self.count = 0

    def hedge(self) -> bool:
        self.count += 1
        return True


def await_the_loop() -> None:
    """Wait until what is due in a moment has been done."""
    done, loop = threading.Event(), io_loop()
    loop.call(loop.events.call_later, 0.02, done.set)
    assert done.wait(20)


def test_the_budget() -> None:
    """One run in ten, however many take long; what is not used is saved for ten at most."""
    run = _Run()
    with Hedger(Hedging(after=0.001, budget=0.1)) as hedger:
        for ended in (100, 1000):
            before = run.count
            for _ in range(ended):
                hedger.count_run(0.001)
            for _ in range(50):
                hedger.watch(run)
            await_the_loop()
            assert run.count - before <= 11
        assert run.count >= 19


def test_nothing_is_begun_twice_before_a_percentile_is_known() -> None:
    run = _Run()
    with Hedger(Hedging("p50")) as hedger:
        for _ in range(19):
            hedger.count_run(1.0)
        hedger.watch(run)
        await_the_loop()
    assert not run.count


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"after": "p100"}, "after is 'p100'"),
        ({"after": "95"}, "after is '95'; use a percentile"),
        ({"after": 0}, "after is 0"),
        ({"after": True}, "after is True"),
        ({"budget": 0}, "budget is 0; use a number above 0"),
        ({"budget": 1.5}, "budget is 1.5"),
    ],
)
def test_what_is_no_hedging(wrong: dict[str, float], why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        Hedging(**wrong)
