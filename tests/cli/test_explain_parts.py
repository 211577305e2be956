"""`--fallback`: which part of an ONNX model runs where, and runs in parts."""

from pathlib import Path

import numpy as np
import pytest
from daemon_process import DaemonProcess
from onnx import TensorProto, helper, numpy_helper

from cli.command import json_output, nnrt, refused, saved
from nnrt_client import Model, OperationType


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Model of two matrix products with an Acos between them, which NNRt lacks; its name contains markup."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "weight"], ["a"], name="first"),
            helper.make_node("Acos", ["a"], ["b"], name="<b>strange</b>"),
            helper.make_node("MatMul", ["b", "weight"], ["y"], name="last"),
        ],
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3])],
        [numpy_helper.from_array(np.eye(3, dtype=np.float32), "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "rows.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "rows.onnx"


def test_parts(shared_daemon: DaemonProcess, path: Path) -> None:
    """For each part on the device the command shows 48 bytes to it and 48 bytes back."""
    command = ("explain", path, "--device", shared_daemon.address, "--fallback", "cpu")
    shown = json_output(*command)
    assert [(part["device"], part["nodes"], part["crossing_bytes"]) for part in shown["parts"]] == [
        (shown["device"], ["first"], 96),
        (None, ["<b>strange</b>"], 0),
        (shown["device"], ["last"], 96),
    ]
    result = nnrt(*command)
    assert result.exit_code == 0
    assert "runs 2 of 3 ONNX operators" in result.stdout
    (reason,) = [line for line in result.stdout.splitlines() if line.startswith("2. ")]
    assert "Acos node '<b>strange</b>': no operation of NNRt" in reason


def test_a_drawing(shared_daemon: DaemonProcess, path: Path, tmp_path: Path) -> None:
    """The drawing has a frame per part with its operators, and a line per tensor from writer to reader."""
    chart = tmp_path / "parts.mmd"
    command = ("explain", path, "--device", shared_daemon.address, "--fallback", "cpu", "--mermaid", chart)
    assert nnrt(*command).exit_code == 0
    text = chart.read_text()
    device = json_output("explain", path, "--device", shared_daemon.address, "--fallback", "cpu")["parts"][0]["device"]
    assert [line.partition('"')[2] for line in text.splitlines() if line.startswith("subgraph")] == [
        f'part 1, on {device}"]',
        'part 2, on this host"]',
        f'part 3, on {device}"]',
    ]
    assert [line[:2] + line[-2:] for line in text.splitlines() if "-->" in line] == ["n0n1", "n1n2", "n2n3", "n3n4"]
    assert "<b>" not in text
    assert "#60;b#62;strange" in text


def test_wrong_uses(shared_daemon: DaemonProcess, path: Path, tmp_path: Path) -> None:
    device = ("--device", shared_daemon.address)
    assert "--mermaid draws the parts" in refused(2, "explain", path, *device, "--mermaid", tmp_path / "parts.mmd")
    assert "give --fallback cpu" in refused(2, "explain", path, *device, "--smallest-part", "8")
    assert "gpu" in refused(2, "explain", path, *device, "--fallback", "gpu")
    model = Model()
    x = model.input((1, 4))
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.RELU, x)])
    model.finish()
    other = saved(model, tmp_path / "other.nnrt")
    assert "only ONNX models" in refused(1, "explain", other, *device, "--fallback", "cpu")
    path.write_bytes(b"\x08nothing")
    assert "no ONNX file" in refused(1, "explain", path, *device, "--fallback", "cpu")


@pytest.mark.parametrize("command", ["run", "bench"])
def test_runs_in_parts(shared_daemon: DaemonProcess, path: Path, tmp_path: Path, command: str) -> None:
    np.save(tmp_path / "x.npy", np.full((4, 3), 0.5, np.float32))
    fast = ("--window", "0.05", "--max-windows", "3") if command == "bench" else ()
    arguments = (command, path, "--device", shared_daemon.address, "--input", tmp_path / "x.npy", *fast)
    assert "Acos" in refused(1, *arguments)
    shown = json_output(*arguments, "--fallback", "cpu")
    assert shown["way"] == "partition"
    assert set(shown["passed_over"]) == {"operators", "program"}
    shown = json_output(*arguments, "--fallback", "cpu", "--smallest-part", 1, "--way", "partition")
    assert (shown["way"], shown["passed_over"]) == ("partition", {})
    assert "give --fallback cpu as well" in refused(2, *arguments, "--way", "partition")
    assert "give --fallback cpu with it" in refused(2, *arguments, "--smallest-part", 1)
