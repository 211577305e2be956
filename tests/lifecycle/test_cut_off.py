"""Sessions that are cut off: all that they do ends at once, and what they have is freed before the daemon is gone."""

import threading
from collections.abc import Callable

import pytest
from freed_at_once import freed_at_once
from waiting import DEADLINE_S

from nnrt_device_service.sessions import registry
from nnrt_device_service.sessions.registry import SessionRegistry
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Cancellation


def sessions_of_a_daemon() -> SessionRegistry:
    return SessionRegistry(Settings(), 1 << 20, freed_at_once())


def nothing() -> None:
    pass


def test_runs_end_though_nobody_closes_the_session() -> None:
    """The thread that closes sessions may be closing another one."""
    sessions, said = sessions_of_a_daemon(), list[str]()
    session, run = sessions.open("alice", nothing), Cancellation()
    session.cancellations.add(run)
    run.on_cancel(lambda: said.append("the run"))
    with session.calls.count_call(lambda: said.append("the call")):
        assert sessions.cut_off(lambda _: True, "a cause") == [session]
    assert said == ["the call", "the run"]


class Closing:
    """A session that another thread is closing, as long as a test wants."""

    def __init__(self) -> None:
        self.sessions = sessions_of_a_daemon()
        self.is_closing, self.may_end = threading.Event(), threading.Event()
        self.said = list[str]()
        self.sessions.open("alice", nothing).on_end = self._end
        self.sessions.cut_off(lambda _: True, "a cause")
        self.watch = self.start(self.sessions.close_cut_off)
        assert self.is_closing.wait(DEADLINE_S)

    def _end(self, session: object, cause: str) -> None:
        self.is_closing.set()
        self.may_end.wait(DEADLINE_S)
        self.said.append("session ended")

    def stop(self) -> None:
        self.sessions.hang_up_all()
        self.said.append("daemon ended")

    def start(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work)
        thread.start()
        return thread


def test_the_daemon_ends_after_a_closing_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CLOSE_S", DEADLINE_S)
    closing, other_ended = Closing(), threading.Event()
    closing.sessions.open("bob", nothing).on_end = lambda session, cause: other_ended.set()
    stopping = closing.start(closing.stop)
    assert other_ended.wait(DEADLINE_S)
    closing.may_end.set()
    for thread in (closing.watch, stopping):
        thread.join(DEADLINE_S)
    assert closing.said == ["session ended", "daemon ended"]


def test_the_daemon_ends_though_a_closing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "CLOSE_S", 0.0)
    closing = Closing()
    closing.stop()
    assert closing.said == ["daemon ended"]
    closing.may_end.set()
    closing.watch.join(DEADLINE_S)
