"""Answers of the store: what was put in, for whom it was made, or nothing."""

import fcntl
import logging
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from part import examples
from storing_backend import StoringBackend, StoringModel
from storing_device import ask, device_on, files, graph, origin, prepared, session_of
from waiting import until

from nnrt_device_service.device import Device
from nnrt_device_service.memory.constants import MissingConstants
from nnrt_device_service.models import shared_models
from nnrt_device_service.models.checks import Checks
from nnrt_device_service.sessions.session import CheckedModel, Prepared
from nnrt_hdi import wire
from nnrt_hdi.backend import Capabilities, ModelConfig, Origin, PreparedModel
from nnrt_hdi.enums import PerformanceMode, Priority
from nnrt_hdi.errors import (
    InvalidFile,
    InvalidPath,
    OperationFailed,
    OperationForbidden,
    OutOfMemory,
    Unsupported,
)
from nnrt_hdi.files import store_directory
from nnrt_hdi.files.atomic_write import temporary_name
from nnrt_hdi.files.model_store import ModelStore
from nnrt_hdi.files.store_directory import MARKER, PART_SUFFIX, SUFFIX, Entry
from nnrt_hdi.graph import Graph
from nnrt_hdi.part import Part

COMPILED, STORED, SHARED = Origin.COMPILED, Origin.STORED, Origin.SHARED


NOT_ROOT = pytest.mark.skipif(os.geteuid() == 0, reason="to root no file is closed")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "store"


# ---- once compiled


def test_a_second_session_neither_uploads_nor_compiles(directory: Path) -> None:
    backend, stages = StoringBackend(), list[str]()
    device, model = device_on(directory, backend), graph()
    with session_of(device) as first:
        assert isinstance(ask(device, first, model), MissingConstants)
        assert prepared(device, first, model, stages=stages).origin is COMPILED
    assert stages == ["checking", "checking", "compiling"]
    stages.clear()
    with session_of(device) as second:
        assert prepared(device, second, model, stages=stages).origin is STORED
    assert list(dict.fromkeys(stages)) == ["checking", "restoring"]  # It waits where the model is still written.
    assert origin(device_on(directory, backend), model) is STORED, "after a restart as well"
    assert len(backend.compiled) == 1


def test_models_that_are_built_at_a_time_are_checked_once(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While their clients send the constants: the latest few."""
    checked, found = list[Graph](), list[str]()
    check, find = Checks.check, ModelStore.find

    def note_check(checks: Checks, graph: Graph) -> CheckedModel:
        checked.append(graph)
        return check(checks, graph)

    def note_find(store: ModelStore, key: str) -> Entry | None:
        found.append(key)
        return find(store, key)

    monkeypatch.setattr(Checks, "check", note_check)
    monkeypatch.setattr(ModelStore, "find", note_find)
    device, models = device_on(directory), [graph(seed) for seed in range(6)]
    with session_of(device) as session:
        for model in models:
            assert isinstance(ask(device, session, model), MissingConstants)
        for number, model in enumerate(reversed(models), 1):
            assert prepared(device, session, model).origin is COMPILED
            assert len(checked) == max(6, number + 2), "four are kept"
            assert number > 1 or Counter(found)[found[-1]] == 3, (
                "once in each call, for no other one has ended meanwhile"
            )


def test_only_the_owner_may_look_at_it(directory: Path) -> None:
    origin(device_on(directory), graph())
    assert directory.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in files(directory)] == [0o600]


@pytest.mark.parametrize(
    "other",
    [
        {"backend": StoringBackend(backend_version="2")},
        {"backend": StoringBackend(backend_name="stowing")},
        {"backend": StoringBackend(vendor_name="another")},
        {"backend": StoringBackend(device_name="its other chip")},
        {"backend": StoringBackend(capabilities=Capabilities(True, True, True, False, True))},  # type: ignore[arg-type]
        {"option": ("precision=low",)},
        {"tensor_bytes": 1 << 20},
        {"config": ModelConfig(enable_float16=True)},
        {"config": ModelConfig(mode=PerformanceMode.LOW)},
        {"config": ModelConfig(extensions={"a": b"1"})},
        {"config": ModelConfig(extensions={"a": b"2"})},
        {"model": graph(seed=1)},
        {"model": graph(elements=999)},
    ],
    ids=[
        "version",
        "backend",
        "vendor",
        "device",
        "capabilities",
        "option",
        "limit",
        "float16",
        "mode",
        "extension",
        "value",
        "weights",
        "shape",
    ],
)
def test_what_is_not_shared(directory: Path, other: dict[str, object]) -> None:
    """Whatever decides what a model is, each by itself."""
    assert origin(device_on(directory), graph()) is COMPILED
    assert origin(device_on(directory), graph(), ModelConfig(extensions={"a": b"1", "b": b""})) is COMPILED
    model, config = other.pop("model", graph()), other.pop("config", None)
    device = device_on(directory, **other)  # type: ignore[arg-type]
    assert [origin(device, model, config) for _ in range(2)] == [COMPILED, STORED]  # type: ignore[arg-type]


def test_what_is_shared(directory: Path) -> None:
    """A setting that has its effect when a model runs is no part of it, and reaches the backend."""
    assert origin(device_on(directory), graph()) is COMPILED
    backend = StoringBackend()
    device = device_on(directory, backend, name="rack7-slot2", session_bytes=1 << 20)
    assert origin(device, graph(), ModelConfig(priority=Priority.HIGH, max_tensor_bytes=12_345)) is STORED
    assert [(config.priority, config.max_tensor_bytes) for config in backend.restored] == [(Priority.HIGH, 12_345)]


def test_another_version_checks_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert origin(device_on(directory), graph()) is COMPILED
    monkeypatch.setattr("nnrt_device_service.models.stored_models.__version__", "another")
    assert [origin(device_on(directory), graph()) for _ in range(2)] == [COMPILED, STORED]


def test_what_is_stored_is_neither_read_nor_checked(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what makes it cheap: it was checked when it was stored."""
    assert origin(device_on(directory), graph()) is COMPILED
    device, model = device_on(directory), graph()

    def too_expensive(*_: object) -> NoReturn:
        raise AssertionError("it was read or checked again")

    monkeypatch.setattr(wire, "graph", too_expensive)
    monkeypatch.setattr(StoringBackend, "supported", too_expensive)
    assert origin(device, model) is STORED


def test_sessions_that_want_the_same_new_model(directory: Path, tmp_path: Path) -> None:
    """One compiles, the others wait for it; another model waits for nobody."""
    os.mkfifo(gate := tmp_path / "gate")
    waiting = [threading.Event() for _ in range(3)]
    backend = StoringBackend(gate)
    device = device_on(directory, backend)

    def prepare(number: int) -> Origin:
        with session_of(device) as session:

            class Stages(list[str]):
                def append(self, stage: str) -> None:
                    super().append(stage)
                    if stage == "compiling":
                        waiting[number].set()

            return prepared(device, session, graph(), stages=Stages()).origin

    with ThreadPoolExecutor(3) as pool:
        outcomes = [pool.submit(prepare, number) for number in range(3)]
        assert all(event.wait(30) for event in waiting)
        gate.write_bytes(b"")
        origins = Counter(outcome.result(30) for outcome in outcomes)
    assert origins == {COMPILED: 1, SHARED: 2}
    assert len(backend.compiled) == 1


# ---- files that are not what was written


def heals(device: Device, directory: Path, caplog: pytest.LogCaptureFixture, model: Graph) -> None:
    """The model is compiled with a warning, and in the store again."""
    caplog.clear()
    assert origin(device, model) is COMPILED
    assert "will be compiled again" in caplog.text
    assert origin(device, model) is STORED


@pytest.mark.slow
def test_any_damage_is_noticed(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    device, rng = device_on(directory), np.random.default_rng(0)
    origin(device, graph())
    (path,) = files(directory)
    good = path.read_bytes()
    damaged = [good + b"\0", b"", bytes(len(good)), good[:-1], good[64:]]
    for _ in range(examples(100)):
        flipped = bytearray(good)
        flipped[rng.integers(len(good))] ^= 1 << int(rng.integers(8))
        damaged += [bytes(flipped), good[: rng.integers(len(good))]]
    for data in damaged:
        path.write_bytes(data)
        heals(device, directory, caplog, graph())
        assert path.read_bytes() == good


def test_a_model_under_the_name_of_another(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = device_on(directory)
    for seed in range(2):
        origin(device, graph(seed))
    first, second = files(directory)
    first.rename(directory / "aside")
    second.rename(first)
    (directory / "aside").rename(second)
    for seed in range(2):
        heals(device, directory, caplog, graph(seed))
    assert "under another name" in caplog.text


def _directory(path: Path) -> None:
    path.mkdir()
    (path / "something").touch()


def _link(path: Path) -> None:
    path.symlink_to(path.with_name("moved"))


@pytest.mark.parametrize("put", [_directory, _link, os.mkfifo], ids=["directory", "link", "fifo"])
def test_something_else_in_the_place_of_a_model(directory: Path, put: Callable[[Path], None]) -> None:
    """Nothing is followed, and nothing waited for."""
    device = device_on(directory)
    origin(device, graph())
    (path,) = files(directory)
    path.rename(path.with_name("moved"))
    put(path)
    assert origin(device, graph()) is COMPILED
    assert origin(device, graph()) is (COMPILED if path.is_dir() else STORED)
    assert path.with_name("moved").exists()


@NOT_ROOT
def test_a_file_that_can_not_be_read(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = device_on(directory)
    origin(device, graph())
    files(directory)[0].chmod(0)
    heals(device, directory, caplog, graph())


@pytest.mark.parametrize("suffix", [SUFFIX, PART_SUFFIX])
def test_a_directory_in_the_place_of_a_file(
    directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    """The next who writes the model clears it."""
    monkeypatch.setattr(store_directory, "LARGE_BYTES", 1)
    assert origin(device_on(directory), graph()) is COMPILED
    for path in [path for path in directory.iterdir() if path.name.endswith(suffix)]:
        path.unlink()
        (path / "deep").mkdir(parents=True)
    assert [origin(device_on(directory), graph()) for _ in range(2)] == [COMPILED, STORED]
    assert "is in the place of" in caplog.text


class Refusing(StoringBackend):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        raise self._error


@pytest.mark.parametrize("error", [InvalidFile("it is of an older kind"), Unsupported("it has an operator of later")])
def test_a_model_that_the_backend_refuses(directory: Path, caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    origin(device_on(directory), graph())
    assert origin(device_on(directory, Refusing(error)), graph()) is COMPILED
    assert f"is removed and will be compiled again: the backend does not restore it: {error!r}" in caplog.text
    assert origin(device_on(directory), graph()) is STORED


@pytest.mark.parametrize("error", [OutOfMemory("the device is full"), MemoryError()])
def test_a_backend_without_memory_keeps_the_file(
    directory: Path, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    origin(device_on(directory), graph())
    assert origin(device_on(directory, Refusing(error)), graph()) is COMPILED
    assert "finds no room" in caplog.text
    assert "is removed" not in caplog.text
    assert origin(device_on(directory), graph()) is STORED


@pytest.mark.parametrize("error", [OperationFailed("the run was cancelled"), ZeroDivisionError("the vendor's mistake")])
def test_a_backend_that_fails_keeps_the_file(
    directory: Path, caplog: pytest.LogCaptureFixture, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin(device_on(directory), graph())
    monkeypatch.setattr(ModelStore, "keep", lambda store, compiled: None)
    assert origin(device_on(directory, Refusing(error)), graph()) is COMPILED
    assert "is compiled again: it can't be restored" in caplog.text
    assert "is removed" not in caplog.text
    assert origin(device_on(directory), graph()) is STORED


class Mistaken(StoringBackend):
    """Restores another model than the file holds."""

    def restore(self, parts: Sequence[Part], config: ModelConfig) -> PreparedModel:
        return StoringModel(graph(elements=7))


def test_a_backend_that_restores_another_model(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    origin(device_on(directory), graph())
    assert origin(device_on(directory, Mistaken()), graph()) is COMPILED
    assert "it holds another model than its manifest says" in caplog.text


class Unexportable(StoringBackend):
    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        model = super().prepare(graph, config, progress)
        model.export = self._export  # type: ignore[method-assign]
        return model

    def _export(self) -> Sequence[Part]:
        raise ZeroDivisionError("the vendor's mistake")


class Split(Unexportable):
    def _export(self) -> Sequence[Part]:
        return [Part.of(b"")] * 101


class Bare(Unexportable):
    def _export(self) -> Sequence[Part]:
        return [b"bytes that are no part"]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        (Unexportable(), "the vendor's mistake"),
        (Split(), "it has 101 parts; a compiled model has 1..100"),
        (Bare(), "the backend failed to export it"),
    ],
)
def test_a_model_that_can_not_be_exported(
    directory: Path, caplog: pytest.LogCaptureFixture, backend: StoringBackend, said: str
) -> None:
    assert origin(device_on(directory, backend), graph()) is COMPILED
    assert said in caplog.text
    assert files(directory) == []


# ---- the directory


def test_a_directory_that_vanishes(directory: Path) -> None:
    device = device_on(directory)
    origin(device, graph())
    shutil.rmtree(directory)
    assert [origin(device, graph()) for _ in range(2)] == [COMPILED, STORED]


def test_a_directory_that_becomes_a_file(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = device_on(directory)
    origin(device, graph())
    shutil.rmtree(directory)
    directory.touch()
    assert [origin(device, graph()) for _ in range(2)] == [COMPILED, COMPILED]
    assert caplog.text.count("is not stored: ") == 2, "once per model that is not stored"


def test_a_directory_that_others_begin_to_write_to(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    device = device_on(directory)
    directory.chmod(0o777)
    assert origin(device, graph()) is COMPILED
    assert "is not stored: others may write to it" in caplog.text


def _file(path: Path) -> None:
    path.touch()


def _open_to_others(path: Path) -> None:
    path.mkdir()
    path.chmod(0o770)


def _read_only(path: Path) -> None:
    path.mkdir(mode=0o500)


def _of_another(path: Path) -> None:
    path.mkdir()
    os.chown(path, os.geteuid() + 1, -1)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_file, "File exists"),
        (_open_to_others, "others may write to it; use `chmod go-w`"),
        pytest.param(
            _of_another,
            "it belongs to user",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away"),
        ),
        pytest.param(_read_only, "files in it can't be listed, made and removed", marks=NOT_ROOT),
    ],
)
def test_a_directory_that_can_not_be_used(tmp_path: Path, make: Callable[[Path], None], said: str) -> None:
    make(tmp_path / "place")
    with pytest.raises(InvalidPath, match=said) as refusal:
        device_on(tmp_path / "place")
    assert refusal.value.place == f"--store-dir '{tmp_path}/place'"
    assert "name a directory that this user may make or write to" in refusal.value.message


def test_a_read_only_place() -> None:
    """A directory in which not even root makes others."""
    with pytest.raises(InvalidPath, match="it can't be the model store"):
        device_on(Path("/proc/nnrt"))


def test_a_backend_without_exports_has_no_store(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Plain(StoringBackend):
        def __init__(self) -> None:
            super().__init__(capabilities=Capabilities())  # type: ignore[arg-type]

    assert origin(device_on(directory, Plain()), graph()) is COMPILED
    assert "exports no models, so none are stored" in caplog.text
    assert files(directory) == []


def test_another_that_does_not_let_go_of_the_lock(
    directory: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading needs no lock, and nobody waits for it who begins; what needs it is left undone."""
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(store_directory, "LOCK_TIMEOUT_S", 1000.0)
    origin(device_on(directory), graph(0))
    with (directory / MARKER).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        device = device_on(directory)
        assert "the model store is not tidied up, for somebody writes to it" in caplog.text
        monkeypatch.setattr(store_directory, "LOCK_TIMEOUT_S", 0.05)
        assert [origin(device, graph(0)), origin(device, graph(1))] == [STORED, COMPILED]
        assert "is not stored: another process has held its lock" in caplog.text
    assert [origin(device, graph(1)) for _ in range(2)] == [COMPILED, STORED]


# ---- the quota


def test_the_least_recently_used_make_room(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    origin(device_on(directory), graph(0))
    (path,) = files(directory)
    size_bytes = path.stat().st_size
    (directory / f"foreign{SUFFIX}").write_bytes(bytes(10 * size_bytes))
    (directory / "foreign.tmp").touch()
    device = device_on(directory, store_bytes=3 * size_bytes + 100)
    assert [origin(device, graph(seed)) for seed in (1, 2)] == [COMPILED] * 2
    assert origin(device, graph(0)) is STORED  # The oldest is used again,
    assert origin(device, graph(3)) is COMPILED  # so the second makes room.
    assert caplog.text.count("evicted model") == 1
    assert [origin(device, graph(seed)) for seed in (0, 2, 3)] == [STORED] * 3
    assert origin(device, graph(1)) is COMPILED  # In the place of 0.
    assert [origin(device, graph(seed)) for seed in (2, 3, 1)] == [STORED] * 3

    assert origin(device, graph(9, elements=4000)) is COMPILED
    assert "bytes, --store-bytes is" in caplog.text
    assert [origin(device, graph(seed)) for seed in (2, 3, 1)] == [STORED] * 3, "what never fits makes nobody leave"

    small = device_on(directory, store_bytes=size_bytes + 100)
    assert len(files(directory)) == 1 + 1, "a smaller quota counts from the start"
    assert origin(small, graph(1)) is STORED
    assert (directory / f"foreign{SUFFIX}").exists()
    assert (directory / "foreign.tmp").exists()


def test_what_a_crash_left_is_removed(directory: Path) -> None:
    device = device_on(directory)
    origin(device, graph(0))
    leftover = directory / temporary_name("store", "0123456789abcdef")
    for _ in range(2):
        leftover.touch()
        device = device_on(directory)
        assert not leftover.exists()
    leftover.touch()
    origin(device, graph(1))
    assert not leftover.exists()


# ---- what a session has


def test_a_restored_model_counts(directory: Path) -> None:
    device = device_on(directory)
    origin(device, graph())
    (path,) = files(directory)
    with session_of(device) as session:
        model_id = prepared(device, session, graph()).model_id
        assert session.budget.used_bytes == path.stat().st_size
        session.release_model(model_id)
        assert session.budget.used_bytes == 0


def test_a_session_without_room_for_the_file(directory: Path) -> None:
    """The file is a little larger than the constants, which fit."""
    origin(device_on(directory), graph())
    assert origin(device_on(directory, session_bytes=5200), graph()) is COMPILED


def test_what_is_uploaded_stays_when_the_stored_model_does_not_fit(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be asked for again, and again not be there."""
    device = device_on(directory, session_bytes=10_000)
    with session_of(device) as session, session_of(device) as other:
        session.buffers.allocate(4700)
        assert isinstance(ask(device, session, graph()), MissingConstants)
        (weights,) = graph().constants.values()
        assert weights.data is not None
        session.constants.write(weights.sha256, weights.size_bytes, 0, weights.data.tobytes())
        monkeypatch.setattr(shared_models, "UPLOAD_PAUSE_S", 0.0)
        other.release_model(prepared(device, other, graph()).model_id)
        until(lambda: files(directory))
        until(lambda: other.budget.used_bytes == 0 or other.constants.held_bytes == other.budget.used_bytes)
        answer = ask(device, session, graph())
        assert isinstance(answer, Prepared)
        assert answer.origin is COMPILED


class Exporting(StoringBackend):
    """Its models are exported when `go_on` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.began, self.go_on = threading.Event(), threading.Event()
        self.exports = 0

    def prepare(self, graph: Graph, config: ModelConfig, progress: Callable[[float], None]) -> PreparedModel:
        model = super().prepare(graph, config, progress)
        export = model.export

        def later() -> Sequence[Part]:
            with self._lock:
                self.exports += 1
            self.began.set()
            assert self.go_on.wait(30)
            return export()

        model.export = later  # type: ignore[method-assign]
        return model


def test_a_model_is_run_while_it_is_stored(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who wants it meanwhile neither uploads nor compiles. It is stored although its client is gone by then."""
    caplog.set_level(logging.INFO)
    device = device_on(directory, backend := Exporting())
    session = device.sessions.open("a test", lambda: None)
    device.open_account(session, "a test")
    assert prepared(device, session, graph()).origin is COMPILED, "which has run it"
    assert backend.began.wait(30)
    device.sessions.close(session)
    with session_of(device) as second:
        stages = list[str]()
        assert prepared(device, second, graph(), stages=stages).origin is SHARED
        assert stages == ["checking"]
    assert files(directory) == []
    assert "closed a model" not in caplog.text, "it is in use"
    backend.go_on.set()
    until(lambda: session.budget.used_bytes == 0)
    assert len(files(directory)) == 1
    assert caplog.text.count("closed a model") == 1


def test_no_more_models_are_kept_in_memory_than_are_stored(directory: Path) -> None:
    """The third waits for its place on the disk."""
    device = device_on(directory, backend := Exporting())
    sessions = [device.sessions.open("a test", lambda: None) for _ in range(3)]
    for session in sessions:
        device.open_account(session, "a test")
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(prepared, device, each, graph(seed)) for seed, each in enumerate(sessions)]
        until(lambda: backend.exports == 3 and sum(answer.done() for answer in answers) == 2)
        (third,) = (answer for answer in answers if not answer.done())
        backend.go_on.set()
        assert third.result(30).origin is COMPILED
    for session in sessions:
        device.sessions.close(session)
    until(lambda: len(files(directory)) == 3)
    assert device.close(30)


def test_a_device_that_ends_finishes_its_store(directory: Path) -> None:
    device = device_on(directory, backend := Exporting())
    session = device.sessions.open("a test", lambda: None)
    device.open_account(session, "a test")
    prepared(device, session, graph())
    assert backend.began.wait(30)
    device.sessions.close(session)
    assert not device.gate.close(0), "it is work under way"
    backend.go_on.set()
    assert device.close(30)
    assert len(files(directory)) == 1


def test_what_is_refused_stays_refused(directory: Path) -> None:
    """A stored model is no way around the rules of the daemon."""
    roomy = device_on(directory)
    assert origin(roomy, graph()) is COMPILED
    for device, config, error in (
        (device_on(directory, tensor_bytes=3999), None, OutOfMemory),
        (device_on(directory, WithoutPriority()), ModelConfig(priority=Priority.LOW), OperationForbidden),
        (device_on(directory, session_models=0), None, OutOfMemory),
    ):
        with session_of(device) as session, pytest.raises(error):
            ask(device, session, graph(), config)
    assert origin(roomy, graph()) is STORED


class WithoutPriority(StoringBackend):
    def __init__(self) -> None:
        super().__init__(capabilities=Capabilities(model_cache=True))  # type: ignore[arg-type]
