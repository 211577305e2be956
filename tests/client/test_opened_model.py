"""Files of any kind, told apart by how they begin."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daemon_process import DaemonProcess
from networks import convolution_model

from nnrt_client import Compilation, InvalidFile, InvalidParameter, InvalidPath, Model, OperationType, Runtime
from nnrt_client.model.model import parts_of
from nnrt_client.model_session.opened_model import Kind, open_model, with_shapes
from nnrt_hdi.files import container
from nnrt_hdi.files.graph_file import graph_digest


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    convolution_model().save(tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model(saved: Path) -> None:
    for opened in (open_model(saved), open_model(str(saved)), open_model(saved.read_bytes())):
        assert opened.kind is Kind.SAVED
        assert opened.size_bytes == saved.stat().st_size
        assert opened.graph is not None
        assert graph_digest(opened.graph) == graph_digest(parts_of(convolution_model()).graph)
        assert [spec.name for spec in opened.inputs] == ["image"]
        assert [spec.shape for spec in opened.outputs] == [(-1, 10)]


def test_an_offline_model(restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    """Its inputs and outputs are known, its operators are not."""
    with Runtime([restoring_daemon.address]) as runtime, Compilation(convolution_model(), runtime.device()) as built:
        built.build()
        offline = built.export_cache()
    (tmp_path / "offline").write_bytes(offline)
    for opened in (open_model(tmp_path / "offline"), open_model(offline)):
        assert opened.kind is Kind.OFFLINE
        assert opened.model is None
        assert opened.graph is None
        assert opened.compiled is not None
        assert opened.compiled.target.backend == "restoring"
        assert [spec.name for spec in opened.inputs] == ["image"]
        assert [spec.shape for spec in opened.outputs] == [(-1, 10)]
    with pytest.raises(InvalidParameter, match="an offline model has the shapes it was compiled for"):
        open_model(offline, {"image": (1, 8, 8, 1)})
    with pytest.raises(InvalidParameter, match="an offline model was compiled with the inputs it has; give no const"):
        open_model(offline, constants={"image": 1})


def test_inputs_of_a_saved_model_become_constants(tmp_path: Path) -> None:
    model = Model()
    x, factor = model.input((-1, 2), name="x"), model.input((2,), name="factor")
    model.specify_inputs_and_outputs([x, factor], [model.apply(OperationType.MUL, x, factor)])
    model.finish()
    model.save(tmp_path / "model")
    opened = open_model(tmp_path / "model", {"x": (3, 2)}, constants={"factor": [2, 3]})
    assert [(spec.name, spec.shape) for spec in opened.inputs] == [("x", (3, 2))]
    assert opened.graph is not None
    (constant,) = opened.graph.constants.values()
    np.testing.assert_array_equal(constant.data, np.array([2, 3], "f4"), strict=True)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"factor": [1]}, r"constant for input 'factor': it has the shape \[1\]; give \[2\]"),
        ({"other": 1}, r"constants names \['other'\]; the inputs of the model are 'x', 'factor'"),
        ({"x": np.ones((1, 2), "f4"), "factor": [1, 2]}, r"names all inputs, \['x', 'factor'\]; leave one"),
    ]
    for constants, message in refused:
        with pytest.raises(InvalidParameter, match=message):
            open_model(tmp_path / "model", constants=constants)


def test_shapes_go_through_the_graph(saved: Path) -> None:
    opened = open_model(saved, {"image": (3, 8, 8, 1)})
    assert opened.graph is not None
    assert [spec.shape for spec in opened.outputs] == [(3, 10)]
    assert not any(spec.is_dynamic for spec in opened.graph.tensors)
    graph = parts_of(convolution_model()).graph
    assert graph_digest(with_shapes(graph, {})) == graph_digest(graph)
    for shapes, message in (
        ({"image": (3, 8, 8)}, r"\[3, 8, 8\] is given for input 'image', which is FLOAT32\[\?, 8, 8, 1\]"),
        ({"image": (-1, 8, 8, 1)}, "is given for input 'image'"),
        ({"other": (1,)}, r"there is no input 'other', for which a shape is given; there are \['image'\]"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            with_shapes(graph, shapes)


@pytest.mark.parametrize("content", [b"", b"N", b"NNRTPAR", b"\x89PNG\r\n\x1a\n", b"{}"])
def test_no_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InvalidFile, match="it is neither an ONNX model nor a saved"):
        open_model(content)
    with pytest.raises(InvalidFile, match="file': it is neither an ONNX model nor"):
        open_model(tmp_path / "file")


def test_another_kind_of_file_of_ours(tmp_path: Path) -> None:
    content = b"".join(container.packed("recipe", {}, []))
    with pytest.raises(InvalidFile, match="it is of kind 'recipe', which is no model"):
        open_model(content)


def test_no_file(tmp_path: Path) -> None:
    """Nothing is waited for that nobody writes to."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(InvalidFile, match="it is no regular file"):
            open_model(path)
    with pytest.raises(InvalidPath, match="No such file"):
        open_model(tmp_path / "missing")


def test_what_is_no_source() -> None:
    with pytest.raises(InvalidParameter, match="the model is None; give a path, or the bytes of a file"):
        open_model(None)  # type: ignore[arg-type]
