"""A pool with a device that goes wrong: it gets no runs while it is out, and no run of the pool fails for it."""

import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model
from observer import Observer
from pool.load import RunningThreads
from waiting import until

from canary.faults import FaultyDaemon
from nnrt_client import Member, MemberState, Pool, PooledSession


class Answer(NamedTuple):
    """The end of a run, which began then on the clock of time.monotonic."""

    began: float
    is_right: bool
    error: Exception | None = None


class CheckedLoad(RunningThreads):
    """Keeps each answer, and when it was asked for."""

    def __init__(self, session: PooledSession, threads: int = 3) -> None:
        super().__init__(threads)
        self._session = session
        self.answers: list[Answer] = []

    def wait_for_runs(self, runs: int = 100) -> None:
        """Wait until so many more runs have ended."""
        wanted = len(self.answers) + runs
        until(lambda: len(self.answers) >= wanted)

    def _run(self, number: int) -> None:
        while self._pause():
            given, began = np.array([number, len(self.answers)], np.float32), time.monotonic()
            try:
                (output,) = self._session.run([given]).values()
            except Exception as error:
                self.answers.append(Answer(began, False, error))
            else:
                self.answers.append(Answer(began, np.array_equal(output, given)))


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["wrong", "crash", "stall"])
def test_no_run_fails_and_none_is_wrong_once_the_device_is_out(
    start_daemon: StartDaemon, tmp_path: Path, fault: str
) -> None:
    directories = [tmp_path / name for name in ("ill", "well")]
    for directory in directories:
        directory.mkdir()
    ill, well = (
        FaultyDaemon(start_daemon, directory, "--name", directory.name, "--canary-turn-s", "0.5")
        for directory in directories
    )
    with (
        Observer(ill.address) as observer,
        Pool([ill.address, well.address]) as pool,
        pool.load(identity_model()) as session,
        CheckedLoad(session) as load,
    ):
        load.wait_for_runs()
        ill.switch(fault)
        why = observer.wait_for(lambda state: state.out).out
        out_since = time.monotonic()
        if fault == "stall":  # Runs that are under way end with it.
            ill.switch("")
        else:
            until(lambda: member(pool, ill).state is MemberState.GONE, pool.members)
            assert member(pool, ill).why.count(why.split(":")[0]) == 1
        load.wait_for_runs()
        ill.switch("")
        until(lambda: member(pool, ill).state is MemberState.READY, pool.members)
        runs = member(pool, ill).runs
        until(lambda: member(pool, ill).runs > runs, pool.members)
    assert not [answer.error for answer in load.answers if answer.error]
    wrong = [answer.began for answer in load.answers if not answer.is_right]
    assert bool(wrong) <= (fault == "wrong")
    assert all(began < out_since for began in wrong)


def member(pool: Pool, daemon: FaultyDaemon) -> Member:
    """What the pool says of a daemon."""
    (found,) = (one for one in pool.members() if one.address == daemon.address)
    return found
