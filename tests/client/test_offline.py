"""Offline models: files that were compiled before, and load on every device of their kind."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from caching import other_device, outputs
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model, weighted_model

from nnrt_client import (
    Compilation,
    Device,
    InvalidFile,
    InvalidParameter,
    InvalidPath,
    NnrtError,
    OperationFailed,
    OperationForbidden,
    Origin,
    Runtime,
)
from nnrt_client.model.model import parts_of
from nnrt_hdi.files.graph_file import packed_graph


@pytest.fixture
def device(restoring_daemon: DaemonProcess) -> Iterator[Device]:
    with Runtime([restoring_daemon.address]) as runtime:
        yield runtime.device()


@pytest.fixture
def offline(device: Device, tmp_path: Path) -> tuple[Path, bytes]:
    """An offline model in a file, and its outputs."""
    with Compilation(convolution_model(), device) as compilation:
        compilation.enable_float16()
        compilation.build()
        (tmp_path / "model").write_bytes(compilation.export_cache())
        return tmp_path / "model", outputs(compilation)


def test_file_and_buffer(device: Device, offline: tuple[Path, bytes]) -> None:
    """They give equal outputs to the last bit, and word of what was saved."""
    path, expected = offline
    for compilation in (
        Compilation.from_offline_file(path, device),
        Compilation.from_offline_file(str(path), lambda: device),
        Compilation.from_offline_buffer(bytearray(path.read_bytes()), device),
    ):
        with compilation:
            compilation.build()
            assert compilation.origin is Origin.RESTORED
            assert compilation.report is not None
            assert compilation.report.saved_s is not None
            assert outputs(compilation) == expected
            assert compilation.export_cache() == path.read_bytes()


def test_another_device_of_the_kind(offline: tuple[Path, bytes], start_daemon: StartDaemon) -> None:
    """Its name does not matter."""
    path, expected = offline
    with (
        other_device(start_daemon, "--backend", "restoring", "--name", "another") as other,
        Compilation.from_offline_file(path, other) as compilation,
    ):
        compilation.build()
        assert outputs(compilation) == expected


@pytest.mark.parametrize(
    "arguments",
    [("--backend", "cached", "--name", "restoring"), ("--backend", "restoring", "--option", "version=2")],
    ids=["backend", "version"],
)
def test_another_kind_of_device(
    offline: tuple[Path, bytes], start_daemon: StartDaemon, arguments: tuple[str, ...]
) -> None:
    """Refused for good, as a device refuses."""
    with other_device(start_daemon, *arguments) as other:
        compilation = Compilation.from_offline_file(offline[0], other)
        with pytest.raises(OperationFailed, match="it was made for restoring 1 "):
            compilation.build()
        with pytest.raises(InvalidParameter, match="has failed"):
            compilation.build()


def to_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-9] ^= 4
    path.write_bytes(data)


UNSOUND: dict[str, tuple[Callable[[Path], object], type[NnrtError]]] = {
    "missing": (lambda path: path.unlink(), InvalidPath),
    "empty": (lambda path: path.write_bytes(b""), InvalidFile),
    "cut off": (lambda path: path.write_bytes(path.read_bytes()[:-1]), InvalidFile),
    "one bit": (flip_a_bit, InvalidFile),
    "a directory": (to_directory, InvalidFile),
    "a graph": (
        lambda path: path.write_bytes(b"".join(packed_graph(parts_of(convolution_model()).graph))),
        InvalidFile,
    ),
}


@pytest.mark.parametrize(("spoil", "error"), UNSOUND.values(), ids=UNSOUND)
def test_unsound_file(
    device: Device, offline: tuple[Path, bytes], spoil: Callable[[Path], object], error: type[NnrtError]
) -> None:
    """Nothing is opened before the build, which may be tried again when the file has been mended."""
    path, expected = offline
    sound = path.read_bytes()
    spoil(path)
    with Compilation.from_offline_file(path, device) as compilation:
        with pytest.raises(error, match=f"offline model {path}"):
            compilation.build()
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(sound)
        compilation.build()
        assert outputs(compilation) == expected


def test_empty_buffer(device: Device) -> None:
    with pytest.raises(InvalidParameter, match="the offline model is empty"):
        Compilation.from_offline_buffer(b"", device)


def test_vendors_own_file(device: Device, tmp_path: Path) -> None:
    """Goes to the device as it is, with the options that are set; which alone knows whether it is good."""
    path = tmp_path / "model.vendor"
    path.write_bytes(b"vendor: " + b"".join(packed_graph(parts_of(weighted_model(1 << 16)).graph)))
    with Compilation.from_offline_file(path, device) as compilation:
        compilation.enable_float16()
        compilation.build()
        assert compilation.origin is Origin.RESTORED
        assert compilation.report is not None
        assert compilation.report.saved_s is None
        blob = compilation.export_cache()
    with Compilation.for_cache(device) as compilation:
        compilation.import_cache(blob)
        compilation.build()
    path.write_bytes(b"no vendor's")
    compilation = Compilation.from_offline_file(path, device)
    with pytest.raises(OperationFailed, match="no model of the restoring backend"):
        compilation.build()
    with pytest.raises(OperationForbidden):
        compilation.enable_float16()


def test_option_that_it_was_not_compiled_with(device: Device, offline: tuple[Path, bytes]) -> None:
    with Compilation.from_offline_file(offline[0], device) as compilation:
        compilation.enable_float16(False)
        with pytest.raises(InvalidFile, match="compiled with float16 True, and False is set"):
            compilation.build()
        compilation.enable_float16()
        compilation.build()


def test_no_cache_directory_is_consulted(device: Device, offline: tuple[Path, bytes], tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    with Compilation.from_offline_file(offline[0], device) as compilation:
        compilation.set_cache(tmp_path / "cache", 1)
        compilation.build()
    assert not list((tmp_path / "cache").iterdir())
