"""The steps by which a daemon looks after itself: none of them stops another one."""

import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hanging_steps
import numpy as np
import pytest
from access.conftest import Access
from conftest import StartDaemon
from daemon_process import DaemonProcess
from listener import Listener
from networks import identity_model
from waiting import until

from nnrt_client import Compilation, Executor, NnrtError, Runtime
from nnrt_device_service.host import rounds as rounds_module
from nnrt_device_service.host.rounds import Rounds
from nnrt_device_service.transport.signs import SignsOfLife

SOON_S = 0.001
LONG_S = 600.0


@pytest.fixture
def stopped() -> Iterator[threading.Event]:
    stopped = threading.Event()
    yield stopped
    stopped.set()


def hanging_daemon(*steps: str, flags: tuple[str, ...] = ()) -> DaemonProcess:
    return DaemonProcess(*flags, through=(sys.executable, hanging_steps.__file__, ",".join(steps)))


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_a_step_that_hangs_and_one_that_fails(
    stopped: threading.Event, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    rounds, failed, taken = Rounds(SOON_S, LONG_S, stopped), list[int](), list[int]()

    def fail() -> None:
        failed.append(0)
        raise kind("a mistake")

    rounds.take("hanging", stopped.wait)
    rounds.take("failing", fail)
    rounds.take("sound", lambda: taken.append(0))
    until(lambda: len(failed) > 3 and len(taken) > 3)
    assert "the step 'failing' failed" in caplog.text
    until(lambda: rounds.hanging(0.1) == ["hanging"])


def test_a_round_after_a_standstill(stopped: threading.Event) -> None:
    """Whom nobody could hear isn't hung up."""
    rounds, taken = Rounds(SOON_S, -LONG_S, stopped), list[str]()
    rounds.take("silence", lambda: taken.append("hung up"), after_standstill=lambda: taken.append("forgiven"))
    until(lambda: len(taken) > 3)
    assert set(taken) == {"forgiven"}


@dataclass
class Clock:
    """Stands in for the module `time` of the rounds; goes on when a test says so."""

    now: float = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(rounds_module, "time", clock)
    return clock


def test_a_standstill_within_a_step(stopped: threading.Event, clock: Clock) -> None:
    """The next round notices, and the one after it goes on as ever."""
    rounds, taken = Rounds(SOON_S, 1.0, stopped), list[str]()

    def hang_up() -> None:
        clock.now += 0.0 if taken else LONG_S
        taken.append("hung up")

    rounds.take("silence", hang_up, after_standstill=lambda: taken.append("forgiven"))
    until(lambda: len(taken) > 2)
    assert taken[:3] == ["hung up", "forgiven", "hung up"]


def test_a_step_that_waits_for_its_round_does_not_hang(stopped: threading.Event, clock: Clock) -> None:
    rounds, ended = Rounds(LONG_S, LONG_S, stopped), Rounds(SOON_S, LONG_S, stopped)
    taken = list[int]()
    rounds.take("waiting", lambda: None)
    ended.take("taken", lambda: taken.append(0))
    until(lambda: taken)
    clock.now = 10 * LONG_S
    assert not rounds.hanging(1.0)
    until(lambda: not ended.hanging(1.0))


class SomeRounds(Rounds):
    """Of which a test says what hangs."""

    names: tuple[str, ...] = ()

    def hanging(self, after_s: float) -> list[str]:
        return list(self.names)


def test_signs_of_life_while_all_steps_turn(stopped: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    rounds, told = SomeRounds(SOON_S, LONG_S, stopped), list[int]()
    signs = SignsOfLife(rounds, 1e-9, lambda: told.append(0))
    signs.check()
    rounds.names = ("leases",)
    for _ in range(3):
        signs.check()
    assert len(told) == 1
    assert caplog.text.count("a step of the watch hangs (leases)") == 1
    rounds.names = ()
    signs.check()
    assert len(told) == 2


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listener]:
    """Of a supervisor that wants signs of life."""
    path = str(tmp_path / "notify")
    listener = Listener(path)
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "1000000")
    yield listener
    listener.close()


def test_a_supervisor_gets_no_sign_of_life(listener: Listener) -> None:
    daemon = hanging_daemon("silence")
    try:
        until(lambda: "a step of the watch hangs (silence)" in daemon.log())
        listener.drain()
        with pytest.raises(TimeoutError):
            listener.next("WATCHDOG", patience_s=1.0)
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
    finally:
        daemon.kill()


def test_signs_of_life_after_a_standstill(listener: Listener, start_daemon: StartDaemon) -> None:
    """Nothing hangs that could not go on."""
    daemon = start_daemon("--heartbeat-timeout-s", "1")
    listener.next("WATCHDOG")
    daemon.stop()
    listener.drain()
    with pytest.raises(TimeoutError):
        listener.next("WATCHDOG", patience_s=1.0)
    daemon.send(signal.SIGCONT)
    listener.next("WATCHDOG")
    assert "hangs" not in daemon.log()


def test_a_line_taken_out_counts_whatever_hangs(tmp_path: Path) -> None:
    access = Access(tmp_path)
    alice, carol = access.add("alice", "compile"), access.add("carol", "compile")
    others = (
        "serving", "store", "work", "memory", "inputs", "cut-off", "silence", "leases", "refusals", "log", "life",
    )  # fmt: skip
    daemon = hanging_daemon(*others, flags=("--access", str(access.path)))
    try:
        with Runtime([daemon.address], alice) as runtime, Runtime([daemon.address], carol) as other:
            device = runtime.device()
            with Compilation(identity_model(), device) as compilation:
                compilation.build()
                with Executor(compilation) as executor:
                    executor.run_sync([np.ones(2, np.float32)])
                    access.write(access.path.read_text().splitlines()[1:])
                    until(lambda: not device.is_connected)
                    with pytest.raises(NnrtError):
                        executor.run_sync([np.ones(2, np.float32)])
            other.device().status()
    finally:
        daemon.kill()
