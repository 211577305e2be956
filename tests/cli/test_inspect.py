"""`nnrt inspect`, `nnrt explain`, and the page that draws a graph."""

import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model

from cli.command import nnrt, refused, saved, told
from nnrt_client import Model, OperationType
from nnrt_client.cli.layers import GAP, layout
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
    about = told("inspect", conv)
    assert about["kind"] == "saved model"
    assert about["size_bytes"] == conv.stat().st_size
    assert about["inputs"] == [{"name": "image", "data_type": "FLOAT32", "shape": [-1, 8, 8, 1], "format": "NONE"}]
    assert [output["shape"] for output in about["outputs"]] == [[-1, 10]]
    assert about["operators"] == dict.fromkeys(
        ["CONV2D_FUSION", "FULL_CONNECTION", "MAX_POOL_FUSION", "RESHAPE", "SOFTMAX"], 1
    )
    assert about["parameters"] == 8 * 9 + 8 + 10 * 128 + 10 + 2
    assert about["digest"] == graph_digest(Model.load(conv)._graph).hex()
    text = nnrt("inspect", conv).stdout
    assert all(part in text for part in ("saved model", "image", "[?, 8, 8, 1]", "SOFTMAX", "1,372", about["digest"]))


def test_shapes_are_settled(conv: Path) -> None:
    about = told("inspect", conv, "--shape", "image=3,8,8,1")
    assert about["inputs"][0]["shape"] == [3, 8, 8, 1]
    assert about["outputs"][0]["shape"] == [3, 10]
    assert "there is no input 'x'" in refused(1, "inspect", conv, "--shape", "x=1")
    assert "[3, 8, 8, 2] is given for input 'image'" in refused(1, "inspect", conv, "--shape", "image=3,8,8,2")


def test_what_an_offline_model_is(conv: Path, restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    offline = tmp_path / "offline"
    assert nnrt("compile", conv, "--device", restoring_daemon.address, "-o", offline, "--float16").exit_code == 0
    about = told("inspect", offline)
    assert about["kind"] == "offline model"
    assert about["target"]["backend"] == "restoring"
    assert about["float16"] is True
    assert about["inputs"][0]["name"] == "image"
    assert "operators" not in about
    assert "restoring 1 (test, OTHER)" in nnrt("inspect", offline).stdout
    assert "no operators to draw" in refused(1, "inspect", offline, "--html", tmp_path / "page.html")
    assert "no operators any more" in refused(1, "explain", offline, "--device", restoring_daemon.address)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "it does not begin with"),
        (b"PK\x03\x04", "it does not begin with"),
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
    message = refused(1, "inspect", conv, "--html", tmp_path / "pipe")
    assert message == f"Error: {tmp_path}/pipe: it is no regular file"
    assert (tmp_path / "pipe").is_fifo()
    assert "there is no such directory" in refused(1, "inspect", conv, "--html", tmp_path / "no" / "page")


def test_foreign_names_reach_no_terminal(tmp_path: Path, shared_daemon: DaemonProcess) -> None:
    """Neither by their control characters nor by rich's markup; in JSON they are as they are."""
    path = saved(hostile_model(), tmp_path / "hostile.nnrt")
    for result in (nnrt("inspect", path), nnrt("explain", path, "--device", shared_daemon.address)):
        assert result.exit_code == 0
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", result.output)
        assert r"\x1b]0;owned\x07[bold red]" in result.output
    assert told("inspect", path)["inputs"][0]["name"] == HOSTILE


# ---- the page


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def drawing(page: Path) -> ElementTree.Element:
    """The one drawing of a page, which must be sound XML."""
    (svg,) = re.findall(r"<svg.*?</svg>", page.read_text(), re.DOTALL)
    return ElementTree.fromstring(svg)  # noqa: S314  # It is our own.


def test_the_page_draws_each_operator(tmp_path: Path) -> None:
    """A box for each, and for the input and the output; a line for each tensor that is read; a row in the table."""
    model = ladder(100)
    page = tmp_path / "page.html"
    assert nnrt("inspect", saved(model, tmp_path / "m"), "--html", page).exit_code == 0
    graph = model._graph
    svg = drawing(page)
    assert len(svg.findall(".//rect")) == len(graph.nodes) + 2
    reads = {(number, tensor) for number, node in enumerate(graph.nodes) for tensor in node.inputs}
    assert len(svg.findall("./path")) == len(reads) + 1
    links = [anchor.attrib["href"] for anchor in svg.iter("a")]
    assert sorted(links) == sorted(f"#node-{number}" for number in range(len(graph.nodes)))
    ids = [attributes.get("id") for tag, attributes in Elements(page.read_text()).found if tag == "tr"]
    assert {f"#{name}" for name in ids if name} == set(links)
    assert "relu42" in page.read_text()


def test_the_page_stands_alone_and_is_safe(tmp_path: Path) -> None:
    """No script, nothing fetched, and foreign text is only text."""
    page = tmp_path / "page.html"
    assert nnrt("inspect", saved(hostile_model(), tmp_path / "m"), "--html", page).exit_code == 0
    elements = Elements(page.read_text()).found
    assert {tag for tag, _ in elements}.isdisjoint({"script", "img", "link", "iframe", "object", "base"})
    for tag, attributes in elements:
        assert not any(name.startswith("on") for name in attributes), tag
        assert all((attributes.get(name) or "#").startswith("#") for name in ("href", "src", "xlink:href"))
    assert "&lt;script&gt;alert(1)" in page.read_text()
    assert any("default-src 'none'" in (attributes.get("content") or "") for _, attributes in elements)
    drawing(page)


def boxes_of_a_layer(layers: dict[int, list[float]]) -> Iterator[tuple[float, float]]:
    for xs in layers.values():
        ordered = sorted(xs)
        yield from pairwise(ordered)


@pytest.mark.parametrize("seed", range(5))
def test_boxes_are_in_order_and_apart(seed: int) -> None:
    """Each below what it follows; none touches another; lines begin and end at their boxes."""
    random = np.random.default_rng(seed)
    count, width = 300, 100.0
    edges = sorted({(int(random.integers(max(0, at - 30), at)), at) for at in range(1, count) for _ in range(2)})
    found = layout([width] * count, edges)
    layers: dict[int, list[float]] = {}
    for x, layer in found.places:
        layers.setdefault(layer, []).append(x)
        assert width / 2 - 1e-6 <= x <= found.width - width / 2 + 1e-6
        assert 0 <= layer < found.layers
    for (above, below), route in zip(edges, found.routes, strict=True):
        assert (route[0], route[-1]) == (found.places[above], found.places[below])
        assert [layer for _, layer in route] == list(range(route[0][1], route[-1][1] + 1))
        assert len(route) >= 2
    for left, right in boxes_of_a_layer(layers):
        assert right - left >= width + GAP - 1e-6


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
    document = told("explain", path, "--device", picky.address, exit_code=1)
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
    document = told("explain", conv)
    assert document["supported"] is True
    assert [operator["reason"] for operator in document["operators"]] == [""] * 5
