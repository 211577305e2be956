"""The end of a session frees everything, and the watch over sessions does all that it has to, whatever goes wrong."""

from contextlib import ExitStack
from typing import NoReturn

import pytest
from freed_at_once import freed_at_once, lone_model

from nnrt_device_service.host.steps import take_each
from nnrt_device_service.sessions.registry import SessionRegistry
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.backend import Cancellation, PreparedModel
from nnrt_hdi.errors import OperationFailed

HELD_BYTES = 1 << 20


def fail(*_: object) -> NoReturn:
    raise OperationFailed("the disk is full")


class Model(PreparedModel):
    """A model that can't be closed: its library ends the thread that asks for it."""

    inputs = outputs = ()

    def run(self, inputs: object, cancellation: object, outputs: object = ()) -> NoReturn:
        fail()

    def close(self) -> None:
        raise SystemExit("the device is gone")


@pytest.fixture
def registry() -> SessionRegistry:
    return SessionRegistry(Settings(), HELD_BYTES, freed_at_once())


def with_failures(session: Session, closing: ExitStack) -> tuple[Cancellation, list[str]]:
    """Have every step of its end fail that code of others takes part in; what is done all the same."""
    freed: list[str] = []
    cancellation = Cancellation()
    session.on_end = fail
    session.cancellations.add(cancellation)
    for end in (fail, lambda: freed.append("call")):
        closing.enter_context(session.calls.count_call(end))
    session.add_model(lone_model(Model(), lambda: freed.append("model")))
    session.buffers.allocate(1000, to_share=False)
    return cancellation, freed


def test_a_session_frees_everything(
    registry: SessionRegistry, closing: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    session = registry.open("client", lambda: None)
    cancellation, freed = with_failures(session, closing)
    assert registry.budget.used_bytes
    registry.close(session)
    assert (registry.budget.used_bytes, sorted(freed), cancellation.is_cancelled) == (0, ["call", "model"], True)
    assert caplog.text.count("a step of ending the session of client client failed") == 2


def test_all_sessions_are_closed(registry: SessionRegistry) -> None:
    """Also those after one of which the stream can't be hung up."""
    sessions = [registry.open("client", hang_up) for hang_up in (fail, lambda: None)]
    ended: list[str] = []
    for session in sessions:
        session.on_end = lambda _, cause: ended.append(cause)
    assert registry.cut_off(lambda _: True, "the daemon ended") == sessions
    assert not any(session.is_open for session in sessions)
    assert not len(registry) and not ended
    registry.close_cut_off()
    assert ended == ["the daemon ended"] * 2


def test_each_step_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    taken: list[str] = []
    take_each((fail, lambda: taken.append("second")), "looking after sessions")
    assert taken == ["second"]
    assert "a step of looking after sessions failed" in caplog.text
    assert "the disk is full" in caplog.text
