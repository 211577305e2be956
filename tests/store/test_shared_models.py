"""Compiled models that sessions share: compiled once, counted once in the host's memory, closed with the last."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NoReturn

import pytest
from freed_at_once import freed_at_once
from storing_backend import StoringBackend, StoringModel
from storing_device import ask, graph, prepared, session_of
from waiting import until

from nnrt_device_service.device import Device
from nnrt_device_service.memory.constants import MissingConstants
from nnrt_device_service.memory.memory_budget import LEAST_BYTES, MemoryBudget
from nnrt_device_service.models import shared_models
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.models.requests import Build
from nnrt_device_service.models.shared_models import Making
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.sessions.shared_model import SharedModel
from nnrt_device_service.settings import Settings
from nnrt_hdi import wire
from nnrt_hdi.access.identity import Identity, Role
from nnrt_hdi.backend import Cancellation, ModelConfig, Origin, PreparedModel
from nnrt_hdi.enums import Priority
from nnrt_hdi.errors import NnrtError, OperationFailed, OutOfMemory, UnavailableDevice, Unsupported
from nnrt_hdi.graph import Graph

COMPILED, SHARED = Origin.COMPILED, Origin.SHARED
MODEL_BYTES = 4000  # The weights of `graph()`.


class Gated(StoringBackend):
    """Compiles when `go_on` is set, and fails with `error`, if there is one."""

    def __init__(self, error: NnrtError | None = None) -> None:
        super().__init__()
        self.began, self.go_on, self.error = threading.Semaphore(0), threading.Event(), error
        self.closed = 0

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        model = super().prepare(graph, config, progress)
        self.began.release()
        assert self.go_on.wait(30)
        progress(1.0)
        if self.error is not None:
            raise self.error
        model.close = self._count  # type: ignore[method-assign]
        return model

    def _count(self) -> None:
        self.closed += 1


class Client:
    """Client that asks for a model in a thread, with all constants inline, and may leave."""

    def __init__(self, device: Device, session: Session, threads: ThreadPoolExecutor) -> None:
        self.stages: list[str] = []
        self._cancellation = Cancellation(reason=OperationFailed("the client left"))
        progress = Progress(lambda stage, _: self.stages.append(stage), self._cancellation)
        sent = wire.SentModel(wire.model_message(graph(elements=10)))
        build = Build(session, ModelConfig(), progress)
        self.answer: Future[Any] = threads.submit(device.models.prepare, sent, build)

    def await_waiting(self) -> None:
        """Wait until the client waits for another one's compilation."""
        until(lambda: "compiling" in self.stages)

    def leave(self) -> None:
        self._cancellation.cancel()

    def origin(self) -> Origin:
        made = self.answer.result(30)
        assert isinstance(made, Prepared)
        return made.origin


def device_of(backend: StoringBackend | None = None, **settings: Any) -> Device:
    return Device(backend or StoringBackend(), Settings(**settings))


def test_sessions_share_a_model() -> None:
    """Each counts it in full, the host's memory counts it once, and it is closed with the last session."""
    backend = Gated()
    backend.go_on.set()
    device = device_of(backend)
    with session_of(device) as last:
        with session_of(device) as first:
            assert prepared(device, first, graph()).origin is COMPILED
            alone = device.sessions.budget.used_bytes
            stages = list[str]()
            assert prepared(device, last, graph(), stages=stages).origin is SHARED
            assert stages == ["checking"], "nothing is uploaded or compiled"
            assert first.budget.used_bytes == MODEL_BYTES + LEAST_BYTES, "nothing is inline, and that is counted"
            assert last.budget.used_bytes == MODEL_BYTES
            assert device.sessions.budget.used_bytes == alone
        assert device.sessions.budget.used_bytes == MODEL_BYTES, "counted although the session that made it is gone"
        assert not backend.closed
        (model_id,) = last.models
        last.release_model(model_id)
        until(lambda: backend.closed == 1)
        until(lambda: device.sessions.budget.used_bytes == 0)
        backend.go_on.clear()
        backend.go_on.set()
        assert prepared(device, last, graph()).origin is COMPILED
    assert len(backend.compiled) == 2


def test_a_session_shares_with_itself() -> None:
    device = device_of()
    with session_of(device) as session:
        assert [prepared(device, session, graph()).origin for _ in range(3)] == [COMPILED, SHARED, SHARED]
        for model_id in list(session.models):
            session.release_model(model_id)
        until(lambda: session.budget.used_bytes == session.constants.held_bytes)


def test_the_session_that_made_it_comes_back() -> None:
    """The budget of all sessions counts the model once, however often."""
    device = device_of()
    with session_of(device) as last:
        with session_of(device) as first:
            prepared(device, first, graph())
            prepared(device, last, graph())
            for _ in range(3):
                for model_id in list(first.models):
                    first.release_model(model_id)
                until(lambda: first.budget.used_bytes == first.constants.held_bytes)
                assert prepared(device, first, graph()).origin is SHARED
        assert device.sessions.budget.used_bytes == MODEL_BYTES
    until(lambda: device.sessions.budget.used_bytes == 0)


def test_a_session_that_made_a_model_while_its_other_thread_waited() -> None:
    """Whichever of its threads is first, its reservation counts in the budget of all sessions."""
    whole = MemoryBudget(10_000)
    session = Session(Settings(session_bytes=10_000), "client", freed_at_once(), whole)
    budget = session.budget
    model = SharedModel(StoringModel(graph()), ModelConfig(), 1000, {}, True, whole)
    model.hold()
    with ExitStack() as waited, ExitStack() as made:
        budget.reserve(2000, is_shared=True)
        waited.callback(budget.release, 2000, is_shared=True)
        budget.reserve(2000)
        made.callback(budget.release, 2000)
        model.use(session, waited)
        model.use(session, made, made_it=True)
    assert (budget.used_bytes, whole.used_bytes) == (2000, 2000)
    model.release(session)
    assert (budget.used_bytes, whole.used_bytes) == (2000, 2000)
    model.release(session)
    assert (budget.used_bytes, whole.used_bytes) == (0, 0)


def test_a_shared_model_is_held_within_the_quota() -> None:
    device = device_of(session_bytes=MODEL_BYTES + LEAST_BYTES)
    with session_of(device) as first, session_of(device) as second:
        prepared(device, first, graph())
        second.buffers.allocate(2000)
        with pytest.raises(OutOfMemory, match="--session-bytes"):
            ask(device, second, graph())
    until(lambda: device.sessions.budget.used_bytes == 0)


@pytest.mark.parametrize(
    ("share", "of_one", "of_all"),
    [("auto", SHARED, COMPILED), ("identity", SHARED, COMPILED), ("all", SHARED, SHARED), ("none", COMPILED, COMPILED)],
)
def test_who_shares(share: str, of_one: Origin, of_all: Origin) -> None:
    device = device_of(share_models=share)
    identities = [Identity("name", name, Role.RESTORE) for name in ("ann", "ann", "bob")]
    sessions = [device.sessions.open("a test", lambda: None, identity) for identity in identities]
    for session in sessions:
        device.open_account(session, "")
    origins = [prepared(device, session, graph()).origin for session in sessions]
    assert origins == [COMPILED, of_one, of_all]
    for session in sessions:
        device.sessions.close(session)
    until(lambda: device.sessions.budget.used_bytes == 0)
    device.threads.close()


def test_what_is_not_shared() -> None:
    """Another model, config or priority, and the models of a backend that can't share any."""
    device = device_of()
    configs = [ModelConfig(), ModelConfig(priority=Priority.HIGH), ModelConfig(enable_float16=True)]
    with session_of(device) as session:
        assert {prepared(device, session, graph(), config).origin for config in configs} == {COMPILED}
        assert prepared(device, session, graph(1)).origin is COMPILED
    backend = StoringBackend()
    backend.shares_models = False
    with session_of(unshared := device_of(backend)) as session:
        assert [prepared(unshared, session, graph()).origin for _ in range(2)] == [COMPILED, COMPILED]


def test_a_model_that_the_device_fails_to_run() -> None:
    """Sessions that have it get the error; those that ask from now on get a new one."""

    class Failing(StoringBackend):
        def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
            model = super().prepare(graph, config, progress)
            if len(self.compiled) == 1:
                model.run = fail  # type: ignore[assignment, method-assign]
            return model

    def fail(*_: object) -> NoReturn:
        raise ValueError("a fault of the device")

    device = device_of(Failing())
    with session_of(device) as first, session_of(device) as second:
        with pytest.raises(UnavailableDevice, match="failed to run the model"):
            prepared(device, first, graph(elements=1))
        origins = [prepared(device, session, graph(elements=1)).origin for session in (second, first)]
        assert origins == [COMPILED, SHARED]


# ---- sessions that ask at the same time


def test_many_ask_at_once() -> None:
    device = device_of(backend := Gated())
    with ThreadPoolExecutor(8) as threads, session_of(device) as one, session_of(device) as other:
        clients = [Client(device, session, threads) for session in (one, other) * 4]
        assert backend.began.acquire(timeout=30)
        until(lambda: sum("compiling" in client.stages for client in clients) == 8)
        backend.go_on.set()
        origins = [client.origin() for client in clients]
    assert sorted(origin.value for origin in origins) == ["compiled"] + ["shared"] * 7
    assert len(backend.compiled) == backend.closed == 1


def test_the_first_client_leaves() -> None:
    """The compilation goes on for the one that waits."""
    device = device_of(backend := Gated())
    with ThreadPoolExecutor(2) as threads, session_of(device) as other:
        with session_of(device) as session:
            first = Client(device, session, threads)
            assert backend.began.acquire(timeout=30)
            second = Client(device, other, threads)
            second.await_waiting()
            first.leave()
            session.end()
            backend.go_on.set()
            assert second.origin() is SHARED
            first.answer.exception(30)
        assert len(other.models) == 1
    assert len(backend.compiled) == backend.closed == 1


@pytest.mark.parametrize("leaves", ["the waiting one", "both"])
def test_clients_leave(leaves: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_models, "_POLL_S", 0.01)
    device = device_of(backend := Gated())
    with ThreadPoolExecutor(2) as threads, session_of(device) as session, session_of(device) as other:
        first = Client(device, session, threads)
        assert backend.began.acquire(timeout=30)
        second = Client(device, other, threads)
        second.await_waiting()
        if leaves == "both":
            first.leave()
        second.leave()
        with pytest.raises(OperationFailed, match="the client left"):
            second.answer.result(30)
        backend.go_on.set()
        if leaves == "both":
            with pytest.raises(OperationFailed, match="gave up"):
                first.answer.result(30)
        else:
            assert first.origin() is COMPILED
    assert len(backend.compiled) == 1
    until(lambda: device.sessions.budget.used_bytes == 0)


def test_a_model_that_the_device_does_not_run() -> None:
    """One compilation tells all of them."""
    device = device_of(backend := Gated(Unsupported("it is too strange")))
    with ThreadPoolExecutor(2) as threads, session_of(device) as session, session_of(device) as other:
        first = Client(device, session, threads)
        assert backend.began.acquire(timeout=30)
        second = Client(device, other, threads)
        second.await_waiting()
        backend.go_on.set()
        for client in (first, second):
            with pytest.raises(Unsupported, match="too strange"):
                client.answer.result(30)
    assert len(backend.compiled) == 1


def test_a_failure_of_the_first_session() -> None:
    """It may be the session's own, so the next one tries again."""
    device = device_of(backend := Gated(OutOfMemory("no room")))
    with ThreadPoolExecutor(2) as threads, session_of(device) as session, session_of(device) as other:
        first = Client(device, session, threads)
        assert backend.began.acquire(timeout=30)
        second = Client(device, other, threads)
        second.await_waiting()
        backend.go_on.set()
        for client in (first, second):
            with pytest.raises(OutOfMemory, match="no room"):
                client.answer.result(30)
    assert len(backend.compiled) == 2


# ---- constants that are being uploaded


def test_a_client_leaves_before_it_learns_what_is_missing() -> None:
    """Its next call makes the model, although the first one was cancelled."""
    device = device_of()
    with session_of(device) as session:
        left = Progress()
        sent = wire.SentModel(wire.model_message(graph()))
        build = device.models.stored.identify(Build(session, ModelConfig(), left), sent)
        found = device.models.shared.find(build, build.recipe and build.recipe.key)
        assert isinstance(found, Making)
        with found as making:
            left.cancellation.cancel()
            making.await_constants()
        assert prepared(device, session, graph()).origin is COMPILED


def test_one_session_uploads() -> None:
    device = device_of(backend := StoringBackend())
    with ThreadPoolExecutor(1) as threads, session_of(device) as first, session_of(device) as second:
        assert isinstance(ask(device, first, graph()), MissingConstants)
        stages = list[str]()
        answer = threads.submit(prepared, device, second, graph(), None, stages)
        until(lambda: "compiling" in stages)
        assert prepared(device, first, graph()).origin is COMPILED
        assert answer.result(30).origin is SHARED
        assert not second.constants.held_bytes
    assert len(backend.compiled) == 1


@pytest.mark.parametrize("ends", ["the session ends", "nothing comes", "it trickles"])
def test_the_upload_never_comes(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_models, "_POLL_S", 0.01)
    monkeypatch.setattr(shared_models, "UPLOAD_PAUSE_S", 0.1 if ends == "nothing comes" else 1000.0)
    monkeypatch.setattr(shared_models, "_UPLOAD_S", 0.1 if ends == "it trickles" else 1000.0)
    device = device_of()
    with ThreadPoolExecutor(1) as threads, session_of(device) as second:
        with session_of(device) as first:
            assert isinstance(ask(device, first, graph()), MissingConstants)
            stages = list[str]()
            answer = threads.submit(prepared, device, second, graph(), None, stages)
            until(lambda: "compiling" in stages)
            if ends != "the session ends":
                assert answer.result(30).origin is COMPILED
                assert prepared(device, first, graph()).origin is SHARED
        assert answer.result(30).origin is COMPILED
