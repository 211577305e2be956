"""The command `nnrt compile`."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model

from cli.command import NOBODY, nnrt
from nnrt_client import Compilation, Executor, Runtime
from nnrt_hdi.enums import PerformanceMode
from nnrt_hdi.files.compiled import CompiledModel


def run(*arguments: object) -> Result:
    return nnrt("compile", *arguments)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    convolution_model().save(tmp_path / "model.nnrt")
    return tmp_path / "model.nnrt"


def test_compiles(restoring_daemon: DaemonProcess, saved: Path, tmp_path: Path) -> None:
    """The written file loads on the same device, and computes the same."""
    output = tmp_path / "compiled"
    result = run(saved, "--device", restoring_daemon.address, "-o", output)
    assert result.exit_code == 0
    told = f"wrote {output}, {output.stat().st_size} bytes, for restoring 1 (test, OTHER), in "
    assert result.stdout.startswith(told)
    assert result.stdout.count("\n") == 1
    image, answers = np.ones((1, 8, 8, 1), np.float32), []
    with Runtime([restoring_daemon.address]) as runtime:
        for compilation in (
            Compilation(convolution_model(), runtime.device()),
            Compilation.from_offline_file(output, runtime.device()),
        ):
            with compilation:
                compilation.build()
                with Executor(compilation) as executor:
                    answers.append(executor.run_sync([image])[0])
    np.testing.assert_array_equal(answers[0], answers[1])


def test_an_offline_model_is_compiled_already(restoring_daemon: DaemonProcess, saved: Path, tmp_path: Path) -> None:
    assert run(saved, "--device", restoring_daemon.address, "-o", tmp_path / "compiled").exit_code == 0
    result = run(tmp_path / "compiled", "--device", restoring_daemon.address, "-o", tmp_path / "again")
    assert result.exit_code == 1
    assert "it is compiled already" in result.stderr


def test_options_and_json(
    restoring_daemon: DaemonProcess, saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device can be given by name, and the file records every option."""
    monkeypatch.setenv("NNRT_DEVICES", restoring_daemon.address)
    output = tmp_path / "compiled"
    options = ("--float16", "--performance-mode", "high", "--extension", "opLayout=a=b", "--extension", "x=y")
    result = run(saved, "--device", "restoring_test_v2_1", "-o", output, "--json", *options)
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told.pop("seconds") > 0
    assert told == {
        "file": str(output),
        "size_bytes": output.stat().st_size,
        "vendor": "test",
        "device_type": "OTHER",
        "backend": "restoring",
        "backend_version": "1",
    }
    config = CompiledModel.unpacked(output.read_bytes()).config
    assert config.enable_float16
    assert config.mode is PerformanceMode.HIGH
    assert config.extensions == {"opLayout": b"a=b", "x": b"y"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument 'MODEL'"),
        (("model", "-o", "out"), "Missing option '--device'"),
        (("model", "--device", NOBODY), "Missing option '-o'"),
        (
            ("model", "--device", "name", "-o", "out"),
            "'name' is no address, such as HOST:PORT or unix:PATH; to find a device by its",
        ),
        (("model", "--device", NOBODY, "-o", "out", "--performance-mode", "fast"), "'fast' is not one of"),
        (("model", "--device", NOBODY, "-o", "out", "--extension", "x"), "'x' is not NAME=VALUE"),
    ],
)
def test_wrong_use(arguments: tuple[str, ...], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output


@pytest.mark.parametrize(
    ("model", "device", "folder", "message"),
    [
        ("missing", None, ".", "no such file"),
        ("damaged", None, ".", "it is neither an ONNX model nor"),
        ("model.nnrt", NOBODY, ".", f"device at {NOBODY}: no daemon answers there"),
        ("model.nnrt", None, "missing", "there is no such directory"),
    ],
)
def test_failures(
    restoring_daemon: DaemonProcess,
    saved: Path,
    tmp_path: Path,
    model: str,
    device: str | None,
    folder: str,
    message: str,
) -> None:
    """A failure prints one line, and leaves an existing file unchanged."""
    (tmp_path / "damaged").write_bytes(b"no model")
    (tmp_path / "out").write_bytes(b"before")
    result = run(tmp_path / model, "--device", device or restoring_daemon.address, "-o", tmp_path / folder / "out")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr.lower() or message in result.stderr
    assert (tmp_path / "out").read_bytes() == b"before"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--backend", "silent"), "does not export compiled models"),
        (("--backend", "restoring", "--option", "refuse=compiling"), "refuses compiling"),
        (("--backend", "restoring", "--option", "refuse=exporting"), "refuses exporting"),
    ],
)
def test_device_that_does_not(
    start_daemon: StartDaemon, saved: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    result = run(saved, "--device", start_daemon(*arguments).address, "-o", tmp_path / "out")
    assert result.exit_code == 1
    assert message in result.stderr
    assert not (tmp_path / "out").exists()
