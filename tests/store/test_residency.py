"""Residency: models that no run has used for longest leave the device for others, and come back with their next run."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from device_runs import outputs_of
from storing_backend import StoringBackend, StoringModel
from storing_device import X, ask, device_on, graph, prepared
from waiting import until

from nnrt_device_service.device import Device
from nnrt_device_service.models import residency
from nnrt_device_service.models.compilations import Progress
from nnrt_device_service.models.requests import Build
from nnrt_device_service.runs.run import Run
from nnrt_device_service.sessions.loaded_model import LoadedModel
from nnrt_device_service.sessions.session import Prepared, Session
from nnrt_device_service.settings import Settings
from nnrt_hdi.access.identity import ANYBODY, Identity, Role
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.errors import InvalidParameter, OperationForbidden, OutOfMemory, TimedOut, UnknownHandle, Unsupported
from nnrt_hdi.files.store_directory import SUFFIX
from nnrt_hdi.part import Part
from nnrt_hdi.tensor import Array

MODEL_BYTES = 4000  # The weights of `graph()`.
ROOM = 2 * MODEL_BYTES + 1000  # For two models: as stored they have some bytes more.


class Watched(StoringBackend):
    """Backend that counts its open models, and whose runs wait for `go_on`."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.most_open = 0, 0
        self.running, self.go_on = threading.Semaphore(0), threading.Event()
        self.go_on.set()

    def prepare(self, *args: Any) -> PreparedModel:
        return self._opened(super().prepare(*args))

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return self._opened(super().restore(parts, config))

    def _opened(self, model: PreparedModel) -> PreparedModel:
        assert isinstance(model, StoringModel)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        compute = model.run

        def close() -> None:
            self.open -= 1

        def run(
            inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
        ) -> list[Array]:
            self.running.release()
            assert self.go_on.wait(30)
            return compute(inputs, cancellation, outputs)

        model.close, model.run = close, run  # type: ignore[method-assign]
        return model


class World:
    """Device with room for two models, and a session with some models."""

    def __init__(self, directory: Path, stack: ExitStack, models: int = 3, **settings: Any) -> None:
        self.directory = directory
        self.backend = Watched()
        self.device = device_on(directory, self.backend, **{"resident_bytes": ROOM, "concurrent_runs": 4, **settings})
        stack.callback(self.device.threads.close)
        self.session = stack.enter_context(self.session_of())
        self.models: list[LoadedModel] = []
        for seed in range(models):
            self.load(seed)

    @contextmanager
    def session_of(self, identity: Identity | None = None) -> Iterator[Session]:
        session = self.device.sessions.open("a test", lambda: None, identity or ANYBODY)
        self.device.open_account(session, "a test")
        try:
            yield session
        finally:
            self.device.sessions.close(session)
            until(lambda: session.budget.used_bytes == 0)

    def load(self, seed: int, session: Session | None = None) -> LoadedModel:
        session = session or self.session
        made = prepared(self.device, session, graph(seed))
        model = session.model(made.model_id)
        until(lambda: model.shared.recipe is not None)  # The store has it.
        if session is self.session:
            self.models.append(model)
        return model

    def run(self, seed: int) -> None:
        """Run a model, and check the result."""
        (result,) = outputs_of(self.device, self.session, self.models[seed], [X])
        (weights,) = graph(seed).constants.values()
        assert weights.data is not None
        np.testing.assert_array_equal(result, np.add(X, weights.data))

    @property
    def away(self) -> list[bool]:
        return [model.shared.is_away for model in self.models]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_what_was_not_used_for_longest_leaves(tmp_path: Path, stack: ExitStack) -> None:
    world = World(tmp_path, stack)
    assert world.away == [True, False, False]
    world.run(1)
    world.run(0)
    assert world.away == [False, False, True]
    for seed in (0, 1, 2, 2, 0, 1):
        world.run(seed)
    figures = world.device.models.residency.snapshot()
    assert (world.backend.open, world.backend.most_open, figures.models, figures.limit_bytes) == (2, 2, 2, ROOM)
    assert (figures.evicted, figures.restored, figures.waits) == (5, 4, 4)
    assert figures.bytes <= ROOM
    assert len(world.backend.compiled) == 3


def test_the_memory_of_a_model_that_left(tmp_path: Path, stack: ExitStack) -> None:
    """It counts for the session that has it, and no longer in the host's memory, nor do its constants."""
    world = World(tmp_path, stack)
    session, device = world.session.budget.used_bytes, world.device.sessions.budget
    assert session >= 3 * MODEL_BYTES
    assert device.used_bytes - 2 * MODEL_BYTES < MODEL_BYTES
    assert world.session.constants.held_bytes == 2 * MODEL_BYTES
    for seed in (0, 1, 2):
        world.run(seed)
    assert device.used_bytes - 2 * MODEL_BYTES < MODEL_BYTES
    world.device.sessions.close(world.session)
    until(lambda: world.backend.open == 0)
    until(lambda: device.used_bytes == 0)
    assert world.device.models.residency.snapshot().bytes == 0


def test_a_short_budget_of_all_sessions_lets_models_leave(tmp_path: Path, stack: ExitStack) -> None:
    """Also without --resident-bytes."""
    room = 6 * MODEL_BYTES
    world = World(tmp_path, stack, models=3, resident_bytes=0, held_bytes=room)
    other = stack.enter_context(world.session_of(Identity("name", "another one")))
    theirs = [world.load(seed, other) for seed in (3, 4, 5)]
    assert any(world.away)
    for seed, model in enumerate(theirs):
        world.run(seed)
        outputs_of(world.device, other, model, [X])
    assert world.device.sessions.budget.used_bytes <= room
    assert world.backend.most_open < 6


def test_sessions_share_a_model_that_is_away(tmp_path: Path, stack: ExitStack) -> None:
    world = World(tmp_path, stack)
    other = stack.enter_context(world.session_of())
    theirs = world.load(0, other)  # It is away, and its first run brings it back.
    assert theirs.shared is world.models[0].shared
    world.run(1)
    world.run(2)
    assert world.away == [True, False, False]
    before = world.device.models.residency.restored
    with ThreadPoolExecutor(4) as threads:
        runs = [threads.submit(outputs_of, world.device, other, theirs, [X]) for _ in range(8)]
        for run in runs:
            run.result(30)
    assert world.device.models.residency.restored == before + 1, "one thread restores it, the others wait"


def test_a_model_in_use_leaves_when_its_runs_have_ended(tmp_path: Path, stack: ExitStack) -> None:
    """It takes no further runs until then: else models in use all the time would keep the others out."""
    world, threads = World(tmp_path, stack), stack.enter_context(ThreadPoolExecutor(4))
    world.backend.go_on.clear()
    while world.backend.running.acquire(blocking=False):
        pass
    busy = [threads.submit(world.run, seed) for seed in (1, 2)]
    for _ in busy:
        assert world.backend.running.acquire(timeout=30)
    waiting = threads.submit(world.run, 0)
    until(lambda: sum(world.away) == 2)
    leaving = next(seed for seed in (1, 2) if world.models[seed].shared.is_away)
    again = threads.submit(world.run, leaving)
    until(lambda: world.device.models.residency.waits == 2)
    assert not (waiting.done() or again.done())
    world.backend.go_on.set()
    for each in (*busy, waiting, again):
        each.result(30)
    assert world.backend.most_open == 2


def test_a_run_that_waits_for_its_model_keeps_its_deadline(tmp_path: Path, stack: ExitStack) -> None:
    world, threads = World(tmp_path, stack), stack.enter_context(ThreadPoolExecutor(4))
    world.backend.go_on.clear()
    busy = [threads.submit(world.run, seed) for seed in (1, 2)]
    until(lambda: all(world.models[seed].shared.runs for seed in (1, 2)))
    run = Run(world.session, 0, Cancellation())
    run.model, run.inputs = world.models[0], [X]
    waiting = threads.submit(world.device.executing.execute, run)
    until(lambda: sum(world.away) == 2)
    run.cancellation.cancel(TimedOut("it is late"))
    waiting.result(30)
    assert isinstance(run.error, TimedOut)
    assert world.away == [True, False, False], "what was to leave for it stays"
    world.backend.go_on.set()
    for each in busy:
        each.result(30)
    world.run(0)


def test_pinned_models_stay(tmp_path: Path, stack: ExitStack) -> None:
    world = World(tmp_path, stack, models=2, identity_share=0.6)
    (pinned, _), models = world.models, world.device.models
    pinned.pin(lambda model: models.residency.pin(model, "somebody"))
    world.load(2)
    world.run(1)
    world.run(2)
    assert world.away == [False, True, False]
    with pytest.raises(OutOfMemory, match="pinned models pass somebody's share of 5400"):
        models.residency.pin(world.models[1].shared, "somebody")
    other = models.residency.pin(world.models[2].shared, "another one")
    with pytest.raises(OutOfMemory, match="--resident-bytes"):
        world.run(1)
    other()
    world.run(1)
    world.session.release_model(next(number for number, each in world.session.models.items() if each is pinned))
    models.residency.pin(world.models[1].shared, "somebody")()


def test_a_model_that_is_to_leave_stays_for_a_pin(tmp_path: Path, stack: ExitStack) -> None:
    """It is pinned while what needs its room waits for the end of its runs."""
    world, threads = World(tmp_path, stack, models=2), stack.enter_context(ThreadPoolExecutor(1))
    model, other = world.models
    for each in world.models:
        each.acquire(Cancellation())
    waiting = threads.submit(world.load, 2)
    until(lambda: model.shared.is_away)
    model.pin(lambda shared: world.device.models.residency.pin(shared, "somebody"))
    model.release()
    until(lambda: other.shared.is_away)
    other.release()
    waiting.result(30)
    assert world.away == [False, True, False]


def test_a_pin_brings_a_model_back(tmp_path: Path, stack: ExitStack) -> None:
    world = World(tmp_path, stack)
    session = stack.enter_context(world.session_of())
    made = ask(world.device, session, graph(0))
    assert isinstance(made, Prepared)
    world.device.models.pin(session, made, Cancellation())
    assert world.away == [False, True, False]


def test_the_room_of_models_is_given_back(tmp_path: Path, stack: ExitStack) -> None:
    """Of one without constants that isn't made, and of one that keeps a little memory for runs."""
    world = World(tmp_path, stack, models=0)
    residency, prepare = world.device.models.residency, world.backend.prepare

    def prepare_keeping(*args: Any) -> PreparedModel:
        made = prepare(*args)
        made.kept_bytes = 10
        return made

    with patch.object(world.backend, "prepare", prepare_keeping):
        world.load(0)
    world.session.release_model(min(world.session.models))
    build = Build(world.session, ModelConfig(), Progress())
    with pytest.raises(Unsupported), world.device.models.shared.find(build, None) as making:  # type: ignore[union-attr]
        making.begin_work(0)
        raise Unsupported("the device doesn't run it")
    until(lambda: residency.snapshot().bytes == 0)


def test_the_right_to_pin(tmp_path: Path, stack: ExitStack) -> None:
    world = World(tmp_path, stack, models=0)
    session = stack.enter_context(world.session_of(Identity("name", "low", Role.COMPILE)))
    made = prepared(world.device, session, graph())
    with pytest.raises(
        OperationForbidden, match=r"low has the role 'compile', and a model that stays .* needs 'restore'"
    ):
        world.device.models.pin(session, made, Cancellation())
    assert not session.models


def test_a_model_whose_file_is_gone(tmp_path: Path, stack: ExitStack) -> None:
    """Its runs fail with an error that says so; other models run, and who asks for it again gets a new one."""
    world = World(tmp_path, stack)
    recipe = world.models[0].shared.recipe
    assert recipe is not None
    (tmp_path / f"{recipe.key}{SUFFIX}").unlink()
    with pytest.raises(UnknownHandle, match=r"had left the device .*its file is gone or damaged; load it again"):
        world.run(0)
    world.run(1)
    world.run(2)
    world.load(0)
    world.models[0] = world.models.pop()
    world.run(0)
    assert len(world.backend.compiled) == 4


def test_a_model_that_is_closed_while_it_is_away(tmp_path: Path, stack: ExitStack) -> None:
    world = World(tmp_path, stack)
    world.session.release_model(min(world.session.models))
    with pytest.raises(UnknownHandle):
        world.run(0)
    world.run(1)
    assert world.device.models.residency.snapshot().models == 2


def test_exported_models_leave(tmp_path: Path, stack: ExitStack) -> None:
    """Else any client could keep its models on the device. What it exported is a copy, also if it was a view."""
    world = World(tmp_path, stack, models=1)
    (model_id,), memory = world.session.models, bytearray(b"a part")
    with patch.object(world.models[0].shared.prepared, "export", lambda: [Part.of(memory)]):
        ((buffer_id, size_bytes),) = world.device.models.export(world.session, model_id, Progress())
    world.load(1)
    world.load(2)
    assert world.away == [True, False, False]
    memory[:] = b"closed"
    exported = world.session.buffers.region(buffer_id, 0, size_bytes)
    assert isinstance(exported, memoryview)
    assert bytes(exported) == b"a part"


def test_a_backend_that_fails_to_close_a_model(
    tmp_path: Path, stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, stack, models=2)

    def fail() -> None:
        raise ZeroDivisionError("the vendor's mistake")

    world.models[0].shared.prepared.close = fail  # type: ignore[method-assign]
    world.load(2)
    world.run(0)
    assert "failed to close a model that left" in caplog.text


def test_models_that_cannot_leave_need_room(tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residency, "_DRAIN_S", 0.0)
    with pytest.raises(InvalidParameter, match=r"--resident-bytes: models that leave .* give --store-dir, too"):
        Device(StoringBackend(), Settings(resident_bytes=ROOM))
    world = World(tmp_path, stack, models=2)
    with pytest.raises(OutOfMemory, match="--resident-bytes"):
        prepared(world.device, world.session, graph(9, elements=ROOM // 4 + 1))
    for model in world.models:
        model.acquire(Cancellation())
    with pytest.raises(OutOfMemory, match="--resident-bytes"):
        prepared(world.device, world.session, graph(2))
    for model in world.models:
        model.release()
    assert world.away == [False, False]
    prepared(world.device, world.session, graph(2))
