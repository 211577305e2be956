"""Strings, sequences and maps of programs, as the server of models gives them to others' clients."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from daemon_process import DaemonProcess

from serving.served import ServerProcess, add_model

STRINGS = [[b"one", b""], ["zwölf \N{SNOWMAN}".encode(), b"nul \0 byte"]]
ECHO = "echo (string[n, m] x) => (string[n, m] y) { y = Identity(x) }"
CLASSES = """
<ir_version: 10, opset_import: ["": 21, "ai.onnx.ml": 4]>
classes (float[n, 2] x) => (seq(map(string, float)) y) {
    y = ai.onnx.ml.ZipMap<classlabels_strings = ["cat", "dog"]>(x)
}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, onnxruntime_daemon: DaemonProcess) -> Any:
    folder = tmp_path_factory.mktemp("values")
    add_model(folder, "echo", text=ECHO)
    add_model(folder, "classes", text=CLASSES)
    started = ServerProcess(folder, onnxruntime_daemon.address)
    yield started
    started.kill()


@pytest.fixture(params=["grpc", "http"])
def ask(request: pytest.FixtureRequest, server: ServerProcess) -> Any:
    """Function that sends an array to a model over one of the faces and returns its output y."""
    module: Any = {"grpc": triton_grpc, "http": triton_http}[request.param]
    with module.InferenceServerClient(getattr(server, request.param)) as client:

        def send(model: str, array: Any, datatype: str) -> Any:
            given = module.InferInput("x", list(array.shape), datatype)
            given.set_data_from_numpy(array)
            return client.infer(model, [given]).as_numpy("y")

        yield send


def test_strings_arrive_as_they_were_sent(ask: Callable[..., Any]) -> None:
    sent = np.array(STRINGS, object)
    assert ask("echo", sent, "BYTES").tolist() == STRINGS


def test_an_empty_tensor_of_strings(ask: Callable[..., Any]) -> None:
    assert ask("echo", np.empty((0, 3), object), "BYTES").shape == (0, 3)


def test_maps_are_strings_of_json(ask: Callable[..., Any]) -> None:
    made = ask("classes", np.array([[0.25, 0.75], [1, 0]], "f4"), "FP32")
    assert [json.loads(one) for one in made] == [{"cat": 0.25, "dog": 0.75}, {"cat": 1.0, "dog": 0.0}]


def test_metadata_of_strings_and_maps(server: ServerProcess) -> None:
    with triton_http.InferenceServerClient(server.http) as client:
        (x,) = client.get_model_metadata("echo")["inputs"]
        (y,) = client.get_model_metadata("classes")["outputs"]
    assert (x["datatype"], x["shape"]) == ("BYTES", [-1, -1])
    assert (y["datatype"], y["shape"]) == ("BYTES", [-1])


def test_a_warm_up_with_strings(onnxruntime_daemon: DaemonProcess, tmp_path: Path) -> None:
    folder = add_model(tmp_path, "echo", text=ECHO).parent.parent
    (folder / "model.toml").write_text("[[warm_up]]\nx = { shape = [2, 2] }\n[[warm_up]]\n")
    server = ServerProcess(tmp_path, onnxruntime_daemon.address)
    try:
        with triton_http.InferenceServerClient(server.http) as client:
            assert [(one["state"], one["reason"]) for one in client.get_model_repository_index()] == [("READY", "")]
    finally:
        server.kill()


def test_strings_that_are_no_text_are_refused(ask: Callable[..., Any]) -> None:
    with pytest.raises(Exception, match="UTF-8"):
        ask("echo", np.array([[b"\xff"]], object), "BYTES")


def test_json_has_strings(server: ServerProcess) -> None:
    body = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, 2], "data": ["a", "ü"]}]}
    asked = Request(f"http://{server.http}/v2/models/echo/infer", json.dumps(body).encode(), method="POST")
    with urlopen(asked, timeout=30) as answer:  # noqa: S310
        (y,) = json.load(answer)["outputs"]
    assert y["data"] == ["a", "ü"]
