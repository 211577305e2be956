"""How runs of a pool end, and who is kept waiting by that."""

import gc
import queue
import threading
import weakref
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model
from observer import Observer
from waiting import until

from nnrt_client import Hedging, ModelSession, Pool, PooledSession, Runtime, Tensor, UnavailableDevice, load
from nnrt_client.model_session.model_session import executor_of
from nnrt_client.model_session.pool import replicas_of
from nnrt_client.pool.replica import Replica
from nnrt_client.session.session import Session
from pool.conftest import Fleet
from pool.load import addresses, wait_for_states

ONE = np.ones(1, np.float32)
DEADLINE_S = 20.0
FAILING = {"fault": b"first run"}
# More than there are threads for callbacks.
MANY = 16


def all_replicas(session: ModelSession) -> list[Replica]:
    assert isinstance(session, PooledSession)
    return list(replicas_of(session).roster.everywhere)


def test_callbacks_may_wait_for_other_runs(fleet: Fleet) -> None:
    """As they may on one device, also where they keep all threads for callbacks."""
    daemons = fleet(2, "--backend", "steady", "--option", "seconds=0.05")
    outcomes: queue.Queue[Any] = queue.Queue()

    def run_another(_: "Future[Any]") -> None:
        try:
            outcomes.put(session.submit([ONE]).result(DEADLINE_S))
        except Exception as error:
            outcomes.put(error)

    with load(identity_model(), addresses(daemons)) as session:
        for _ in range(MANY):
            session.submit([ONE]).add_done_callback(run_another)
        for _ in range(MANY):
            assert isinstance(outcomes.get(timeout=2 * DEADLINE_S), dict)


def test_a_retry_waits_for_no_callback(fleet: Fleet) -> None:
    """All threads for callbacks are kept by the application while a daemon dies with runs under way."""
    daemons = fleet(2, "--backend", "steady", "--option", "seconds=0.2")
    is_over = threading.Event()
    called = threading.Semaphore(0)

    def wait(_: "Future[Any]") -> None:
        called.release()
        is_over.wait(DEADLINE_S)

    with load(identity_model(), addresses(daemons)) as session:
        try:
            for _ in range(MANY):
                session.submit([ONE]).add_done_callback(wait)
            for _ in range(4):
                assert called.acquire(timeout=DEADLINE_S)
            futures = [session.submit([ONE]) for _ in range(MANY)]
            daemons[0].kill()
            for future in futures:
                assert future.result(DEADLINE_S)
        finally:
            is_over.set()


def test_a_run_that_is_woken_for_nothing_waits_on(fleet: Fleet, start_daemon: StartDaemon) -> None:
    """There was a replica, and when the run looks it is gone again."""
    (daemon,) = fleet(1)
    with Pool([daemon.address]) as pool, pool.load(identity_model(), patience_s=60) as session:
        daemon.kill()
        until(lambda: not session.devices)
        future = session.submit([ONE])
        (run,) = executor_of(session)._dispatcher.runs
        run.link.resume()
        assert not future.done()
        start_daemon("--name", "d0", listen=daemon.address)
        assert future.result(DEADLINE_S)


def test_a_session_that_can_not_be_loaded_again_keeps_no_runs(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with load(identity_model(), daemon.address, on_death="reload") as session:
        daemon.kill()
        until(lambda: not session.device.is_connected)
        for _ in range(3):
            with pytest.raises(UnavailableDevice, match="can't be loaded again"):
                session.submit([ONE]).result(DEADLINE_S)
        assert not executor_of(session)._dispatcher.runs


def test_a_run_with_tensors_that_is_cancelled_ends_with_its_attempt(fleet: Fleet) -> None:
    """Until then its device may write to them."""
    (daemon,) = fleet(1, "--backend", "slow")
    with (
        load(identity_model(elements=1), [daemon.address]) as session,
        Tensor(session.device, session.outputs[0]) as tensor,
        Observer(daemon.address) as observer,
    ):
        (replica,) = all_replicas(session)
        future = session.submit([ONE], outputs={session.outputs[0].name: tensor})
        observer.wait_for(lambda state: state.running == 1)
        under_way: queue.Queue[int] = queue.Queue()
        assert future.cancel()
        future.add_done_callback(lambda _: under_way.put(len(replica.under_way)))
        assert under_way.get(timeout=DEADLINE_S) == 0
        observer.wait_for(lambda state: state.running == 0)


class Watched(np.ndarray[Any, np.dtype[Any]]):
    """An array that can be referred to weakly, and be missed."""


@pytest.mark.parametrize("is_submitted", [False, True])
def test_a_run_that_is_made_again_keeps_no_inputs(fleet: Fleet, is_submitted: bool) -> None:
    daemons = fleet(2, "--backend", "faulty")
    with load(identity_model(), addresses(daemons), extensions=FAILING) as session:
        gc.collect()
        gc.disable()
        try:
            given = ONE.view(Watched)
            reference = weakref.ref(given)
            future = session.submit([given]) if is_submitted else None
            assert session.run([given]) if future is None else future.result(DEADLINE_S)
            del given
            until(lambda: reference() is None)
        finally:
            gc.enable()
        assert any(replica.failures for replica in all_replicas(session))


def test_a_first_run_that_took_long_keeps_nobody_from_the_second(fleet: Fleet) -> None:
    daemons = fleet(2)
    with Pool(addresses(daemons)) as pool, pool.load(identity_model()) as session:
        first, second = all_replicas(session)
        for replica, seconds in ((first, 60.0), (second, 40.0), (first, 1e-3)):
            replicas_of(session).count_run(replica, seconds)
        assert max(first.cost_s, second.cost_s) < 2e-3
        replicas_of(session).count_run(second, 0.5)
        assert first.cost_s < 2e-3 < 0.1 < second.cost_s


def test_a_run_that_was_begun_twice_ends_with_the_better_attempt(start_daemon: StartDaemon) -> None:
    steady = start_daemon("--backend", "steady", "--option", "seconds=0.5")
    faulty = start_daemon("--backend", "faulty")
    with (
        Pool([steady.address, faulty.address]) as pool,
        pool.load(identity_model(), retries=0, hedging=Hedging(after=20.0, budget=1.0), extensions=FAILING) as session,
    ):
        for replica in all_replicas(session) * 2:
            replicas_of(session).count_run(replica, 1e-3 if replica.candidate.address == steady.address else 1e-2)
        assert session.run([ONE])
        assert any(replica.failures for replica in all_replicas(session))


def test_a_device_is_asked_though_a_thread_could_not_be_had(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    (daemon,) = fleet(1)
    start, failed = threading.Thread.start, threading.Event()

    def start_late(thread: threading.Thread) -> None:
        if thread.name.startswith("nnrt-pool-ask") and not failed.is_set():
            failed.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_late)
    with Pool([daemon.address]) as pool:
        wait_for_states(pool, "spare")
    assert failed.is_set()


def test_who_is_interrupted_while_a_device_is_closed_closes_the_others(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = fleet(3)
    close, interrupts = Session.close, iter([KeyboardInterrupt])

    def close_interrupted(session: Session) -> None:
        close(session)
        for interrupt in interrupts:
            raise interrupt

    runtime = Runtime(addresses(daemons))
    devices = runtime.devices()
    monkeypatch.setattr(Session, "close", close_interrupted)
    with pytest.raises(KeyboardInterrupt):
        runtime.close()
    assert not any(device.is_connected for device in devices)
