"""A run waits for nothing that only concerns another one: its inputs, a connection for it, or what its end leads to."""

import threading
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import StartDaemon
from networks import identity_model
from observer import Observer
from tensor_runs import compiled

from nnrt_client import (
    Settings,
    TimedOut,
    UnavailableDevice,
    load,
)

ONE = np.ones(1, np.float32)
# Too large for a packet, so that memory must be shared.
LARGE = np.ones(1 << 16, np.float32)
MIB = 1 << 20
DEADLINE_S = 20.0
# More than a session has streams.
_MANY = 16

on_each_carrier = pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])


@on_each_carrier
@pytest.mark.parametrize("given_up_by", ["cancel", "timeout"])
def test_a_daemon_that_stops_while_a_run_gets_its_turn(
    start_daemon: StartDaemon, closing: ExitStack, share_memory: bool, given_up_by: str
) -> None:
    """Another run is begun all the same, and its time ends."""
    daemon = start_daemon("--backend", "slow", "--session-streams", "3")
    # Nothing that waits for the daemon ends while this test lasts.
    patient = Settings(share_memory=share_memory, heartbeat_timeout_s=600, verdict_timeout_s=600, query_timeout_s=600)
    _, executor = compiled(closing, daemon.address, settings=patient)
    with Observer(daemon.address) as observer:
        first = executor.submit([ONE], timeout_ms=1000 if given_up_by == "timeout" else None)
        observer.wait_for(lambda state: state.running == 1)
    turns = [executor.submit([LARGE]) for _ in range(3)]
    daemon.stop()
    closing.callback(daemon.kill)
    if given_up_by == "cancel":
        cancelling = BlockedCall(first.cancel)
        closing.callback(cancelling.wait)
    else:
        assert isinstance(first.exception(DEADLINE_S), TimedOut)
    began: Future[Any] = Future()
    small = BlockedCall(lambda: began.set_result(executor.submit([ONE], timeout_ms=200)))
    closing.callback(small.wait)
    assert isinstance(began.result(DEADLINE_S).exception(DEADLINE_S), TimedOut)
    assert not any(turn.done() for turn in turns)


@on_each_carrier
def test_a_run_that_waits_beside_endless_ones(
    start_daemon: StartDaemon, closing: ExitStack, share_memory: bool
) -> None:
    """Its time ends though it has no stream, whichever thread has begun it, and the first run that has a limit."""
    daemon = start_daemon("--backend", "slow", "--session-streams", "3")
    _, executor = compiled(closing, daemon.address, settings=Settings(share_memory=share_memory))
    endless = BlockedCall(lambda: executor.submit([ONE]).exception(6 * DEADLINE_S))
    closing.callback(endless.wait)
    closing.callback(executor.close)
    with Observer(daemon.address) as observer:
        observer.wait_for(lambda state: state.running == 1)
    told: Future[Any] = Future()

    def run() -> None:
        try:
            executor.run_sync([ONE], timeout_ms=200)
        except BaseException as error:
            told.set_result(error)

    closing.callback(BlockedCall(run).wait)
    closing.callback(executor.close)
    assert isinstance(told.result(DEADLINE_S), TimedOut)


@on_each_carrier
def test_a_callback_that_does_not_return(start_daemon: StartDaemon, closing: ExitStack, share_memory: bool) -> None:
    """Other runs have their results, whoever waits for them."""
    daemon = start_daemon("--backend", "steady", "--option", "seconds=0.1", "--concurrent-runs", "8")
    _, executor = compiled(closing, daemon.address, settings=Settings(share_memory=share_memory))
    entered, may_return = threading.Semaphore(0), threading.Event()

    def wait(_: object) -> None:
        entered.release()
        may_return.wait(6 * DEADLINE_S)

    closing.callback(may_return.set)
    stuck = [executor.submit([ONE]) for _ in range(3)]
    for run in stuck:
        BlockedCall(partial(run.add_done_callback, wait))  # Which makes the call where the run has ended.
    assert entered.acquire(timeout=DEADLINE_S)
    for number, other in enumerate([executor.submit([ONE * number]) for number in range(_MANY)]):
        np.testing.assert_array_equal(other.result(DEADLINE_S)[0], ONE * number)
    np.testing.assert_array_equal(executor.run_sync([ONE], timeout_ms=20_000)[0], ONE)
    assert [run.result(DEADLINE_S)[0] for run in stuck] == [1, 1, 1]


def test_large_tensors_count_as_what_they_have(start_daemon: StartDaemon, closing: ExitStack) -> None:
    """In shared memory too: those of a session with room for little more travel there."""
    size = 36 * MIB  # A power of two would be almost twice that.
    daemon = start_daemon("--session-bytes", str(80 * MIB), "--verbose")
    _, executor = compiled(closing, daemon.address, identity_model(elements=size // 4))
    array = np.arange(size // 4, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_array_equal(executor.run_sync([array])[0], array)
    assert "RunStream" not in daemon.log(), "it went over gRPC"


# ---- who has died


def test_a_backend_that_fails_is_no_death(start_daemon: StartDaemon) -> None:
    """Its next run works, in the same session."""
    daemon = start_daemon("--backend", "faulty")
    with load(identity_model(elements=1), daemon.address, cache=False, extensions={"fault": b"first run"}) as session:
        with pytest.raises(UnavailableDevice) as told:
            session.run([ONE])
        assert "session has ended" not in str(told.value)
        np.testing.assert_array_equal(next(iter(session.run([ONE]).values())), ONE)
        error = session.submit([ONE]).exception(DEADLINE_S)
        assert error is None


def test_a_backend_that_fails_each_time_is_no_death(start_daemon: StartDaemon) -> None:
    """However a run was begun; that the daemon has died is said when it has."""
    daemon = start_daemon("--backend", "faulty")
    with load(identity_model(elements=1), daemon.address, cache=False, extensions={"fault": b"run"}) as session:
        for _ in range(2):
            error = session.submit([ONE]).exception(DEADLINE_S)
            assert isinstance(error, UnavailableDevice)
            assert "session has ended" not in str(error)
            with pytest.raises(UnavailableDevice, match="the device failed to run the model") as told:
                session.run([ONE])
            assert "session has ended" not in str(told.value)
        daemon.kill()
        with pytest.raises(UnavailableDevice, match=r"it is gone.*load the model again"):
            session.run([ONE])
