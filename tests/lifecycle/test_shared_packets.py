"""Runs that go together in one packet: each has its own end, whatever becomes of the others."""

import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from gate import Gate
from networks import identity_model
from observer import Observer
from recorder import Recorder
from tensor_runs import compiled
from waiting import until

from nnrt_client import Compilation, Executor, OperationFailed, Runtime, TimedOut, UnavailableDevice
from nnrt_client.run import way
from nnrt_client.run.link import Link, LocalLink
from nnrt_client.run.run import Run
from nnrt_client.run.way import SharedWay

DEADLINE_S = 30.0
LONG_MS = 600_000
MANY = 10


def one_of(number: int) -> list[Any]:
    return [np.full(4, number, np.float32)]


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> list[Link]:
    """The links on which runs of sessions share packets."""
    open_link, links = SharedWay.connect, list[Link]()

    def opened(way: SharedWay) -> Link:
        links.append(open_link(way))
        return links[-1]

    monkeypatch.setattr(SharedWay, "connect", opened)
    return links


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, shared: list[Link]) -> list[int]:
    """How many runs there were in each packet of a shared link, on which they go however long they took before."""
    monkeypatch.setattr(way, "_SHARED_LINKS", 1)
    monkeypatch.setattr(way, "_LATE_S", 1e6)
    monkeypatch.setattr(way, "_MOST_NS", 1 << 62)
    monkeypatch.setattr(way, "_PACKET_NS", 1 << 62)
    send, sizes = LocalLink.send, list[int]()

    def sent(link: LocalLink, runs: Sequence[Run]) -> None:
        if link in shared:
            sizes.append(len(runs))
        send(link, runs)

    monkeypatch.setattr(LocalLink, "send", sent)
    return sizes


@pytest.fixture
def daemon(start_daemon: StartDaemon, gate: Gate) -> DaemonProcess:
    return start_daemon("--backend", "gated", "--option", f"gate={gate.path}")


@pytest.fixture
def executor(closing: ExitStack, daemon: DaemonProcess, sent: list[int]) -> Executor:
    _, executor = compiled(closing, daemon.address)
    executor.run_sync(one_of(0))
    executor.run_sync(one_of(-1))  # Tells how long a run of its kind takes.
    return executor


class UnderWay:
    """A packet of many runs, of which the daemon makes the first."""

    def __init__(self, executor: Executor, gate: Gate, sent: list[int], daemon: DaemonProcess, **given: int) -> None:
        """`given` are the timeouts of some."""
        timeouts = {int(name.removeprefix("ms_")): timeout_ms for name, timeout_ms in given.items()}
        gate.shut()
        first = executor.submit(one_of(1000))
        until(lambda: "run started with 1000" in daemon.log())
        self.runs: list[Future[Any]] = [
            executor.submit(one_of(number), timeout_ms=timeouts.get(number)) for number in range(MANY)
        ]
        gate.let_through()
        assert first.result(DEADLINE_S)[0].tolist() == [1000.0] * 4
        until(lambda: daemon.log().count("run started with 0") == 2)  # One was before.
        assert sent == [1, MANY]

    def require_results(self, *but: int) -> None:
        for number, run in enumerate(self.runs):
            if number not in but:
                assert run.result(DEADLINE_S)[0].tolist() == [float(number)] * 4


def test_runs_that_wait_go_together(executor: Executor, gate: Gate, sent: list[int], daemon: DaemonProcess) -> None:
    under_way = UnderWay(executor, gate, sent, daemon)
    gate.release(lambda: all(run.done() for run in under_way.runs))
    under_way.require_results()
    times = [run.result().times for run in under_way.runs]
    assert all(each.computed_ns for each in times)
    for number in range(3):  # The session goes on.
        assert executor.run_sync(one_of(number))[0].tolist() == [float(number)] * 4


def test_a_run_that_is_cancelled(executor: Executor, gate: Gate, sent: list[int], daemon: DaemonProcess) -> None:
    """Ends at once, before those that are ahead of it."""
    under_way = UnderWay(executor, gate, sent, daemon)
    for number in (0, 5):
        assert under_way.runs[number].cancel()
        with pytest.raises(CancelledError):
            under_way.runs[number].result(DEADLINE_S)
    gate.release(lambda: all(run.done() for run in under_way.runs))
    under_way.require_results(0, 5)


def test_a_run_whose_time_is_over(executor: Executor, gate: Gate, sent: list[int], daemon: DaemonProcess) -> None:
    under_way = UnderWay(executor, gate, sent, daemon, ms_3=1500, ms_4=LONG_MS)
    with pytest.raises(TimedOut):
        under_way.runs[3].result(DEADLINE_S)
    assert not under_way.runs[4].done()
    gate.release(lambda: all(run.done() for run in under_way.runs))
    under_way.require_results(3)
    assert "run started with 3" not in daemon.log()


def test_a_daemon_that_dies(executor: Executor, gate: Gate, sent: list[int], daemon: DaemonProcess) -> None:
    """Ends each of its runs once."""
    recorder = Recorder()
    recorder.watch(executor)
    under_way = UnderWay(executor, gate, sent, daemon)
    for number in range(MANY):
        executor.run_async(one_of(number), timeout_ms=LONG_MS, user_data=number)
    daemon.kill()
    for run in under_way.runs:
        with pytest.raises(UnavailableDevice):
            run.result(DEADLINE_S)
    recorder.wait(MANY)
    assert recorder.died == dict.fromkeys(range(MANY), 1)


def test_an_executor_that_is_closed(executor: Executor, gate: Gate, sent: list[int], daemon: DaemonProcess) -> None:
    under_way = UnderWay(executor, gate, sent, daemon)
    executor.close()
    for run in under_way.runs:
        with pytest.raises(OperationFailed, match="closed"):
            run.result(DEADLINE_S)


def test_a_connection_that_breaks(
    executor: Executor, gate: Gate, shared: list[Link], sent: list[int], daemon: DaemonProcess
) -> None:
    """Each run's reply is fetched, whether it was made before or is made after."""
    under_way = UnderWay(executor, gate, sent, daemon)
    (link,) = shared
    assert under_way.runs[1].cancel()
    link.end()
    until(lambda: not link.under_way)
    gate.release(lambda: all(run.done() for run in under_way.runs))
    under_way.require_results(1)
    for number in range(2, MANY):
        assert daemon.log().count(f"run started with {number}.0\n") == 1
    assert daemon.log().count("run started with 0.0\n") == 2  # One was before.
    assert executor.submit(one_of(7)).result(DEADLINE_S)[0].tolist() == [7.0] * 4


def test_a_reply_that_makes_no_sense(
    executor: Executor, gate: Gate, sent: list[int], daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks the connection, as far as runs have not been answered."""
    under_way = UnderWay(executor, gate, sent, daemon)
    take, cut, forged = LocalLink.take, [8], list[LocalLink]()

    def cut_short(link: LocalLink, packet: bytes) -> None:
        if cut:
            forged.append(link)
            packet = packet[: -cut.pop()]
        take(link, packet)

    monkeypatch.setattr(LocalLink, "take", cut_short)
    gate.release(lambda: all(run.done() for run in under_way.runs))
    under_way.require_results()
    (link,) = forged
    assert link.is_over


def test_threads_and_the_main_thread(executor: Executor, sent: list[int]) -> None:
    """Every run has its own outputs, however they went."""
    wrong: list[Any] = []

    def make(first: int) -> None:
        for start in range(first, first + 200, 20):
            numbers = range(start, start + 20)
            runs = [executor.submit(one_of(number)) for number in numbers]
            wrong.extend(number for number in numbers[:3] if executor.run_sync(one_of(number))[0][0] != number)
            wrong.extend(n for n, run in zip(numbers, runs, strict=True) if run.result(DEADLINE_S)[0][0] != n)

    threads = [threading.Thread(target=make, args=(first,)) for first in (1000, 2000, 3000)]
    for thread in threads:
        thread.start()
    make(0)
    for thread in threads:
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert not wrong
    # With those of a thread that found no link of its own.
    assert 4 * 200 <= sum(sent) <= 4 * 200 + 30 and max(sent) > 1


def test_long_runs_go_each_by_itself(closing: ExitStack, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """As many at a time as the device makes: none waits in the client for what could be made beside it."""
    pipe = Gate(tmp_path)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={pipe.path}", "--concurrent-runs", "4")
    _, executor = compiled(closing, daemon.address)
    observer = closing.enter_context(Observer(daemon.address))
    executor.run_sync(one_of(0))
    pipe.shut()
    unforeseen = [executor.submit(one_of(0))]
    observer.wait_for(lambda state: state.running == 1)
    unforeseen += [executor.submit(one_of(number)) for number in range(1, 4)]
    observer.wait_for(lambda state: state.running == 4)
    pipe.release(lambda: all(run.done() for run in unforeseen))
    assert [run.result(DEADLINE_S)[0][0] for run in unforeseen] == [0, 1, 2, 3]
    pipe.shut()
    runs = [executor.submit(one_of(number)) for number in range(4)]
    observer.wait_for(lambda state: state.running == 4)
    pipe.release(lambda: all(run.done() for run in runs))
    assert [run.result(DEADLINE_S)[0][0] for run in runs] == [0, 1, 2, 3]


def test_a_model_whose_runs_are_joined(start_daemon: StartDaemon, sent: list[int]) -> None:
    daemon = start_daemon("--batch", "8")
    with (
        Runtime([daemon.address]) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
    ):
        compilation.build()
        with Executor(compilation) as executor:
            executor.run_sync([np.zeros(1, np.float32)])
            for _ in range(20):
                inputs = [np.full(1, number, np.float32) for number in range(40)]
                runs = [executor.submit([given]) for given in inputs]
                for given, run in zip(inputs, runs, strict=True):
                    np.testing.assert_array_equal(run.result(DEADLINE_S)[0], given)
    assert max(sent) > 1
