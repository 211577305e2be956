"""Runs that would make more than the daemon may, of models that take a few kilobytes to describe."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import onnx
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess

from nnrt_client import Compilation, Executor, Model, OperationType, OutOfMemory, Runtime, load

MIB = 1 << 20
ELEMENTS = 2 * MIB
TENSOR_BYTES = 4 * ELEMENTS
OUTPUTS = 16
# A run makes 128 MiB.
ALLOWED_BYTES = 8 * TENSOR_BYTES


def wide_model(elements: int) -> Model:
    """y_i = x + i."""
    model = Model()
    x = model.input((elements,), name="x")
    outputs = [model.apply(OperationType.ADD, x, np.full(1, i, np.float32)) for i in range(OUTPUTS)]
    model.specify_inputs_and_outputs([x], outputs)
    model.finish()
    return model


def deep_model(elements: int) -> Model:
    """y = x + 1 + 1 + ..., of which few results live at a time."""
    model = Model()
    x = y = model.input((elements,), name="x")
    for _ in range(OUTPUTS):
        y = model.apply(OperationType.ADD, y, np.ones(1, np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


@contextmanager
def built(daemon: DaemonProcess, model: Model) -> Iterator[Executor]:
    with Runtime([daemon.address]) as runtime, Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
@pytest.mark.parametrize("elements", [ELEMENTS, -1], ids=["known", "dynamic"])
@pytest.mark.parametrize("setting", ["--run-bytes", "--session-bytes", "--held-bytes"])
def test_what_a_run_makes_is_bounded(start_daemon: StartDaemon, backend: str, elements: int, setting: str) -> None:
    """A run is refused before it takes the memory; smaller ones of the same session are not."""
    daemon = start_daemon("--backend", backend, setting, str(ALLOWED_BYTES))
    x = np.zeros(ELEMENTS, np.float32)
    with built(daemon, wide_model(elements)) as executor:
        before = daemon.memory_bytes()
        for _ in range(3):
            with pytest.raises(OutOfMemory, match=setting):
                executor.run_sync([x])
        assert daemon.peak_memory_bytes() - before < ALLOWED_BYTES
    with built(daemon, deep_model(elements)) as executor:
        assert executor.run_sync([x])[0][0] == OUTPUTS


@pytest.mark.parametrize(
    ("backend", "way"), [("reference", "operators"), ("onnxruntime", "operators"), ("onnxruntime", "program")]
)
def test_a_batch_that_is_too_large(start_daemon: StartDaemon, backend: str, way: str) -> None:
    """The error says which limit of the daemon it passes, and what to do."""
    daemon = start_daemon("--backend", backend, "--tensor-bytes", str(1 << 16))
    network = """
        <ir_version: 9, opset_import: ["": 12]>
        images (float[N, 3, 16] x) => (float[N] y) <float[1, 1, 1, 5] w = {1, 2, 3, 4, 5}> {
            a = Unsqueeze<axes = [3]>(x)
            b = Mul(a, w)
            y = ReduceSum<axes = [1, 2, 3], keepdims = 0>(b)
        }
    """
    source = onnx.parser.parse_model(network).SerializeToString()
    with Runtime([daemon.address]) as runtime, load(source, runtime.device(), ways=[way]) as session:
        with pytest.raises(OutOfMemory, match="run smaller batches, or start the daemon with a larger --tensor-bytes"):
            session.run({"x": np.ones((1000, 3, 16), np.float32)})
        assert session.run({"x": np.ones((10, 3, 16), np.float32)})["y"][0] == 3 * 16 * 15
