"""What a device says of operators that it runs, but not quite as asked."""

from pathlib import Path

import numpy as np
import pytest
from cli.command import json_output, nnrt, saved
from conftest import StartDaemon

from nnrt_client import BuildReport, Compilation, DataType, Device, Model, OperationType, Origin, Runtime, load

# As plugins/noting_backend.py has it.
NOTE = "computed in FLOAT32"
NOTES = {NOTE: 2}


@pytest.fixture
def model() -> Model:
    """Two operators in FLOAT16, and one in FLOAT32."""
    model = Model()
    half, single = model.input((2,), DataType.FLOAT16, name="half"), model.input((2,), name="single")
    sums = model.apply(OperationType.ADD, half, np.ones(2, np.float16), name="sums")
    outputs = [model.apply(OperationType.RELU, sums), model.apply(OperationType.RELU, single)]
    model.specify_inputs_and_outputs([half, single], outputs)
    model.finish()
    return model


def built(model: Model, device: Device, cache: Path | None = None) -> BuildReport:
    with Compilation(model, device) as compilation:
        if cache:
            compilation.set_cache(cache, 1)
        compilation.build()
        assert compilation.report is not None
        return compilation.report


def test_explain_tells_notes(start_daemon: StartDaemon, model: Model, tmp_path: Path) -> None:
    path, address = saved(model, tmp_path / "model"), start_daemon("--backend", "noting").address
    document = json_output("explain", path, "--device", address)
    assert document["supported"] is True
    assert [operator["note"] for operator in document["operators"]] == [NOTE, NOTE, ""]
    result = nnrt("explain", path, "--device", address)
    assert result.exit_code == 0
    assert [line.partition("yes")[2].strip() for line in result.stdout.splitlines() if "yes" in line] == [
        f", {NOTE}",
        f", {NOTE}",
        "",
    ]


def test_a_run_tells_notes(start_daemon: StartDaemon, tmp_path: Path) -> None:
    model = Model()
    x = model.input((2,), DataType.FLOAT16)
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ADD, x, np.ones(2, np.float16))])
    model.finish()
    np.save(tmp_path / "x.npy", np.ones(2, np.float16))
    address = start_daemon("--backend", "noting").address
    command = ("run", saved(model, tmp_path / "model"), "--input", tmp_path / "x.npy", "--device", address)
    assert json_output(*command)["notes"] == {NOTE: 1}
    assert f"1 operator: {NOTE}" in nnrt(*command).stdout


def test_applications_are_told(start_daemon: StartDaemon, model: Model) -> None:
    with Runtime([start_daemon("--backend", "noting").address]) as runtime:
        answers = model.supported_operations(runtime.device())
    assert [(answer.supported, answer.note) for answer in answers] == [(True, NOTE), (True, NOTE), (True, "")]


def test_reports_tell_notes_wherever_a_model_comes_from(
    start_daemon: StartDaemon, model: Model, tmp_path: Path
) -> None:
    """The daemon's store and the application's cache keep them with the model."""
    daemon = start_daemon("--backend", "noting", "--store-dir", str(tmp_path / "store"))
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        reports = [built(model, device, tmp_path), built(model, device), built(model, device, tmp_path)]
    assert [report.origin for report in reports] == [Origin.COMPILED, Origin.STORED, Origin.RESTORED]
    assert [report.notes for report in reports] == [NOTES] * 3
    with load(saved(model, tmp_path / "model"), daemon.address) as session:
        assert session.report.notes == NOTES
        assert str(session.report).endswith(f"; 2 operators: {NOTE}")
