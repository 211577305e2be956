"""ONNX files that the user's cache knows: loaded again without import, and read where that isn't enough."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from daemon_process import DaemonProcess
from onnx import external_data_helper, numpy_helper
from program_models import parsed

from nnrt_client import Way, load, wait_until_cached
from nnrt_client.model_session import known_file, loading
from nnrt_client.model_session.known_file import SUFFIX, Records
from nnrt_client.onnx_import import import_onnx
from nnrt_client.onnxruntime import InferenceSession
from nnrt_hdi.files import store_directory
from nnrt_hdi.files.atomic_write import temporary_name

# So many that they travel by digest.
WIDTH = 1000
_AT_ONCE_NS = -1_000_000_000
_LATER_NS = 60_000_000_000


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own. Files settle as soon as they are written."""
    monkeypatch.setattr(known_file, "_SETTLED_NS", _AT_ONCE_NS)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "nnrt" / "models"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the readers that are called, as they are."""
    names: list[str] = []

    def counted(name: str) -> Callable[..., object]:
        function = getattr(loading, name)

        def read(*arguments: object, **options: object) -> object:
            names.append(name)
            return function(*arguments, **options)

        return read

    for name in ("import_onnx", "open_model", "program_from_onnx"):
        monkeypatch.setattr(loading, name, counted(name))
    return names


def sum_model(weight: float) -> onnx.ModelProto:
    """Build y = x + w."""
    model: onnx.ModelProto = parsed(f"f (float[{WIDTH}] x) => (float[{WIDTH}] y) {{ y = Add (x, w) }}")
    model.graph.initializer.append(numpy_helper.from_array(np.full(WIDTH, weight, "f4"), "w"))
    return model


def result(path: Path, address: str, **options: object) -> float:
    with load(path, address, **options) as session:  # type: ignore[arg-type]
        wait_until_cached()
        (output,) = session.run([np.zeros(WIDTH, "f4")]).values()
        return float(output[0])


def test_a_known_file_is_not_read(
    onnxruntime_daemon: DaemonProcess, directory: Path, tmp_path: Path, reads: list[str]
) -> None:
    onnx.save(sum_model(1), path := tmp_path / "m.onnx")
    address = onnxruntime_daemon.address
    with load(path, address):
        wait_until_cached()
        assert reads == ["import_onnx"]
        assert result(path, address) == 1
        shutil.copy2(path, copied := tmp_path / "other.onnx")  # Known by what it contains.
        assert result(copied, address) == 1
        assert reads == ["import_onnx"]
        assert result(path, address, cache=False) == 1
        assert result(path, address, shapes={"x": (WIDTH,)}) == 1
        assert len(reads) == 3
    assert result(path, address) == 1  # From the cache of compiled models.
    assert len(reads) == 3
    for compiled in directory.glob(f"*{store_directory.SUFFIX}"):
        compiled.unlink()
    # Nobody has the model any more, so the daemon asks for the weights.
    stages: list[str] = []
    assert result(path, address, progress=lambda stage, _: stages.append(stage)) == 1
    assert stages[:2] == ["reading", "checking"]
    assert len(reads) == 4


def test_another_file_in_its_place_is_read(
    onnxruntime_daemon: DaemonProcess,
    directory: Path,
    tmp_path: Path,
    reads: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, address = tmp_path / "m.onnx", onnxruntime_daemon.address
    for weight in (1.0, 2.0):
        onnx.save(sum_model(weight), path)
        assert result(path, address) == weight
    assert len(list(directory.glob(f"*-*{SUFFIX}"))) == 2
    monkeypatch.setattr(known_file, "_SETTLED_NS", _LATER_NS)
    onnx.save(sum_model(3), path)  # Too young to be kept: it may be written again at the same time.
    assert result(path, address) == 3
    assert len(list(directory.glob(f"*-*{SUFFIX}"))) == 2
    assert len(reads) == 3


def test_damaged_records_are_not_used(onnxruntime_daemon: DaemonProcess, directory: Path, tmp_path: Path) -> None:
    onnx.save(sum_model(1), path := tmp_path / "m.onnx")
    assert result(path, onnxruntime_daemon.address) == 1
    for record in directory.glob(f"*{SUFFIX}"):
        record.write_bytes(record.read_bytes()[:-1] + b"?")
    assert result(path, onnxruntime_daemon.address) == 1


def test_external_data_that_change_are_read(
    onnxruntime_daemon: DaemonProcess, tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, beside, address = tmp_path / "m.onnx", tmp_path / "w.bin", onnxruntime_daemon.address
    model = sum_model(1)
    external_data_helper.convert_model_to_external_data(model, location=beside.name)
    onnx.save(model, path)
    for weight in (2, 3, 4):
        (tmp_path / f"{weight}.bin").write_bytes(np.full(WIDTH, weight, "<f4").tobytes())
    with load(path, address):
        monkeypatch.setattr(known_file, "_SETTLED_NS", _LATER_NS)
        assert result(path, address, cache=tmp_path / "other") == 1
        assert result(path, address, cache=tmp_path / "other") == 1
        assert reads == ["import_onnx"] * 3  # The weights are too young.
        monkeypatch.setattr(known_file, "_SETTLED_NS", _AT_ONCE_NS)
        assert [result(path, address) for _ in range(2)] == [1, 1]
        assert len(reads) == 3
        for weight in (2, 3):  # A link to a file, then to another one.
            beside.unlink()
            beside.symlink_to(f"{weight}.bin")
            assert result(path, address) == weight

    def replaced(*arguments: object) -> object:
        imported = import_onnx(*arguments)  # type: ignore[arg-type]
        (tmp_path / "4.bin").replace(beside)
        return imported

    monkeypatch.setattr(loading, "import_onnx", replaced)
    beside.unlink()
    (tmp_path / "2.bin").rename(beside)
    with load(path, address):
        wait_until_cached()
        monkeypatch.setattr(loading, "import_onnx", import_onnx)
        assert result(path, address) == 4


def test_why_a_file_goes_as_a_program_is_known(
    onnxruntime_daemon: DaemonProcess, tmp_path: Path, reads: list[str]
) -> None:
    onnx.save(parsed("f (float[2, N] x) => (int64[2, K] y) { y = NonZero (x) }"), path := tmp_path / "m.onnx")
    with load(path, onnxruntime_daemon.address) as first:
        wait_until_cached()
        assert reads == ["import_onnx", "program_from_onnx"]
        with load(path, onnxruntime_daemon.address) as again:
            assert again.way is Way.PROGRAM
            assert again.report.passed_over == first.report.passed_over
            (output,) = again.run([np.array([[0, 1], [2, 0]], "f4")]).values()
            assert output.tolist() == [[0, 1], [1, 0]]
        assert len(reads) == 2


def test_a_known_header_is_not_read(
    onnxruntime_daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(
        parsed(f"f (float[N, {WIDTH}] x) => (float y) {{ y = ReduceSum <keepdims = 0> (x) }}"), path := tmp_path / "m"
    )
    providers = [("NnrtExecutionProvider", {"device": onnxruntime_daemon.address})]
    with InferenceSession(path, providers=providers) as first:
        wait_until_cached()
        monkeypatch.setitem(sys.modules, "nnrt_client.onnx_import.header", None)  # Importing it fails.
        with InferenceSession(path, providers=providers) as again:
            for one, other in zip(
                (*first.get_inputs(), *first.get_outputs()), (*again.get_inputs(), *again.get_outputs()), strict=True
            ):
                assert (one.name, one.type, one.shape) == (other.name, other.type, other.shape)
            assert again.get_inputs()[0].shape == ["N", WIDTH]
            assert again.get_outputs()[0].shape == []


def test_the_least_recently_used_records_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_file, "MAX_RECORDS", 2)
    records = Records(tmp_path)
    (tmp_path / temporary_name("file", "0")).touch()  # A crash has left it.
    for name in ("1-a", "2-b"):
        records.write(name, {}, b"")
        assert records.read(name) is not None
    assert records.read("1-a") is not None
    records.write("3-c", {"n": 1}, b"data")
    assert records.read("3-c") == ({"n": 1}, b"data")
    assert records.has_size(1)
    assert not records.has_size(2)
    assert len(list(tmp_path.glob(".nnrt-file*"))) == 0
