"""ONNX files with every command, and with sessions."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from onnx import NodeProto, TensorProto, ValueInfoProto, checker, helper, load_model, numpy_helper

from cli.command import json_output, nnrt, refused
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
    assert json_output("inspect", path, "--mermaid", tmp_path / "graph.mmd")["kind"] == "ONNX model"
    assert json_output("explain", path, *device)["supported"] is True
    assert (
        json_output("run", path, *device, "--input", tmp_path / "x.npy", "-o", tmp_path / "out")["outputs"][0]["name"]
        == "y"
    )
    assert np.load(tmp_path / "out/y.npy").tolist() == [[3, 2], [0, 1]]
    assert nnrt("compile", path, *device, "-o", tmp_path / "offline").exit_code == 0
    assert json_output("run", tmp_path / "offline", *device, "--input", tmp_path / "x.npy")["outputs"][0]["max"] == 3
    both = (*device, "--device", restoring_daemon.address)
    assert json_output("compare", path, *both, "--shape", "x=5,3")["equal"] is True


def test_a_session(shared_daemon: DaemonProcess, path: Path) -> None:
    with load(path, shared_daemon.address) as session:
        assert session.run({"x": [[1, 1, 1]]})["y"].tolist() == [[3, 2]]


# ---- files that are imported


def test_inspect_shows_the_file_beside_the_model(path: Path) -> None:
    """Its operators and the model's, its operator sets, who made it, the names of its dimensions, what it carries."""
    model = load_model(path)
    model.producer_name, model.producer_version = "by hand", "1.0"
    helper.set_model_props(model, {"labels": "cat,dog", "long": "x" * 1000})
    path.write_bytes(model.SerializeToString())
    about = json_output("inspect", path)
    assert about["imported"] is True
    assert about["onnx"]["opsets"] == {"ai.onnx": 17}
    assert about["onnx"]["producer"] == "by hand 1.0"
    assert about["onnx"]["operators"] == {"MatMul": 1, "Relu": 1}
    assert about["onnx"]["metadata"] == {"labels": "cat,dog", "long": "x" * 1000}
    assert about["operators"] == {"MATMUL_FUSION": 1}
    assert [end["dimensions"] for end in about["inputs"] + about["outputs"]] == [["rows", 3], ["rows", 2]]
    text = nnrt("inspect", path).stdout
    for part in ("ai.onnx 17", "by hand 1.0", "[rows, 3]", "metadata labels: cat,dog", "MATMUL_FUSION"):
        assert part in text
    assert "x" * 200 in text
    assert "x" * 201 not in text
    assert json_output("inspect", path, "--shape", "x=4,3")["outputs"][0]["dimensions"] == [4, 2]


# ---- inputs that are always the same


@pytest.fixture
def branching(tmp_path: Path) -> Path:
    """x + 1 where the rate is 16000, else x - 1; both times the gain."""
    branches = [
        helper.make_graph(
            [helper.make_node(operator, ["x", "one"], [f"y{operator}"])],
            operator,
            [],
            [helper.make_tensor_value_info(f"y{operator}", TensorProto.FLOAT, ["n"])],
        )
        for operator in ("Add", "Sub")
    ]
    nodes = [
        helper.make_node("Equal", ["rate", "fast"], ["is_fast"]),
        helper.make_node("If", ["is_fast"], ["chosen"], name="if", then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Mul", ["chosen", "gain"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]),
        helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        helper.make_tensor_value_info("gain", TensorProto.FLOAT, [2]),
    ]
    constants = [
        numpy_helper.from_array(np.array(1, np.float32), "one"),
        numpy_helper.from_array(np.array(16000, np.int64), "fast"),
    ]
    return written(tmp_path, nodes, inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])], constants)


def test_constants_with_every_command(shared_daemon: DaemonProcess, branching: Path, tmp_path: Path) -> None:
    """By hand: (3 + 1) times 2 and 10; what the message says to type is what helps."""
    device = ("--device", shared_daemon.address)
    assert "--constant rate=16000" in nnrt("explain", branching).stdout
    frozen = ("--constant", "rate=16000", "--constant", "gain=2,10.0")
    assert [end["name"] for end in json_output("inspect", branching, *frozen)["inputs"]] == ["x"]
    assert json_output("explain", branching, *device, *frozen)["supported"] is True
    np.save(tmp_path / "x.npy", np.array([3, 3], np.float32))
    (y,) = json_output("run", branching, *device, "--input", tmp_path / "x.npy", *frozen)["outputs"]
    assert (y["min"], y["max"]) == (8, 40)
    (y,) = json_output("run", branching, *device, "--input", tmp_path / "x.npy", *frozen[2:], "--constant", "rate=8")[
        "outputs"
    ]
    assert (y["min"], y["max"]) == (4, 20)
    assert nnrt("compile", branching, *device, "-o", tmp_path / "offline", *frozen).exit_code == 0
    both = (*device, *device, "--shape", "x=2", *frozen)
    assert json_output("compare", branching, *both)["equal"] is True
    quick = ("--shape", "x=2", "--window", "0.01", "--max-windows", "3", "--baseline")
    found = json_output("bench", branching, *device, *quick, *frozen)
    assert found["baseline"]["largest_relative_difference"] == 0


@pytest.mark.parametrize(
    ("options", "exit_code", "message"),
    [
        (["rate=fast"], 2, "'fast' is no number; use 16000, 0.5, true, 1,2,3 or [[1, 2], [3, 4]]"),
        (['rate={"a": 1}'], 2, "is no number"),
        (["rate=1", "rate=2"], 2, "--constant names rate, rate; give each once"),
        (["rate=0.5"], 1, "constant for input 'rate': 0.5 is float64; give int64"),
        (["rate=1,2"], 1, "constant for input 'rate': it has the shape [2]; give []"),
        (["speed=1"], 1, "constants names ['speed']; the inputs of the model are 'x', 'rate', 'gain'"),
    ],
)
def test_constants_that_do_not_fit(branching: Path, options: list[str], exit_code: int, message: str) -> None:
    given = [part for option in options for part in ("--constant", option)]
    assert message in refused(exit_code, "inspect", branching, *given)


# ---- files that are not


def strange(path: Path) -> Path:
    """The file with two nodes that nobody knows, for the same reason."""
    model = load_model(path)
    model.graph.node.extend(
        [helper.make_node("Strange", ["y"], [f"z{at}"], name=f"strange{at}", domain="far.away") for at in range(2)]
    )
    model.graph.output.extend([helper.make_tensor_value_info(f"z{at}", TensorProto.FLOAT, None) for at in range(2)])
    model.opset_import.append(helper.make_opsetid("far.away", 1))
    path.write_bytes(model.SerializeToString())
    return path


def test_what_can_not_be_imported(path: Path) -> None:
    """It is inspected and explained without a device; what needs the model names every node, on one line."""
    message = refused(1, "inspect", strange(path), "--mermaid", path.parent / "graph.mmd")
    assert message.count("rows.onnx") == 1
    assert "strange0" in message
    assert "strange1" in message
    about = json_output("inspect", path)
    assert about["imported"] is False
    assert about["onnx"]["operators"] == {"far.away.Strange": 2, "MatMul": 1, "Relu": 1}
    assert about["inputs"] == [{"name": "x", "data_type": "FLOAT32", "dimensions": ["rows", 3]}]
    (obstacle,) = about["obstacles"]
    assert (obstacle["operator"], obstacle["nodes"]) == ("Strange", ["strange0", "strange1"])
    assert "far.away" in obstacle["reason"]
    assert obstacle["try"] == []
    assert json_output("explain", path, exit_code=1)["obstacles"] == [obstacle]
    for command, exit_code in (("inspect", 0), ("explain", 1)):
        result = nnrt(command, path)
        assert result.exit_code == exit_code
        assert "Strange 'strange0' and 1 more" in result.stdout
        assert "2 of 4 ONNX nodes can't be imported" in result.stdout


def test_explain_promises_no_program_that_needs_a_library(path: Path, onnxruntime_daemon: DaemonProcess) -> None:
    said = " ".join(nnrt("explain", strange(path), "--device", onnxruntime_daemon.address).stdout.split())
    assert "takes ONNX files as they are (--way program), but operators of far.away only as functions of the" in said


def test_explain_tries_which_shapes_help(tmp_path: Path) -> None:
    """The number of steps of a recurrence: with the shape that is named it is imported, and said of that node alone."""
    rng = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array(rng.normal(size=shape).astype("f4"), name)
        for name, shape in (("w", (1, 12, 3)), ("r", (1, 12, 4)))
    ]
    path = written(
        tmp_path,
        [
            helper.make_node("GRU", ["x", "w", "r"], ["steps"], name="gru", hidden_size=4),
            helper.make_node("NonZero", ["k"], ["places"], name="places"),
        ],
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["length", "batch", 3]),
            helper.make_tensor_value_info("k", TensorProto.FLOAT, [5]),
        ],
        [
            helper.make_tensor_value_info("steps", TensorProto.FLOAT, None),
            helper.make_tensor_value_info("places", TensorProto.INT64, None),
        ],
        weights,
    )
    gru, places = json_output("explain", path, exit_code=1)["obstacles"]
    assert (gru["nodes"], places["nodes"]) == (["gru"], ["places"])
    assert places["try"] == []
    (option,) = gru["try"]
    assert option.startswith("--shape x=")
    (left,) = json_output("explain", path, *option.split(), exit_code=1)["obstacles"]
    assert left["nodes"] == ["places"]
    assert f"for GRU 'gru' add: {option}" in nnrt("explain", path).stdout


def test_a_file_goes_in_the_first_way_that_works(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """How many rows there are depends on the numbers: only ONNX Runtime says it, and reports tell why it did."""
    path = written(
        tmp_path,
        [helper.make_node("NonZero", ["x"], ["y"], name="places")],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [1, "count"])],
    )
    device = ("--device", start_daemon("--backend", "onnxruntime").address)
    np.save(tmp_path / "x.npy", np.array([0, 3, 0, 4], np.float32))
    command = ("run", path, *device, "--input", tmp_path / "x.npy")
    found = json_output(*command)
    (y,) = found["outputs"]
    assert (y["shape"], y["min"], y["max"]) == ([1, 2], 1, 3)
    assert found["way"] == "program"
    assert "'places'" in found["passed_over"]["operators"]
    assert "it went as program; not as operators" in nnrt(*command).stdout
    assert json_output(*command, "--way", "program")["passed_over"] == {}
    assert "'places'" in refused(1, *command, "--way", "operators")
    assert json_output("explain", path, *device, exit_code=1)["takes_programs"] is True
    assert "(--way program)" in nnrt("explain", path, *device).stdout
    quick = ("--window", "0.01", "--max-windows", "3", "--baseline")
    assert json_output("bench", path, *device, *quick)["baseline"]["largest_relative_difference"] == 0


def test_what_follows_from_an_obstacle_is_not_said(tmp_path: Path) -> None:
    """A window of three dimensions is refused; but on what a node gives that is refused itself, nobody knows."""
    volume = helper.make_tensor_value_info("volume", TensorProto.FLOAT, [1, 1, 4, 4, 4])
    path = written(
        tmp_path,
        [
            helper.make_node("Strange", ["x"], ["volume"], name="root", domain="far.away"),
            helper.make_node("MaxPool", ["volume"], ["y"], name="behind", kernel_shape=[2, 2, 2]),
        ],
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        value_info=[volume],
    )
    (obstacle,) = json_output("explain", path, exit_code=1)["obstacles"]
    assert obstacle["nodes"] == ["root"]


def written(
    directory: Path,
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    initializers: Sequence[TensorProto] = (),
    value_info: Sequence[ValueInfoProto] = (),
) -> Path:
    graph = helper.make_graph(nodes, "graph", inputs, outputs, initializers, value_info=value_info)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("far.away", 1)]
    (directory / "model.onnx").write_bytes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    )
    return directory / "model.onnx"


def test_shapes_without_which_it_can_not_be_imported(path: Path) -> None:
    """It is imported with them only, and once."""
    model = load_model(path)
    model.graph.input[0].type.tensor_type.ClearField("shape")
    path.write_bytes(model.SerializeToString())
    (obstacle,) = json_output("inspect", path)["obstacles"]
    assert "its rank is not known" in obstacle["reason"]
    assert "--shape x=1,3" in obstacle["reason"]
    assert json_output("inspect", path, "--shape", "x=4,3")["outputs"][0]["shape"] == [4, 2]


def test_a_damaged_file(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])
    assert "rows.onnx" in refused(1, "inspect", path)
