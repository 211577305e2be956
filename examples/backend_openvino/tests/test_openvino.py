"""Tests of the backend: the conformance kit on a daemon, and what the kit can't check."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

pytest.importorskip("openvino")

from nnrt_backend_openvino import create, devices

from nnrt_hdi.backend import Backend, Cancellation, ModelConfig
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidFile, InvalidParameter, NnrtError, OperationFailed, TimedOut
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import inferred_graph
from nnrt_hdi.tensor import TensorSpec

KIT_DEADLINE_S = 900


@pytest.fixture
def backend() -> Iterator[Backend]:
    backend = create({})
    yield backend
    backend.close()


def products(count: int, size: int, rows: int = -1) -> Graph:
    """Return a graph that multiplies x by the same matrix `count` times; the matrix reverses the columns."""
    tensors = (TensorSpec(DataType.FLOAT32, (size, size)), *[TensorSpec(DataType.FLOAT32, (rows, size))] * (count + 1))
    nodes = tuple(Node(NodeType.MATMUL_FUSION, (at, 0), (at + 1,)) for at in range(1, count + 1))
    weights = Constant.of(np.eye(size, dtype=np.float32)[::-1].copy())
    return inferred_graph(Graph(tensors, nodes, (1,), (count + 1,), {0: weights}))


def test_the_kit_finds_no_fault() -> None:
    command = [sys.executable, "-m", "nnrt_device_service", "serve", "--backend", "openvino", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as daemon:
        try:
            assert daemon.stdout is not None
            address = daemon.stdout.readline().split()[2]  # "listening on ADDRESS"
            kit = [sys.executable, "-m", "nnrt_client", "conformance", address, "--quick"]
            tried = subprocess.run(kit, stdout=subprocess.PIPE, text=True, timeout=KIT_DEADLINE_S)
        finally:
            daemon.terminate()
    assert tried.returncode == 0, tried.stdout


@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.INT32, DataType.INT8])
def test_equal_elements_keep_their_order(backend: Backend, data_type: DataType) -> None:
    row, count = TensorSpec(data_type, (301,)), np.array(100, np.int32)
    results = (TensorSpec(data_type, (100,)), TensorSpec(DataType.INT32, (100,)))
    tensors = (row, TensorSpec(DataType.INT32, ()), *results)
    graph = Graph(tensors, (Node(NodeType.TOPK_FUSION, (0, 1), (2, 3)),), (0,), (2, 3), {1: Constant.of(count)})
    x = np.random.default_rng(1).integers(-40, 40, row.shape).astype(row.numpy_dtype)
    model = backend.prepare(inferred_graph(graph), ModelConfig(), lambda _: None)
    _, indices = model.run([x], Cancellation())
    assert indices.tolist() == np.argsort(-x.astype(np.int64), kind="stable")[:100].tolist()


def test_each_device_has_options_that_serve_it() -> None:
    for device in devices():
        assert create(device.options).describe().device_type is device.device_type


@pytest.mark.parametrize("options", [{"streams": "0"}, {"streams": "x"}, {"colour": "red"}])
def test_options_that_say_nothing(options: dict[str, str]) -> None:
    with pytest.raises(InvalidParameter):
        create(options)


@pytest.mark.parametrize("rows", [3, -1])
def test_what_is_exported_is_restored(backend: Backend, rows: int) -> None:
    model = backend.prepare(products(3, 8, rows), ModelConfig(), lambda _: None)
    x = np.arange(24, dtype=np.float32).reshape(3, 8)
    parts = model.export()
    for _ in range(2):
        restored = backend.restore(parts, ModelConfig(is_own=True))
        np.testing.assert_array_equal(restored.run([x], Cancellation())[0], x[:, ::-1])
        parts = restored.export()
    with pytest.raises(InvalidFile):
        backend.restore(parts[:-1], ModelConfig(is_own=True))


def test_runs_of_several_shapes_at_a_time(backend: Backend) -> None:
    model = backend.prepare(products(2, 8), ModelConfig(), lambda _: None)
    answers: dict[int, bool] = {}

    def run(rows: int) -> None:
        x = np.full((rows, 8), rows, np.float32)
        x.flags.writeable = False
        answers[rows] = all((model.run([x], Cancellation())[0] == x).all() for _ in range(20))

    threads = [threading.Thread(target=run, args=(rows,)) for rows in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == dict.fromkeys(range(6), True)


class CancelledUnderWay(Cancellation):
    """Cancellation that is cancelled as soon as a listener is added, which happens once the run has started."""

    def on_cancel(self, listener: Callable[[], None]) -> Callable[[], None]:
        take_back = super().on_cancel(listener)
        self.cancel()
        return take_back


@pytest.mark.parametrize(
    ("make", "error"),
    [(CancelledUnderWay, OperationFailed), (lambda: Cancellation(time.monotonic() + 0.02), TimedOut)],
    ids=["cancelled", "out of time"],
)
def test_a_run_ends_when_it_is_told(backend: Backend, make: Callable[[], Cancellation], error: type[NnrtError]) -> None:
    """Check that a run ends with an error when cancelled or out of time, and that the next run still works."""
    model = backend.prepare(products(400, 256, rows=256), ModelConfig(), lambda _: None)
    x = np.ones((256, 256), np.float32)
    with pytest.raises(error):
        model.run([x], make())
    np.testing.assert_array_equal(model.run([x], Cancellation())[0], x)
