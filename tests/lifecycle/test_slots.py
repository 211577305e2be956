"""Whose run is next on a daemon that has more than enough to do."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from networks import identity_model
from observer import Observer
from recorder import Recorder

from nnrt_client import Compilation, Executor, OutOfMemory, Priority, Runtime, TimedOut
from nnrt_hdi.backend import DeviceState

ONE = np.ones(1, np.float32)
LONG_MS = 600_000


@contextmanager
def client(address: str, priority: Priority = Priority.NONE) -> Iterator[Executor]:
    """A session of its own, with a model of that priority."""
    with Runtime([address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.set_priority(priority)
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A run of the backend `gated` ends when this is opened for writing and closed."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def at_daemon(runs: int) -> Callable[[DeviceState], bool]:
    """Tell if one of that many runs is on the device, and the others wait for it."""
    return lambda state: (state.running, state.queued) == (1, runs - 1)


def test_high_overtakes_all_that_wait(start_daemon: StartDaemon, gate: Path) -> None:
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}", "--priority-ageing-s", "600")
    recorder = Recorder()
    with (
        Observer(daemon.address) as observer,
        client(daemon.address, Priority.LOW) as low,
        client(daemon.address, Priority.HIGH) as high,
    ):
        recorder.watch(low), recorder.watch(high)
        for number in range(5):
            low.run_async([ONE], timeout_ms=LONG_MS, user_data=f"low {number}")
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 4))
        high.run_async([ONE], timeout_ms=LONG_MS, user_data="high")
        observer.wait_for(lambda state: state.queued == 5)
        for ended in range(6):
            gate.write_bytes(b"")
            recorder.wait(ended + 1)
    assert list(recorder.done).index("high") == 1
    assert all(error is None for ((_, error),) in recorder.done.values())


def test_high_overtakes_what_waits_in_the_client(start_daemon: StartDaemon, gate: Path) -> None:
    """An application with more runs of low priority than streams: the next but one to end is of high priority."""
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}", "--priority-ageing-s", "600")
    recorder = Recorder()
    with Observer(daemon.address) as observer, Runtime([daemon.address]) as runtime, ExitStack() as stack:
        executors = {}
        for priority in (Priority.LOW, Priority.HIGH):
            compilation = stack.enter_context(Compilation(identity_model(), runtime.device()))
            compilation.set_priority(priority)
            compilation.build()
            executors[priority] = stack.enter_context(Executor(compilation))
            recorder.watch(executors[priority])
        for number in range(12):
            executors[Priority.LOW].run_async([ONE], timeout_ms=LONG_MS, user_data=number)
        observer.wait_for(at_daemon(6))
        executors[Priority.HIGH].run_async([ONE], timeout_ms=LONG_MS, user_data="high")
        for ended in range(13):
            observer.wait_for(at_daemon(min(6, 13 - ended)))
            gate.write_bytes(b"")
            recorder.wait(ended + 1)
    assert list(recorder.done).index("high") == 2


def test_low_gets_on_under_a_flood_of_high(start_daemon: StartDaemon, gate: Path) -> None:
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}", "--priority-ageing-s", "0.05")
    recorder = Recorder()
    with (
        Observer(daemon.address) as observer,
        client(daemon.address, Priority.LOW) as low,
        client(daemon.address, Priority.HIGH) as high,
    ):
        recorder.watch(low), recorder.watch(high)
        for number in range(5):
            high.run_async([ONE], timeout_ms=LONG_MS, user_data=number)
        observer.wait_for(lambda state: state.queued == 4)
        low.run_async([ONE], timeout_ms=LONG_MS, user_data="low")
        observer.wait_for(lambda state: state.queued == 5)
        for number in range(5, 100_000):
            gate.write_bytes(b"")
            recorder.wait(number - 4)
            if "low" in recorder.done:
                break
            high.run_async([ONE], timeout_ms=LONG_MS, user_data=number)
            observer.wait_for(lambda state: state.queued == 5)
        assert observer.state().queued >= 3
        for _ in range(4):
            done = recorder.count
            gate.write_bytes(b"")
            recorder.wait(done + 1)
    assert recorder.outputs("low") == [ONE]


@pytest.mark.parametrize("same_user", [True, False])
def test_equal_shares(start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch, same_user: bool) -> None:
    """Of two clients, of which one has four runs at the device and the other thirty: in their order, it got a ninth.

    The exact rule is proven in test_shares.py, on a clock that no busy machine disturbs.
    """
    daemon = start_daemon("--backend", "steady", "--option", "seconds=0.02", "--session-streams", "32")
    order, enough = list[int](), threading.Event()

    def keep_running(number: int, executor: Executor) -> None:
        while not enough.is_set():
            executor.run_sync([ONE])
            order.append(number)
            if 0 in order and len(order) >= order.index(0) + 40:
                enough.set()

    with ExitStack() as stack:
        executors = []
        for uid in (4001, 4001 if same_user else 4002):
            monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
            executors.append(stack.enter_context(client(daemon.address)))
        with ThreadPoolExecutor(34) as pool:
            for number, in_flight in ((1, 30), (0, 4)):
                for _ in range(in_flight):
                    pool.submit(keep_running, number, executors[number])
    since_both = order[order.index(0) :][:40]
    assert min(since_both.count(0), since_both.count(1)) >= 12


def test_priorities_order_only_the_runs_of_one_user(
    start_daemon: StartDaemon, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two users the one with HIGH gets no more than the other."""
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}", "--priority-ageing-s", "600")
    recorder = Recorder()
    with ExitStack() as stack:
        observer = stack.enter_context(Observer(daemon.address))
        first = stack.enter_context(client(daemon.address))
        recorder.watch(first)
        first.run_async([ONE], timeout_ms=LONG_MS, user_data="first")
        for queued, (uid, priority) in enumerate(((4001, Priority.LOW), (4002, Priority.HIGH)), 1):
            monkeypatch.setattr(os, "getuid", lambda uid=uid: uid)
            executor = stack.enter_context(client(daemon.address, priority))
            recorder.watch(executor)
            executor.run_async([ONE], timeout_ms=LONG_MS, user_data=priority)
            observer.wait_for(lambda state, queued=queued: state.queued == queued)  # type: ignore[misc]
        for ended in range(3):
            gate.write_bytes(b"")
            recorder.wait(ended + 1)
    assert list(recorder.done) == ["first", Priority.LOW, Priority.HIGH]


def test_too_many_waiting(start_daemon: StartDaemon, gate: Path) -> None:
    """One more is refused at once; those that wait are not touched, and then there is room again."""
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}", "--queued-runs", "2")
    recorder = Recorder()
    with Observer(daemon.address) as observer, client(daemon.address) as executor:
        recorder.watch(executor)
        for number in range(3):
            executor.run_async([ONE], timeout_ms=LONG_MS, user_data=number)
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 2))
        with pytest.raises(OutOfMemory, match=r"2 runs wait for the device, its limit; .* --queued-runs"):
            executor.run_sync([ONE])
        for ended in range(3):
            gate.write_bytes(b"")
            recorder.wait(ended + 1)
        executor.run_async([ONE], timeout_ms=LONG_MS, user_data=3)
        gate.write_bytes(b"")
        recorder.wait(4)
    assert all(recorder.outputs(number) == [ONE] for number in range(4))


def test_an_expired_run_never_starts(start_daemon: StartDaemon, gate: Path) -> None:
    """Not even one that would have been next."""
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    recorder = Recorder()
    with (
        Observer(daemon.address) as observer,
        client(daemon.address) as first,
        client(daemon.address, Priority.HIGH) as high,
    ):
        recorder.watch(first)
        first.run_async([ONE * 2], timeout_ms=LONG_MS, user_data="first")
        observer.wait_for(lambda state: state.running == 1)
        first.run_async([ONE * 3], timeout_ms=LONG_MS, user_data="second")
        observer.wait_for(lambda state: state.queued == 1)
        with pytest.raises(TimedOut):
            high.run_sync([ONE * 4], timeout_ms=50)
        observer.wait_for(lambda state: state.queued == 1)
        for ended in range(2):
            gate.write_bytes(b"")
            recorder.wait(ended + 1)
        observer.wait_for(lambda state: (state.running, state.queued) == (0, 0))
    started = [line.rpartition(" ")[2] for line in daemon.log().splitlines() if "run started with" in line]
    assert started == ["2.0", "3.0"]
