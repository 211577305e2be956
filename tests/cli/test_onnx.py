"""ONNX files with every command, and with sessions."""

from pathlib import Path

import numpy as np
import pytest
from daemon_process import DaemonProcess
from onnx import TensorProto, checker, helper, load_model, numpy_helper

from cli.command import nnrt, refused, told
from nnrt_client import load
from nnrt_client.model_session.opened_model import Kind, open_model

WEIGHT = np.array([[1, -1], [2, 0], [0, 3]], np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """y = relu(x @ WEIGHT), for any number of rows."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "weight"], ["product"], name="multiply"),
            helper.make_node("Relu", ["product"], ["y"], name="rectify"),
        ],
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 2])],
        [numpy_helper.from_array(WEIGHT, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    (tmp_path / "rows.onnx").write_bytes(model.SerializeToString())
    return tmp_path / "rows.onnx"


def test_it_is_told_apart(path: Path, tmp_path: Path) -> None:
    """By its name or by how it begins; shapes go through it."""
    other = tmp_path / "without_a_suffix"
    other.write_bytes(path.read_bytes())
    for source in (path, other, path.read_bytes()):
        opened = open_model(source, {"x": (4, 3)})
        assert opened.kind is Kind.ONNX
        assert [(spec.name, spec.shape) for spec in opened.inputs] == [("x", (4, 3))]
        assert [(spec.name, spec.shape) for spec in opened.outputs] == [("y", (4, 2))]
    assert [spec.shape for spec in open_model(path).inputs] == [(-1, 3)]


def test_commands(shared_daemon: DaemonProcess, restoring_daemon: DaemonProcess, path: Path, tmp_path: Path) -> None:
    """By hand: [1, 1, 1] gives [3, 2], and [-1, 0, 0] gives [0, 1]."""
    np.save(tmp_path / "x.npy", np.array([[1, 1, 1], [-1, 0, 0]], np.float32))
    device = ("--device", shared_daemon.address)
    assert told("inspect", path, "--html", tmp_path / "page.html")["kind"] == "ONNX model"
    assert told("explain", path, *device)["supported"] is True
    assert (
        told("run", path, *device, "--input", tmp_path / "x.npy", "-o", tmp_path / "out")["outputs"][0]["name"] == "y"
    )
    assert np.load(tmp_path / "out/y.npy").tolist() == [[3, 2], [0, 1]]
    assert nnrt("compile", path, *device, "-o", tmp_path / "offline").exit_code == 0
    assert told("run", tmp_path / "offline", *device, "--input", tmp_path / "x.npy")["outputs"][0]["max"] == 3
    both = (*device, "--device", restoring_daemon.address)
    assert told("compare", path, *both, "--shape", "x=5,3")["equal"] is True


def test_a_session(shared_daemon: DaemonProcess, path: Path) -> None:
    with load(path, shared_daemon.address) as session:
        assert session.run({"x": [[1, 1, 1]]})["y"].tolist() == [[3, 2]]


def test_what_can_not_be_imported(path: Path) -> None:
    """Every node is named, on one line."""
    model = load_model(path)
    model.graph.node.extend(
        [helper.make_node("Strange", ["y"], [f"z{at}"], name=f"strange{at}", domain="far.away") for at in range(2)]
    )
    model.graph.output.extend([helper.make_tensor_value_info(f"z{at}", TensorProto.FLOAT, None) for at in range(2)])
    model.opset_import.append(helper.make_opsetid("far.away", 1))
    path.write_bytes(model.SerializeToString())
    message = refused(1, "inspect", path)
    assert message.count("rows.onnx") == 1
    assert "strange0" in message
    assert "strange1" in message


def test_shapes_without_which_it_can_not_be_imported(path: Path) -> None:
    """It is imported with them only, and once."""
    model = load_model(path)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    path.write_bytes(model.SerializeToString())
    assert "its rank is not known; give its shape" in refused(1, "inspect", path)
    assert told("inspect", path, "--shape", "x=4,3")["outputs"][0]["shape"] == [4, 2]


def test_a_damaged_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    assert "rows.onnx" in refused(1, "inspect", path)
