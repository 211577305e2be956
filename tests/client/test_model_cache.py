"""The user's compiled models: written beside the runs, not where the daemon keeps them, shared and bounded."""

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model, weighted_model
from waiting import until

from nnrt_client import (
    InvalidParameter,
    Model,
    ModelSession,
    OperationForbidden,
    OperationType,
    Origin,
    load,
    wait_until_cached,
)
from nnrt_client.build.prepared import PreparedHandle
from nnrt_client.model.model import parts_of
from nnrt_hdi.files.compiled import CompiledModel
from nnrt_hdi.files.store_directory import MARKER, PART_SUFFIX, SUFFIX, StoreDirectory

# Of a model whose weights have a file of their own, and of its numbers.
ELEMENTS = 500_000
WEIGHTS_BYTES = 4 * ELEMENTS


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nnrt" / "models"


def origin(model: Model, address: str, **options: object) -> Origin:
    with load(model, address, **options) as session:  # type: ignore[arg-type]
        wait_until_cached()
        return session.report.origin


def is_closed(session: ModelSession) -> bool:
    try:
        session.run({"x": []})
    except OperationForbidden:
        return True
    except InvalidParameter:
        return False
    raise AssertionError("it has no such input")


def count(directory: Path, suffix: str) -> int:
    return len(list(directory.glob(f"*{suffix}")))


def test_a_session_runs_while_its_model_is_written(start_daemon: StartDaemon, directory: Path, tmp_path: Path) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    daemon = start_daemon("--backend", "restoring", "--option", "wait=exporting", "--option", f"gate={gate}")
    with load(identity_model(), daemon.address) as session:
        (output,) = session.run({"x": [3.0]}).values()
        assert output.tolist() == [3.0]
        assert not wait_until_cached(0.01)
        assert count(directory, SUFFIX) == 0
        gate.write_bytes(b"")
        assert wait_until_cached(30)
        assert count(directory, SUFFIX) == 1


def test_closing_ends_the_export(
    start_daemon: StartDaemon, directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    daemon = start_daemon("--backend", "restoring", "--option", "wait=exporting", "--option", f"gate={gate}")
    session = load(identity_model(), daemon.address)
    BlockedCall(session.close).wait()
    until(wait_until_cached)
    assert [path.name for path in directory.iterdir()] == [MARKER]
    assert not caplog.records


def test_closing_ends_the_writing(
    restoring_daemon: DaemonProcess, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file that the disk takes long for; nothing is left of it."""
    write, is_writing, may_go_on = StoreDirectory.write, threading.Event(), threading.Event()

    def write_slowly(store: StoreDirectory, key: str, compiled: CompiledModel, check: Callable[[], object]) -> None:
        def wait_first() -> None:
            is_writing.set()
            may_go_on.wait(30)
            check()

        write(store, key, compiled, wait_first)

    monkeypatch.setattr(StoreDirectory, "write", write_slowly)
    session = load(weighted_model(ELEMENTS), restoring_daemon.address)
    assert is_writing.wait(30)
    closing = BlockedCall(session.close)
    until(lambda: is_closed(session))
    closing.wait()
    may_go_on.set()
    until(wait_until_cached)
    assert [path.name for path in directory.iterdir()] == [MARKER]


def test_closing_while_a_file_is_put_on_the_disk(
    restoring_daemon: DaemonProcess, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one, whole: it doesn't appear."""
    fsync, is_syncing, may_go_on = os.fsync, threading.Event(), threading.Event()

    def sync_slowly(file: int) -> None:
        is_syncing.set()
        may_go_on.wait(30)
        fsync(file)

    monkeypatch.setattr(os, "fsync", sync_slowly)
    session = load(identity_model(), restoring_daemon.address)
    assert is_syncing.wait(30)
    closing = BlockedCall(session.close)
    until(lambda: is_closed(session))
    closing.wait()
    may_go_on.set()
    until(wait_until_cached)
    assert [path.name for path in directory.iterdir()] == [MARKER]


def test_no_thread_is_left_to_write_it(
    restoring_daemon: DaemonProcess, directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def start_unless(thread: threading.Thread) -> None:
        if thread.name == "nnrt-cache":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_unless)
    released: list[PreparedHandle] = []
    release = PreparedHandle.release

    def release_noted(prepared: PreparedHandle) -> None:
        released.append(prepared)
        release(prepared)

    monkeypatch.setattr(PreparedHandle, "release", release_noted)
    with caplog.at_level(logging.DEBUG), load(identity_model(), restoring_daemon.address) as session:
        assert len(released) == 2  # By the compilation as well.
        assert wait_until_cached(0)
        (output,) = session.run({"x": [3.0]}).values()
        assert output.tolist() == [3.0]
    assert "nothing is written to the cache: can't start new thread" in caplog.messages
    assert count(directory, SUFFIX) == 0


def test_a_death_while_the_model_is_written(
    start_daemon: StartDaemon, directory: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    os.mkfifo(gate := tmp_path / "gate")
    daemon = start_daemon("--backend", "restoring", "--option", "wait=exporting", "--option", f"gate={gate}")
    session = load(identity_model(), daemon.address)
    daemon.kill()
    assert wait_until_cached(30)
    session.close()
    assert count(directory, SUFFIX) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"], caplog.text


def test_what_the_daemon_keeps_is_not_sent_back(start_daemon: StartDaemon, directory: Path, tmp_path: Path) -> None:
    """Nor sent to it again."""
    daemon = start_daemon("--backend", "onnxruntime", "--store-dir", str(tmp_path / "store"))
    reports = []
    for _ in range(2):
        with load(weighted_model(ELEMENTS), daemon.address) as session:
            reports.append(session.report)
    assert reports[0].origin is Origin.COMPILED
    assert reports[1].origin in (Origin.STORED, Origin.SHARED), "shared while it is still written"
    assert reports[0].sent_bytes > WEIGHTS_BYTES
    assert reports[1].sent_bytes < 2000
    assert not directory.exists()


def test_weights_are_kept_once(onnxruntime_daemon: DaemonProcess, directory: Path) -> None:
    """However many shapes a model is compiled for."""
    model = Model()
    x = model.input((-1, 1000), name="x")
    weights = np.random.default_rng(0).standard_normal((500, 1000), np.float32)
    y = model.apply(OperationType.FULL_CONNECTION, x, weights, np.zeros(500, np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    given = np.random.default_rng(1).standard_normal((3, 1000), np.float32)
    for rows in (1, 2, 3):
        for expected in (Origin.COMPILED, Origin.RESTORED):
            with load(model, onnxruntime_daemon.address, shapes={"x": (rows, 1000)}) as session:
                assert session.report.origin is expected
                (output,) = session.run({"x": given[:rows]}).values()
                wait_until_cached()
            np.testing.assert_allclose(output, given[:rows] @ weights.T, rtol=1e-4, atol=1e-4)
    assert (count(directory, SUFFIX), count(directory, PART_SUFFIX)) == (3, 1)


@pytest.mark.parametrize("damage", ["changed", "shorter", "gone"])
def test_weights_that_are_damaged(
    onnxruntime_daemon: DaemonProcess, directory: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    """The daemon sees what the client doesn't look at; both are kept again."""
    model = weighted_model(ELEMENTS)
    assert origin(model, onnxruntime_daemon.address) is Origin.COMPILED
    (part,) = directory.glob(f"*{PART_SUFFIX}")
    sound = part.read_bytes()
    if damage == "gone":
        part.unlink()
    else:
        part.write_bytes(sound[:-1] + (bytes([sound[-1] ^ 1]) if damage == "changed" else b""))
    assert origin(model, onnxruntime_daemon.address) is Origin.COMPILED
    assert "is removed and will be compiled again" in caplog.text
    assert part.read_bytes() == sound
    assert origin(model, onnxruntime_daemon.address) is Origin.RESTORED


def test_the_least_recently_used_make_room(
    restoring_daemon: DaemonProcess, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their weights; what is used stays."""
    monkeypatch.setenv("NNRT_CACHE_BYTES", str(5 * WEIGHTS_BYTES // 2))
    models = [weighted_model(ELEMENTS, seed) for seed in range(3)]
    address = restoring_daemon.address
    assert [origin(models[index], address) for index in (0, 1)] == [Origin.COMPILED] * 2
    assert origin(models[0], address) is Origin.RESTORED
    assert origin(models[2], address) is Origin.COMPILED
    assert (count(directory, SUFFIX), count(directory, PART_SUFFIX)) == (2, 2)
    assert [origin(models[index], address) for index in (2, 0)] == [Origin.RESTORED] * 2
    assert origin(models[1], address) is Origin.COMPILED
    assert [entry.damage() for entry in StoreDirectory(directory).entries()] == [""] * 2


def test_a_bound_that_is_no_number(restoring_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_CACHE_BYTES", "4 GiB")
    with pytest.raises(InvalidParameter, match="NNRT_CACHE_BYTES is '4 GiB'; use a number of bytes"):
        load(identity_model(), restoring_daemon.address)


def test_no_room_at_all(
    restoring_daemon: DaemonProcess, directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NNRT_CACHE_BYTES", "100")
    assert [origin(identity_model(), restoring_daemon.address) for _ in range(2)] == [Origin.COMPILED] * 2
    assert "NNRT_CACHE_BYTES is 100" in caplog.text


def test_a_directory_that_others_may_write_to(
    restoring_daemon: DaemonProcess, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who writes there decides what a device loads."""
    directory.mkdir(parents=True)
    directory.chmod(0o777)
    assert origin(identity_model(), restoring_daemon.address) is Origin.COMPILED
    assert "others may write to it" in caplog.text
    assert list(directory.iterdir()) == []


@pytest.mark.slow
def test_processes_that_share_it(restoring_daemon: DaemonProcess, directory: Path) -> None:
    """All get right numbers, from what is theirs or another's."""
    models = [weighted_model(ELEMENTS, seed) for seed in range(3)]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for index in np.random.default_rng(number).integers(3, size=4):
                with load(models[index], restoring_daemon.address) as session:
                    (output,) = session.run({"x": [0.5]}).values()
                    wait_until_cached()
                (weights,) = parts_of(models[index]).graph.constants.values()
                assert weights.data is not None
                np.testing.assert_array_equal(output, weights.data + np.float32(0.5))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not failures
    until(lambda: not list(directory.glob("*.tmp")))
    assert [entry.damage() for entry in StoreDirectory(directory).entries()] == [""] * 3
