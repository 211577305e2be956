"""`nnrt inspect`, `nnrt explain`, and the drawing of a graph."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model

from cli.command import json_output, nnrt, refused, saved
from nnrt_client import Model, OperationType
from nnrt_client.model.model import parts_of
from nnrt_hdi.files.graph_file import graph_digest

HOSTILE = "\x1b]0;owned\x07[bold red]<script>alert(1)</script>\u202e\n--"


@pytest.fixture
def conv(tmp_path: Path) -> Path:
    return saved(convolution_model(channels=8), tmp_path / "conv.nnrt")


def hostile_model() -> Model:
    """Each name in it is a text that a terminal or a browser would act on."""
    model = Model(HOSTILE)
    x = model.input((1, 4), name=HOSTILE)
    y = model.apply(OperationType.SUB, x, np.ones((1, 4), np.float32), name=HOSTILE)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def ladder(steps: int) -> Model:
    """Two operations a step, and now and then one that reads what was computed long before."""
    model = Model()
    x = y = model.input((1, 4), name="x")
    for step in range(steps):
        y = model.apply(OperationType.ADD, model.apply(OperationType.RELU, y, name=f"relu{step}"), y)
        if step % 10 == 9:
            y = model.apply(OperationType.ADD, y, x)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


# ---- inspect


def test_what_a_saved_model_is(conv: Path) -> None:
    """By hand: 8 kernels of 3x3, 10 x 128 weights, biases, and the two numbers of the reshaping."""
    about = json_output("inspect", conv)
    assert about["kind"] == "saved model"
    assert about["size_bytes"] == conv.stat().st_size
    assert about["inputs"] == [{"name": "image", "data_type": "FLOAT32", "shape": [-1, 8, 8, 1], "format": "NONE"}]
    assert [output["shape"] for output in about["outputs"]] == [[-1, 10]]
    assert about["operators"] == dict.fromkeys(
        ["CONV2D_FUSION", "FULL_CONNECTION", "MAX_POOL_FUSION", "RESHAPE", "SOFTMAX"], 1
    )
    assert about["parameters"] == 8 * 9 + 8 + 10 * 128 + 10 + 2
    assert about["digest"] == graph_digest(parts_of(Model.load(conv)).graph).hex()
    text = nnrt("inspect", conv).stdout
    assert all(part in text for part in ("saved model", "image", "[?, 8, 8, 1]", "SOFTMAX", "1,372", about["digest"]))


def test_shapes_are_settled(conv: Path) -> None:
    about = json_output("inspect", conv, "--shape", "image=3,8,8,1")
    assert about["inputs"][0]["shape"] == [3, 8, 8, 1]
    assert about["outputs"][0]["shape"] == [3, 10]
    assert "there is no input 'x'" in refused(1, "inspect", conv, "--shape", "x=1")
    assert "[3, 8, 8, 2] is given for input 'image'" in refused(1, "inspect", conv, "--shape", "image=3,8,8,2")


def test_what_an_offline_model_is(conv: Path, restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    offline = tmp_path / "offline"
    assert nnrt("compile", conv, "--device", restoring_daemon.address, "-o", offline, "--float16").exit_code == 0
    about = json_output("inspect", offline)
    assert about["kind"] == "offline model"
    assert about["target"]["backend"] == "restoring"
    assert about["float16"] is True
    assert about["inputs"][0]["name"] == "image"
    assert "operators" not in about
    assert "restoring 1 (test, OTHER)" in nnrt("inspect", offline).stdout
    assert "no operators to draw" in refused(1, "inspect", offline, "--mermaid", tmp_path / "graph.mmd")
    assert "no operators any more" in refused(1, "explain", offline, "--device", restoring_daemon.address)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "it is neither an ONNX model nor"),
        (b"PK\x03\x04", "it is neither an ONNX model nor"),
        (b"NNRTPART" + bytes(40), "the file is damaged"),
    ],
)
def test_no_model(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "model").write_bytes(content)
    assert message in refused(1, "inspect", tmp_path / "model")


def test_a_directory_is_no_model(tmp_path: Path) -> None:
    assert "no regular file" in refused(1, "inspect", tmp_path)


def test_no_device_file_is_replaced(conv: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    message = refused(1, "inspect", conv, "--mermaid", tmp_path / "pipe")
    assert message == f"Error: {tmp_path}/pipe: it is no regular file"
    assert (tmp_path / "pipe").is_fifo()
    assert "there is no such directory" in refused(1, "inspect", conv, "--mermaid", tmp_path / "no" / "page")


def test_foreign_names_reach_no_terminal(tmp_path: Path, shared_daemon: DaemonProcess) -> None:
    """Neither by their control characters nor by rich's markup; in JSON they are as they are."""
    path = saved(hostile_model(), tmp_path / "hostile.nnrt")
    for result in (nnrt("inspect", path), nnrt("explain", path, "--device", shared_daemon.address)):
        assert result.exit_code == 0
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.output)
        assert r"\x1b]0;owned\x07[bold red]" in result.output
    assert json_output("inspect", path)["inputs"][0]["name"] == HOSTILE


# ---- the drawing


def test_the_drawing_shows_each_operator(tmp_path: Path) -> None:
    """A box for each, and for the input and the output; a line for each tensor that is read."""
    model = ladder(100)
    chart = tmp_path / "graph.mmd"
    assert nnrt("inspect", saved(model, tmp_path / "m"), "--mermaid", chart).exit_code == 0
    head, *lines = chart.read_text().splitlines()
    assert head == "flowchart TD"
    graph = parts_of(model).graph
    boxes = [line for line in lines if "-->" not in line]
    assert len(boxes) == len(graph.nodes) + 2
    assert sum("ACTIVATION<br>relu42<br>" in box for box in boxes) == 1
    assert all(re.fullmatch(r'n\d+\["[^"]*"\]', box) for box in boxes)
    reads = [tensor for node in graph.nodes for tensor in node.inputs if tensor not in graph.constants]
    arrows = [line for line in lines if "-->" in line]
    assert len(arrows) == len(reads) + 1
    assert all(re.fullmatch(r'n\d+ (-- "[^"]*" )?--> n\d+', arrow) for arrow in arrows)


def test_foreign_names_are_only_text_in_a_drawing(tmp_path: Path) -> None:
    chart = tmp_path / "graph.mmd"
    assert nnrt("inspect", saved(hostile_model(), tmp_path / "m"), "--mermaid", chart).exit_code == 0
    text = chart.read_text()
    assert "#60;script#62;alert(1)" in text
    assert set(re.findall(r"<.*?>", text)) == {"<br>"}
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


# ---- explain


def test_explain_says_why_not(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The reasons of the device, operator by operator; the exit code says whether it runs all."""
    model = Model()
    x = model.input((1, 4), name="x")
    y = model.apply(OperationType.RELU, x, name="first")
    y = model.apply(OperationType.SUB, y, np.ones((1, 4), np.float32), name="second")
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    path = saved(model, tmp_path / "model")
    picky = start_daemon("--backend", "picky")
    document = json_output("explain", path, "--device", picky.address, exit_code=1)
    assert document["device"] == "picky_test_v2_1"
    assert document["supported"] is False
    assert document["operators"] == [
        {"index": 0, "type": "ACTIVATION", "name": "first", "supported": True, "reason": "", "note": ""},
        {
            "index": 1,
            "type": "SUB_FUSION",
            "name": "second",
            "supported": False,
            "reason": "the picky backend runs no SUB",
            "note": "",
        },
    ]
    result = nnrt("explain", path, "--device", picky.address)
    assert result.exit_code == 1
    assert "the picky backend runs no SUB" in result.stdout
    assert "picky_test_v2_1 runs 1 of 2 operators" in result.stdout


def test_explain_on_the_first_device(shared_daemon: DaemonProcess, conv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNRT_DEVICES", shared_daemon.address)
    document = json_output("explain", conv)
    assert document["supported"] is True
    assert [operator["reason"] for operator in document["operators"]] == [""] * 5
