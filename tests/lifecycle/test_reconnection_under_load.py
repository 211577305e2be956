"""Connections that break again and again under load: callers see only errors of ours, and the daemon keeps nothing."""

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model
from observer import Observer
from part import examples
from proxy import Proxy
from tensor_runs import compiled
from typing_extensions import Self
from waiting import until

from nnrt_client import ConnectionFailed, Device, Executor, NnrtError, Settings
from nnrt_client.session.session import Session

DEADLINE_S = 20.0
CUTS = examples(30)
LONG_LEASE = ("--lease-s", "60")
# More than a session has streams.
_MANY = 16

on_each_carrier = pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])


class Load:
    """Threads that call again and again. What a call raises is kept, unless it is an NnrtError."""

    def __init__(self, calls: list[Callable[[], object]]) -> None:
        self.faults: list[BaseException] = []
        self.ended = [0] * len(calls)
        self._ends = False
        self._changed = threading.Condition()
        self._threads = [threading.Thread(target=self._repeat, args=pair) for pair in enumerate(calls)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends = True
        for thread in self._threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive(), "a call does not end"

    def wait_for_progress(self) -> None:
        """Wait until every thread has ended a call that it began after this."""
        before = list(self.ended)
        with self._changed:
            assert self._changed.wait_for(
                lambda: self.faults or all(now > then + 1 for now, then in zip(self.ended, before, strict=True)),
                DEADLINE_S,
            ), f"a call does not end: {before} had ended, now {self.ended}"

    def _repeat(self, at: int, call: Callable[[], object]) -> None:
        while not self._ends:
            try:
                call()
            except NnrtError:
                pass
            except BaseException as error:
                self.faults.append(error)
            with self._changed:
                self.ended[at] += 1
                self._changed.notify_all()


@contextmanager
def behind_a_proxy(
    daemon_address: str, share_memory: bool, elements: int
) -> Iterator[tuple[Proxy, Device, Executor, Observer]]:
    settings = Settings(share_memory=share_memory, reconnect_timeout_s=DEADLINE_S)
    with ExitStack() as closing:
        proxy = closing.enter_context(Proxy(daemon_address))
        observer = closing.enter_context(Observer(daemon_address))
        device, executor = compiled(closing, proxy.address, identity_model(elements=elements), settings)
        yield proxy, device, executor, observer


def run_once(executor: Executor, numbers: Iterator[int], elements: int, starts: bool) -> None:
    array = np.full(elements, next(numbers), np.float32)
    (output,) = executor.submit([array]).result(DEADLINE_S) if starts else executor.run_sync([array])
    np.testing.assert_array_equal(output, array)


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns all the time, so that what can happen between two steps does."""
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


@on_each_carrier
def test_callers_see_errors_of_ours(start_daemon: StartDaemon, share_memory: bool, restless: None) -> None:
    """Of calls that begin at once on the channel that takes the place of a lost one, too."""
    daemon = start_daemon(*LONG_LEASE)
    with behind_a_proxy(daemon.address, share_memory, 4) as (proxy, device, executor, _):
        numbers = count()
        run, submit = (partial(run_once, executor, numbers, 4, starts) for starts in (False, True))
        with Load([*[device.status] * 32, run, run, submit, submit]) as load:
            for _ in range(CUTS):
                proxy.cut()
                load.wait_for_progress()
        assert [repr(fault) for fault in load.faults] == []


@on_each_carrier
def test_no_reply_is_kept_for_nobody(start_daemon: StartDaemon, share_memory: bool) -> None:
    """When everything has been answered, the daemon holds what it held before the first connection broke."""
    daemon = start_daemon(*LONG_LEASE)
    elements = 1 << 11 if share_memory else 1 << 16
    with behind_a_proxy(daemon.address, share_memory, elements) as (proxy, _, executor, observer):
        array, numbers = np.zeros(elements, np.float32), count()
        many(executor, array)
        held_bytes = observer.wait_for(lambda state: not state.running).held_bytes
        with Load([partial(run_once, executor, numbers, elements, starts) for starts in 4 * (False, True)]) as load:
            for _ in range(CUTS):
                proxy.cut()
                load.wait_for_progress()
        assert [repr(fault) for fault in load.faults] == []
        many(executor, array)
        observer.wait_for(lambda state: not state.running and state.held_bytes <= held_bytes)


@on_each_carrier
def test_a_reply_that_has_come_is_not_kept_because_of_a_slow_callback(
    start_daemon: StartDaemon, share_memory: bool
) -> None:
    """It is still in that of one run when the next one has come on the same stream, which then breaks."""
    daemon = start_daemon("--session-streams", "3", *LONG_LEASE)
    elements = 1 << 12  # More than what the daemon keeps of plans.
    with behind_a_proxy(daemon.address, share_memory, elements) as (proxy, device, executor, observer):
        array = np.zeros(elements, np.float32)
        for _ in range(5):
            first, second = executor.submit([array]), executor.submit([array])
            called_back = threading.Event()

            def wait_for_the_second(_: object, second: Any = second, called_back: Any = called_back) -> None:
                wait((second,), 2)
                called_back.set()

            first.add_done_callback(wait_for_the_second)
            assert called_back.wait(DEADLINE_S)
            second.result(DEADLINE_S)
            proxy.cut()
            device.status()  # Waits until the daemon is found again.
        observer.wait_for(lambda state: state.held_bytes < array.nbytes)


@on_each_carrier
def test_a_reply_is_given_up_though_saying_so_fails(
    start_daemon: StartDaemon, share_memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as where the connection breaks again each time."""
    daemon = start_daemon(*LONG_LEASE)
    elements = 1 << 12  # More than what the daemon keeps of plans.
    failures, call = list[str](), Session.call

    def broken_at_first(session: Session, name: str, *arguments: Any) -> Any:
        if name == "PreparedModel.CancelRuns" and len(failures) < 3:
            failures.append(name)
            raise ConnectionFailed("it breaks")
        return call(session, name, *arguments)

    monkeypatch.setattr(Session, "call", broken_at_first)
    with behind_a_proxy(daemon.address, share_memory, elements) as (proxy, device, executor, observer):
        run_once(executor, count(), elements, starts=False)
        proxy.cut()
        device.status()  # Waits until the daemon is found again.
        until(lambda: len(failures) == 3)
        observer.wait_for(lambda state: state.held_bytes < elements * np.float32().nbytes)


def many(executor: Executor, array: Any) -> None:
    for run in [executor.submit([array]) for _ in range(_MANY)]:
        run.result(DEADLINE_S)
