"""Fixtures: a model with metadata, and sessions with it in ONNX Runtime and in nnrt."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from daemon_process import DaemonProcess
from onnx import ModelProto, parser

import nnrt_client.onnxruntime as ours

SUMS = """
<ir_version: 9, opset_import: ["": 17], producer_name: "tests", producer_version: "3", domain: "example.org",
 model_version: 7, doc_string: "Sums and products.", metadata_props: ["labels": "a,b", "stride": "32"]>
sums (float[batch, 3] x, float[N, 3] y) => (float[batch, 3] s, float[batch, 3] p)
<float[3] w = {1, 2, 3}>
{
    s = Add(x, y)
    p = Mul(x, w)
}
"""


def sums() -> ModelProto:
    """Build the model; the first dimension of y has no name."""
    model = parser.parse_model(SUMS)
    model.graph.input[1].type.tensor_type.shape.dim[0].Clear()
    model.graph.doc_string = "Two of them."
    return model


@pytest.fixture(autouse=True)
def a_device(
    tmp_path_factory: pytest.TempPathFactory, onnxruntime_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Set the device and the cache directory like an application, in environment variables."""
    monkeypatch.setenv("NNRT_DEVICES", onnxruntime_daemon.address)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))
    yield
    gc.collect()  # Frees objects that the traceback of a failed test refers to.


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "sums.onnx"
    path.write_bytes(sums().SerializeToString())
    return path


@pytest.fixture(scope="module")
def theirs() -> Any:
    """ONNX Runtime's session."""
    return onnxruntime.InferenceSession(sums().SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def mine(onnxruntime_daemon: DaemonProcess) -> Iterator[ours.InferenceSession]:
    """Session of nnrt on a daemon."""
    providers = [("NnrtExecutionProvider", {"device": onnxruntime_daemon.address, "cache": "0"})]
    with ours.InferenceSession(sums().SerializeToString(), providers=providers) as session:
        # Starts the thread that frees shared memory, which lasts: otherwise the first test would leave it behind.
        shared, binding = ours.OrtValue.ortvalue_from_shape_and_type([2, 3], "float32"), session.io_binding()
        for name in ("x", "y"):
            binding.bind_ortvalue_input(name, shared)
        binding.bind_ortvalue_output("s", shared)
        session.run_with_iobinding(binding)
        del shared, binding
        gc.collect()
        yield session
