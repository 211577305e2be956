"""Caches of compiled models: written, found again, and refused whenever one bit of them is not what was written."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from caching import cache_file, cached, origin, other_device, outputs, write_cache
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model, identity_model, weighted_model
from waiting import until

from nnrt_client import (
    Compilation,
    DataType,
    Device,
    Executor,
    InvalidFile,
    InvalidParameter,
    InvalidPath,
    Model,
    OperationFailed,
    OperationForbidden,
    OperationType,
    Origin,
    PerformanceMode,
    Priority,
    Runtime,
    SaveCacheFailed,
    Settings,
    TensorDesc,
    Unsupported,
)
from nnrt_client.build.cache import FILE_NAME, NO_VERSION
from nnrt_client.oh_nn import OH_NN_INVALID_FILE, OH_NNCompilation, OH_NNCompilation_SetCache
from nnrt_hdi.files.atomic_write import temporary_name
from nnrt_hdi.files.compiled import CompiledModel
from nnrt_hdi.files.file_part import FilePart


@pytest.fixture
def device(restoring_daemon: DaemonProcess) -> Iterator[Device]:
    with Runtime([restoring_daemon.address]) as runtime:
        yield runtime.device()


# ---- from one build to the next


def test_second_build_restores(device: Device, tmp_path: Path) -> None:
    """With the same numbers to the last bit, no compilation, and word of what was saved."""
    with cached(tmp_path)(device) as first:
        stages: list[str] = []
        first.build(lambda stage, fraction: stages.append(stage))
        assert first.origin is Origin.COMPILED
        assert list(dict.fromkeys(stages)) == ["checking", "uploading", "compiling", "storing"]
        assert first.report is not None
        assert first.report.saved_s is None
        expected = outputs(first)
    assert [path.name for path in tmp_path.rglob("*")] == [f"{device.id:016x}", FILE_NAME]
    with cached(tmp_path)(device) as second:
        stages.clear()
        second.build(lambda stage, fraction: stages.append(stage))
        assert "compiling" not in stages
        assert outputs(second) == expected
        report = second.report
        assert report is not None
        assert report.origin is second.origin is Origin.RESTORED
        compiled_in_s = CompiledModel.unpacked(cache_file(tmp_path, device).read_bytes()).build_s
        assert compiled_in_s
        assert report.compiled_in_s == compiled_in_s > 0
        assert report.saved_s == pytest.approx(compiled_in_s - report.total_s)


def test_cache_without_a_model(device: Device, tmp_path: Path) -> None:
    """A cache says itself what a run takes and gives, and with which options it was compiled."""
    with cached(tmp_path)(device) as first:
        first.enable_float16()
        first.set_performance_mode(PerformanceMode.HIGH)
        first.add_extension_config("opLayout", b"conv1")
        first.build()
        expected = outputs(first)
    with Compilation.for_cache(device) as second:
        second.set_cache(tmp_path, 1)
        second.set_priority(Priority.HIGH)
        second.build()
        assert outputs(second) == expected
        with Executor(second) as executor:
            assert executor.input_desc(0).name == "image"
            assert executor.input_desc(0).shape == (-1, 8, 8, 1)


def test_cache_survives_the_daemon(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--backend", "restoring")
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        write_cache(tmp_path, device)
        daemon.kill()
        start_daemon("--backend", "restoring", listen=daemon.address)
        assert origin(cached(tmp_path)(device)) is Origin.RESTORED


@pytest.mark.parametrize("message_bytes", [64 << 10, 2 << 20])
def test_large_parts_are_uploaded_in_pieces(start_daemon: StartDaemon, tmp_path: Path, message_bytes: int) -> None:
    """More than a message takes; and what the daemon still has is not sent again."""
    with other_device(start_daemon, "--backend", "restoring", "--message-bytes", str(message_bytes)) as device:
        model = weighted_model(1 << 20)  # 4 MiB.
        write_cache(tmp_path, device, model=model)
        sent = []
        for _ in range(2):
            with cached(tmp_path, model=model)(device) as compilation:
                compilation.build()
                assert compilation.origin is Origin.RESTORED
                assert compilation.report is not None
                sent.append(compilation.report.sent_bytes)
        assert sent[0] > 4 << 20
        assert sent[1] < sent[0] / 100


def test_blob(device: Device) -> None:
    """Self-contained, and of version 0."""
    with Compilation(convolution_model(), device) as compilation:
        compilation.build()
        blob = compilation.export_cache()
        assert blob == compilation.export_cache()
        expected = outputs(compilation)
    assert CompiledModel.unpacked(blob).version == 0
    with Compilation.for_cache(device) as imported:
        imported.import_cache(memoryview(bytearray(blob)))
        imported.build()
        assert imported.origin is Origin.RESTORED
        assert outputs(imported) == expected
        assert imported.export_cache() == blob


# ---- SetCache: what is there, what it says, what a build then does


def test_no_cache_yet(device: Device, tmp_path: Path) -> None:
    """Case 1; foreign files, and what a writer left that crashed, are no cache."""
    folder = tmp_path / f"{device.id:016x}"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    left = folder / temporary_name("cache", "0123")
    left.write_bytes(b"half")
    write_cache(tmp_path, device)
    assert (folder / "notes.txt").read_text() == "mine"
    assert not left.exists()
    assert origin(cached(tmp_path)(device)) is Origin.RESTORED


def test_earlier_version_is_replaced(device: Device, tmp_path: Path) -> None:
    """Case 3, also by another model: that is what a version is for."""
    file = write_cache(tmp_path, device, 1)
    write_cache(tmp_path, device, 2, identity_model())
    assert CompiledModel.unpacked(file.read_bytes()).version == 2
    assert origin(cached(tmp_path, 2, identity_model())(device)) is Origin.RESTORED


def test_later_version(device: Device, tmp_path: Path) -> None:
    """Case 4: refused, and a build is as if there had been no such call."""
    file = write_cache(tmp_path, device, 3)
    before = file.read_bytes()
    with Compilation(convolution_model(), device) as compilation:
        with pytest.raises(InvalidParameter, match="it has version 3, and 2 was given"):
            compilation.set_cache(tmp_path, 2)
        compilation.build()
        assert compilation.origin is Origin.COMPILED
    assert file.read_bytes() == before


def to_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def to_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda file: file.write_bytes(b""),
    "cut off": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "longer": lambda file: file.write_bytes(file.read_bytes() + b"\0"),
    "another file": lambda file: file.write_bytes(b"#!/bin/sh\n" * 100),
    "a directory": to_directory,
    "a pipe": to_pipe,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damaged_cache(device: Device, tmp_path: Path, damage: Callable[[Path], object]) -> None:
    """Case 5: refused whatever version is given, left as it is, and a build is as if there had been no such call."""
    file = write_cache(tmp_path, device)
    waiting = cached(tmp_path)(device)
    damage(file)
    before = file.read_bytes() if file.is_file() else b""
    with Compilation(convolution_model(), device) as compilation:
        for version in (0, 1, 2):
            with pytest.raises(InvalidFile, match=FILE_NAME):
                compilation.set_cache(tmp_path, version)
        compilation.build()
    # Damaged between the call and the build: never silently compiled over, and still to be mended.
    for _ in range(2):
        with pytest.raises(InvalidFile):
            waiting.build()
    assert (file.read_bytes() if file.is_file() else b"") == before
    file.rmdir() if file.is_dir() else file.unlink()
    assert origin(waiting) is Origin.COMPILED


def in_directory(device: Device, file: Path) -> Compilation:
    compilation = Compilation.for_cache(device)
    compilation.set_cache(file.parent.parent, 1)
    return compilation


def beside_the_model(device: Device, file: Path) -> Compilation:
    return cached(file.parent.parent, model=large_model())(device)


def imported(device: Device, file: Path) -> Compilation:
    compilation = Compilation.for_cache(device)
    compilation.import_cache(file.read_bytes())
    return compilation


def offline(device: Device, file: Path) -> Compilation:
    return Compilation.from_offline_file(file, device)


def is_closed(file: Path, pid: int) -> bool:
    """No descriptor of a process leads to a file."""
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # It has just been closed.
            found.add(link.readlink())
    return file not in found


def large_model() -> Model:
    return weighted_model(1 << 20)  # 4 MiB, which a daemon on this host reads itself.


@pytest.mark.parametrize("configured", [in_directory, beside_the_model, imported, offline])
def test_damaged_large_part(
    device: Device, tmp_path: Path, configured: Callable[[Device, Path], Compilation], caplog: pytest.LogCaptureFixture
) -> None:
    """The daemon finds it, and the build refuses the file, which stays as it is; whole again it can be loaded."""
    file = write_cache(tmp_path, device, model=large_model())
    good = file.read_bytes()
    damaged = bytearray(good)
    damaged[-100] ^= 1
    file.write_bytes(damaged)
    with configured(device, file) as compilation, pytest.raises(InvalidFile, match="part 1 is not what was written"):
        compilation.build()
    assert file.read_bytes() == damaged
    assert "compiles" not in caplog.text
    file.write_bytes(good)
    assert origin(configured(device, file)) is Origin.RESTORED


def test_damaged_large_part_that_is_looked_for(device: Device, tmp_path: Path) -> None:
    """As NNRt has it, whose SetCache tells of all damage."""
    file = write_cache(tmp_path, device, model=large_model())
    good = file.read_bytes()
    file.write_bytes(good[:-100] + bytes([good[-100] ^ 1]) + good[-99:])
    with Compilation.for_cache(device) as compilation:
        with pytest.raises(InvalidFile, match="part 1 is not what was written"):
            compilation.set_cache(tmp_path, 1, reads_all=True)
        assert OH_NNCompilation_SetCache(OH_NNCompilation(compilation), str(tmp_path), 1) == OH_NN_INVALID_FILE
        file.write_bytes(good)
        compilation.set_cache(tmp_path, 1, reads_all=True)
        assert origin(compilation) is Origin.RESTORED


@pytest.mark.parametrize("share_memory", [True, False])
def test_cache_that_is_cut_short_while_it_is_sent(
    restoring_daemon: DaemonProcess, tmp_path: Path, share_memory: bool
) -> None:
    """Large parts are read on their way, and what is missing then is an error of the file."""
    with Runtime([restoring_daemon.address], settings=Settings(share_memory=share_memory)) as runtime:
        device = runtime.device()
        file = write_cache(tmp_path, device, model=large_model())

        def cut(stage: str, fraction: float) -> None:
            os.truncate(file, file.stat().st_size - 1)

        with in_directory(device, file) as compilation, pytest.raises(InvalidFile, match="cut off"):
            compilation.build(progress=cut)


def test_a_daemon_on_this_host_reads_the_file(
    device: Device, tmp_path: Path, restoring_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client reads none of its large parts; neither keeps it open for longer than it takes."""
    file = write_cache(tmp_path, device, model=large_model())
    monkeypatch.setattr(FilePart, "fill", None)
    assert origin(in_directory(device, file)) is Origin.RESTORED
    for pid in (os.getpid(), restoring_daemon.pid):
        until(partial(is_closed, file, pid))


def test_a_file_that_is_not_in_memory(device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon doesn't wait for it, whatever a client takes it for, and the client reads it."""
    file = write_cache(tmp_path, device, model=large_model())
    monkeypatch.setattr(FilePart, "is_in_memory", lambda part, start: True)
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    assert origin(in_directory(device, file)) is Origin.RESTORED


@pytest.mark.parametrize("kind", ["missing", "a file", "below a file"])
def test_no_directory(device: Device, tmp_path: Path, kind: str) -> None:
    """Case 6, at the call, and at the build if it has gone since; also where the device is not known yet."""
    (tmp_path / "file").touch()
    place = {"missing": tmp_path / "none", "a file": tmp_path / "file", "below a file": tmp_path / "file" / "x"}[kind]
    with Compilation(identity_model(), device) as compilation:
        with pytest.raises(InvalidPath, match="no such directory"):
            compilation.set_cache(place, 1)
        compilation.set_device(nowhere)
        with pytest.raises(InvalidPath):
            compilation.set_cache(place, 1)
    (tmp_path / "gone").mkdir()
    with cached(tmp_path / "gone")(device) as compilation:
        (tmp_path / "gone").rmdir()
        with pytest.raises(InvalidPath):
            compilation.build()


def nowhere() -> Device:
    raise OperationFailed("there is no such device")


def test_order_of_the_checks(device: Device, tmp_path: Path) -> None:
    """A version counts only in a cache that is sound: it is the damage that is told."""
    file = write_cache(tmp_path, device, 5)
    file.write_bytes(file.read_bytes()[:-1])
    with Compilation(convolution_model(), device) as compilation, pytest.raises(InvalidFile):
        compilation.set_cache(tmp_path, 4)


@pytest.mark.parametrize("version", [-1, 1 << 32])
def test_no_such_version(device: Device, tmp_path: Path, version: int) -> None:
    with Compilation(identity_model(), device) as compilation, pytest.raises(InvalidParameter, match="the version is"):
        compilation.set_cache(tmp_path, version)


def test_reserved_version(device: Device, tmp_path: Path) -> None:
    """Accepted by the call, and refused by the build."""
    with cached(tmp_path, NO_VERSION)(device) as compilation, pytest.raises(InvalidParameter, match="4294967295"):
        compilation.build()
    assert not list(tmp_path.iterdir())


def test_device_without_caches(runtime: Runtime, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """SetCache succeeds and build does not; what is built without one can't be exported."""
    with other_device(start_daemon, "--backend", "silent") as device:
        compilation = cached(tmp_path, model=identity_model())(device)
        with pytest.raises(OperationForbidden, match="silent_test_v2_1 has no model caches"):
            compilation.build()
        with Compilation(identity_model(), device) as plain:
            plain.build()
            with pytest.raises(Unsupported):
                plain.export_cache()


# ---- whose cache it is


@pytest.mark.parametrize(
    "arguments",
    [("--name", "another"), ("--option", "version=2")],
    ids=["another device", "another version of the backend"],
)
def test_cache_of_another_device(
    device: Device, start_daemon: StartDaemon, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    """Refused from a directory, where it got by a copy, and from a buffer."""
    file = write_cache(tmp_path, device)
    blob = file.read_bytes()
    with other_device(start_daemon, "--backend", "restoring", *arguments) as other:
        there = cache_file(tmp_path, other)
        there.parent.mkdir(exist_ok=True)
        there.write_bytes(blob)
        with Compilation(convolution_model(), other) as compilation:
            for version in (0, 1, 2):
                with pytest.raises(InvalidFile, match="it was made for restoring_test_v2_1"):
                    compilation.set_cache(tmp_path, version)
            compilation.set_device(device)
            compilation.set_cache(tmp_path, 1)
            compilation.set_device(other)
            with pytest.raises(InvalidFile, match="it was made for"):
                compilation.build()
        with Compilation.for_cache(other) as compilation:
            compilation.import_cache(blob)
            with pytest.raises(InvalidFile, match="imported cache: it was made for"):
                compilation.build()


def test_cache_of_another_backend(device: Device, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Though the device has the same name."""
    blob = write_cache(tmp_path, device).read_bytes()
    with other_device(start_daemon, "--backend", "cached", "--name", "restoring") as other:
        assert other.id == device.id
        with Compilation(convolution_model(), other) as compilation, pytest.raises(InvalidFile, match="made for"):
            compilation.set_cache(tmp_path, 1)
        with Compilation.for_cache(other) as compilation:
            compilation.import_cache(blob)
            with pytest.raises(InvalidFile):
                compilation.build()


def test_cache_of_another_model(device: Device, tmp_path: Path) -> None:
    """At the call; at the build for a model that is finished only then."""
    file = write_cache(tmp_path, device)
    before = file.read_bytes()
    almost = convolution_model(seed=1)
    with Compilation(almost, device) as compilation, pytest.raises(InvalidFile, match="it is of another model"):
        compilation.set_cache(tmp_path, 1)
    late = Model()
    x = late.input((1,))
    late.specify_inputs_and_outputs([x], [late.apply(OperationType.RELU, x)])
    with cached(tmp_path, model=late)(device) as compilation:
        late.finish()
        with pytest.raises(InvalidFile, match="it is of another model"):
            compilation.build()
    assert file.read_bytes() == before


@pytest.mark.parametrize("version", [1.5, True, "1", None, -1, NO_VERSION + 1], ids=repr)
def test_no_version(device: Device, tmp_path: Path, version: Any) -> None:
    """Refused at once, instead of written into a file that nobody can read."""
    with Compilation(identity_model(), device) as compilation:
        with pytest.raises(InvalidParameter, match=r"the version is .*; use an integer 0\.\."):
            compilation.set_cache(tmp_path, version)
        compilation.set_cache(tmp_path, np.int64(1))
        compilation.build()
    assert origin(cached(tmp_path, 1, identity_model())(device)) is Origin.RESTORED


def malformed_model() -> Model:
    """Finished, but nothing gives the second operand."""
    model = Model()
    x, nothing, y = (model.add_tensor(TensorDesc(DataType.FLOAT32, (1,))) for _ in range(3))
    model.add_operation(OperationType.ADD, [], [x, nothing], [y])
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


@pytest.mark.parametrize("version", [None, 1])
def test_malformed_model(device: Device, tmp_path: Path, version: int | None) -> None:
    """Is for the build to see, unless there is a cache that could be of it."""
    if version:
        write_cache(tmp_path, device, version)
    with Compilation(malformed_model(), device) as compilation:
        compilation.set_cache(tmp_path, 2)
        with pytest.raises(InvalidParameter, match="nothing writes it"):
            compilation.build()


def test_models_of_different_names_share_a_directory(device: Device, tmp_path: Path) -> None:
    """`ModelName` is the runtime's, and may be given after the directory; no name leads out of it."""
    names = (b"", b"left", b"../right", b"\x00/etc/passwd")
    models = [weighted_model(100, seed) for seed in range(len(names))]

    def build(name: bytes, model: Model) -> Origin | None:
        compilation = Compilation(model, device)
        if not name:
            compilation.set_cache(tmp_path, 1)
        elif name == b"left":
            compilation.add_extension_config("ModelName", name)
            compilation.set_cache(tmp_path, 1)
        else:
            compilation = Compilation(model, device)
            compilation.add_extension_config("ModelName", name[:2])
            compilation.set_cache(tmp_path, 1)
            compilation.add_extension_config("ModelName", name[2:])
        return origin(compilation)

    for expected in (Origin.COMPILED, Origin.RESTORED):
        assert {build(name, model) for name, model in zip(names, models, strict=True)} == {expected}
    folder = tmp_path / f"{device.id:016x}"
    assert len(list(folder.iterdir())) == len(names)
    assert list(tmp_path.iterdir()) == [folder]


def test_model_name_is_not_for_the_device(runtime: Runtime, tmp_path: Path) -> None:
    """The reference backend refuses every extension."""
    with Compilation(identity_model(), runtime.device()) as compilation:
        compilation.add_extension_config("ModelName", b"mine")
        compilation.build()
        with pytest.raises(OperationForbidden):
            compilation.add_extension_config("ModelName", b"other")


OTHER_OPTIONS: dict[str, Callable[[Compilation], None]] = {
    "float16": lambda compilation: compilation.enable_float16(False),
    "mode": lambda compilation: compilation.set_performance_mode(PerformanceMode.LOW),
    "extensions": lambda compilation: compilation.add_extension_config("opLayout", b"conv2"),
}


@pytest.mark.parametrize("set_option", OTHER_OPTIONS.values(), ids=OTHER_OPTIONS)
def test_cache_with_other_options(device: Device, tmp_path: Path, set_option: Callable[[Compilation], None]) -> None:
    """Refused with a model, without one, and from a buffer; the priority is no matter of the cache."""
    with cached(tmp_path)(device) as compilation:
        compilation.enable_float16()
        compilation.build()
        blob = compilation.export_cache()
    with cached(tmp_path)(device) as compilation:
        with pytest.raises(InvalidFile, match="it was compiled with float16 True, and False is set"):
            compilation.build()  # What isn't set is neutral for a model.
        compilation.enable_float16()
        compilation.set_priority(Priority.LOW)
        assert origin(compilation) is Origin.RESTORED
    for source in ("directory", "buffer"):
        with Compilation.for_cache(device) as compilation:
            if source == "directory":
                compilation.set_cache(tmp_path, 1)
            else:
                compilation.import_cache(blob)
            set_option(compilation)
            with pytest.raises(InvalidFile, match="it was compiled with"):
                compilation.build()


@pytest.mark.parametrize("version", [0, 2])
def test_nothing_to_restore_and_no_model(device: Device, tmp_path: Path, version: int) -> None:
    """Cases 1 and 3 need a model."""
    if version:
        write_cache(tmp_path, device, version - 1)
    with Compilation.for_cache(device) as compilation:
        compilation.set_cache(tmp_path, version)
        with pytest.raises(InvalidParameter, match=f"there is none of version {version}"):
            compilation.build()


# ---- a device that does not do its part


def test_device_refuses_its_cache(device: Device, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """With a model it is compiled and written anew; without one the cache is no good."""
    file = write_cache(tmp_path, device)
    before = file.stat().st_ino
    with other_device(start_daemon, "--backend", "restoring", "--option", "refuse=restoring") as unwilling:
        assert origin(cached(tmp_path)(unwilling)) is Origin.COMPILED
        assert file.stat().st_ino != before
        compilation = Compilation.for_cache(unwilling)
        compilation.set_cache(tmp_path, 1)
        with pytest.raises(InvalidFile, match=r"the device does not take it: .*refuses restoring"):
            compilation.build()
        with pytest.raises(InvalidParameter):  # The device has decided.
            compilation.build()
    assert origin(cached(tmp_path)(device)) is Origin.RESTORED


def test_device_does_not_export(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The model is built and can be used; nothing is written."""
    with (
        other_device(start_daemon, "--backend", "restoring", "--option", "refuse=exporting") as unwilling,
        cached(tmp_path)(unwilling) as compilation,
    ):
        with pytest.raises(SaveCacheFailed, match=r"refuses exporting .*; the model can be used"):
            compilation.build()
        assert compilation.is_built
        assert compilation.origin is Origin.COMPILED
        assert outputs(compilation)
        with pytest.raises(SaveCacheFailed, match="refuses exporting"):
            compilation.export_cache()
    assert not list(tmp_path.rglob("*cache"))


def test_restored_model_is_not_the_one_of_the_manifest(device: Device, tmp_path: Path) -> None:
    """A device that makes something else of its cache is not believed."""
    file = write_cache(tmp_path, device)
    model = CompiledModel.unpacked(file.read_bytes())
    lying = CompiledModel(
        model.target, model.source_digest, model.config, model.outputs, model.outputs, model.version, model.parts
    )
    file.write_bytes(b"".join(lying.packed()))
    with cached(tmp_path)(device) as compilation, pytest.raises(InvalidFile, match="other inputs or outputs"):
        compilation.build()
