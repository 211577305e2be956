"""The steps by which a daemon looks after itself: none of them stops another one."""

import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import hanging_steps
import numpy as np
import pytest
from access.conftest import Access
from daemon_process import DaemonProcess
from networks import identity_model
from waiting import until

from nnrt_client import Compilation, Executor, NnrtError, Runtime
from nnrt_device_service.host.rounds import Rounds
from nnrt_device_service.transport.server import SignsOfLife

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
    rounds, forgiven = Rounds(SOON_S, -LONG_S, stopped), threading.Event()
    rounds.take("silence", lambda: pytest.fail("it is hung up"), after_standstill=forgiven.set)
    until(forgiven.is_set)


class SomeRounds(Rounds):
    """Of which a test says what hangs."""

    names: tuple[str, ...] = ()

    def hanging(self, after_s: float) -> list[str]:
        return list(self.names)


def test_signs_of_life_while_all_steps_turn(stopped: threading.Event, caplog: pytest.LogCaptureFixture) -> None:
    rounds, told = SomeRounds(SOON_S, LONG_S, stopped), list[int]()
    signs = SignsOfLife(rounds, 1e-9, lambda: told.append(0))
    signs.look()
    rounds.names = ("leases",)
    for _ in range(3):
        signs.look()
    assert len(told) == 1
    assert caplog.text.count("a step of the watch hangs (leases)") == 1
    rounds.names = ()
    signs.look()
    assert len(told) == 2


def test_a_supervisor_gets_no_sign_of_life(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "100000")
    daemon = hanging_daemon("silence")
    try:
        until(lambda: "a step of the watch hangs (silence)" in daemon.log())
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
    finally:
        daemon.kill()


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
