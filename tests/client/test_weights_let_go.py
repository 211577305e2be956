"""A client holds no weights of a model that a device has, with the collector of garbage switched off."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from daemon_process import DaemonProcess
from networks import weighted_model
from onnx import TensorProto, helper, numpy_helper
from waiting import until

from nnrt_client import Compilation, ModelSession, Runtime, load
from nnrt_hdi.graph import Constant

# Unlike the constants of other tests.
ELEMENTS = 10_007
WEIGHTS_BYTES = 4 * ELEMENTS


@pytest.fixture(autouse=True)
def without_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def held() -> list[object]:
    """The weights that there are, as constants of models or in the garbage."""
    return [one for one in gc.get_objects() if isinstance(one, Constant) and one.size_bytes == WEIGHTS_BYTES]


def plain() -> onnx.ModelProto:
    """x + w."""
    return network([helper.make_node("Add", ["x", "w"], ["y"])])


def quantized() -> onnx.ModelProto:
    """x + w between nodes that quantize and take the quantization back."""
    scale, zero = "scale", "zero"
    return network(
        [
            helper.make_node("QuantizeLinear", ["w", scale, zero], ["wq"]),
            helper.make_node("DequantizeLinear", ["wq", scale, zero], ["wd"]),
            helper.make_node("QuantizeLinear", ["x", scale, zero], ["xq"]),
            helper.make_node("DequantizeLinear", ["xq", scale, zero], ["xd"]),
            helper.make_node("Add", ["xd", "wd"], ["z"]),
            helper.make_node("Add", ["z", "w"], ["y"]),
        ]
    )


def network(nodes: list[onnx.NodeProto]) -> onnx.ModelProto:
    weights = [
        numpy_helper.from_array(np.random.default_rng(0).standard_normal(ELEMENTS, np.float32), "w"),
        numpy_helper.from_array(np.float32(0.1), "scale"),
        numpy_helper.from_array(np.int8(0), "zero"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ELEMENTS])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("make", [plain, quantized])
def test_a_model_out_of_an_onnx_file(
    onnxruntime_daemon: DaemonProcess, tmp_path: Path, make: Callable[[], onnx.ModelProto]
) -> None:
    onnx.save(make(), tmp_path / "model.onnx")
    with load(tmp_path / "model.onnx", onnxruntime_daemon.address) as session:
        assert session.run({"x": [1.0]})
        until(lambda: not held(), held)


@pytest.mark.parametrize("way", ["onnx", "saved", "list", "reload"])
def test_a_session_that_is_closed(onnxruntime_daemon: DaemonProcess, tmp_path: Path, way: str) -> None:
    """Pools and sessions that load again need the model until then."""
    file = tmp_path / ("model.nnrt" if way == "saved" else "model.onnx")
    weighted_model(ELEMENTS).save(file) if way == "saved" else onnx.save(plain(), file)
    address = onnxruntime_daemon.address
    session: ModelSession = load(
        file, [address] if way == "list" else address, on_death="reload" if way == "reload" else "raise"
    )
    assert session.run([[1.0]])
    session.close()
    del session
    until(lambda: not held(), held)


def test_a_compilation_that_is_built(onnxruntime_daemon: DaemonProcess) -> None:
    with (
        Runtime([onnxruntime_daemon.address]) as runtime,
        Compilation(weighted_model(ELEMENTS), runtime.device()) as built,
    ):
        built.build()
        until(lambda: not held(), held)
        assert built.export_cache()
