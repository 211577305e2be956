"""Runs that would have the device for themselves for minutes."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest
from conftest import StartDaemon
from grpc_health.v1 import health_pb2, health_pb2_grpc
from networks import identity_model
from observer import Observer

from nnrt_client import (
    Compilation,
    DataType,
    Executor,
    Model,
    OperationType,
    PadMode,
    Runtime,
    TimedOut,
    UnavailableDevice,
)
from nnrt_client.model.model import ModelTensor
from nnrt_device_service.host.exit import ExitCode
from nnrt_device_service.scheduling.run_watch import CompileWatch
from nnrt_hdi.backend import Cancellation

ONE = np.ones(1, np.float32)
# Far more than what is cut takes to end.
DEADLINE_S = 30.0
DEADLINE_MS = 1000 * int(DEADLINE_S)


def matmul(model: Model, x: ModelTensor) -> ModelTensor:
    """216 billion products of integers, which no library makes fast."""
    return model.apply(OperationType.MATMUL, x, x)


def max_pool(model: Model, x: ModelTensor) -> ModelTensor:
    """Windows of which most reach beyond the image, each in its own way."""
    pad = (19_999, 19_999, 0, 0)
    return model.apply(OperationType.MAX_POOL, x, kernel_size=(20_000, 1), strides=(1, 1), pad=pad)


def avg_pool(model: Model, x: ModelTensor) -> ModelTensor:
    """Windows that are larger than there are many inside the image."""
    pad = (23_999, 23_999, 0, 0)
    return model.apply(OperationType.AVG_POOL, x, kernel_size=(24_000, 1), strides=(1, 1), pad=pad)


def depthwise(model: Model, x: ModelTensor) -> ModelTensor:
    """Taps without end, but fewer multiply-adds than in a product of matrices that takes a second."""
    weights, bias = np.ones((2, 100, 100, 1), np.float32), np.zeros(2, np.float32)
    return model.apply(OperationType.CONV2D, x, weights, bias, group=2)


def convolution(model: Model, x: ModelTensor) -> ModelTensor:
    """A product for each pixel of a large kernel."""
    weights, bias = np.ones((64, 256, 256, 1), np.float32), np.zeros(64, np.float32)
    return model.apply(OperationType.CONV2D, x, weights, bias, pad_mode=PadMode.SAME)


def whole_pool(model: Model, x: ModelTensor) -> ModelTensor:
    """A window as large as the image around each pixel."""
    return model.apply(OperationType.MAX_POOL, x, kernel_size=(1024, 1024), strides=(1, 1), pad_mode=PadMode.SAME)


LONG = [
    pytest.param(matmul, (6000, 6000), DataType.INT32, id="matmul"),
    pytest.param(max_pool, (1, 30_000, 20, 1), DataType.FLOAT32, id="max_pool"),
    pytest.param(avg_pool, (1, 30_000, 20, 1), DataType.FLOAT32, id="avg_pool"),
    pytest.param(depthwise, (1, 500, 500, 2), DataType.FLOAT32, id="depthwise"),
]


@contextmanager
def running(address: str, model: Model, fault: bytes = b"") -> Iterator[Executor]:
    """A client of its own with this model."""
    with Runtime([address]) as runtime, Compilation(model, runtime.device()) as compilation:
        if fault:
            compilation.add_extension_config("fault", fault)
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


@pytest.mark.slow
@pytest.mark.parametrize(("operation", "shape", "data_type"), LONG)
def test_a_long_operator_ends_with_its_run(
    start_daemon: StartDaemon,
    operation: Callable[[Model, ModelTensor], ModelTensor],
    shape: tuple[int, ...],
    data_type: DataType,
) -> None:
    """When its time is over, when its client goes, and when the daemon's own bound is reached."""
    model = Model()
    x = model.input(shape, data_type)
    model.specify_inputs_and_outputs([x], [operation(model, x)])
    model.finish()
    inputs = [np.ones(shape, data_type.name.lower())]
    daemon = start_daemon("--max-run-s", "1", "--lease-s", "0.1")
    with running(daemon.address, identity_model()) as honest, Observer(daemon.address) as observer:
        with running(daemon.address, model) as executor:
            with pytest.raises(TimedOut):
                executor.run_sync(inputs, timeout_ms=300)
            assert honest.run_sync([ONE], timeout_ms=DEADLINE_MS)[0] == ONE
            with pytest.raises(TimedOut, match="raise --max-run-s"):
                executor.run_sync(inputs, timeout_ms=DEADLINE_MS)
            executor.submit(inputs)
            observer.wait_for(lambda state: state.running == 1)
        assert honest.run_sync([ONE], timeout_ms=DEADLINE_MS)[0] == ONE


@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
@pytest.mark.parametrize(("operation", "billions"), [(convolution, 4398), (whole_pool, 1100)])
def test_a_run_that_would_take_too_long_never_starts(
    start_daemon: StartDaemon, backend: str, operation: Callable[[Model, ModelTensor], ModelTensor], billions: int
) -> None:
    """ONNX Runtime couldn't be stopped within the operator."""
    image, model = np.ones((1, 1024, 1024, 1), np.float32), Model()
    x = model.input(image.shape)
    model.specify_inputs_and_outputs([x], [operation(model, x)])
    model.finish()
    daemon = start_daemon("--backend", backend, "--max-run-s", "0.5", "--stuck-s", "0.2")
    with running(daemon.address, identity_model()) as honest, running(daemon.address, model) as executor:
        for _ in range(2):
            with pytest.raises(
                TimedOut, match=rf"takes {billions} billion multiply-adds, \d+ s at .* raise --max-run-s"
            ):
                executor.run_sync([image], timeout_ms=DEADLINE_MS)
            assert honest.run_sync([ONE], timeout_ms=DEADLINE_MS)[0] == ONE


def test_a_run_that_does_not_end(start_daemon: StartDaemon) -> None:
    """Its device is stuck: health says so, every client hears it, and the daemon ends with a code of its own."""
    daemon = start_daemon("--backend", "faulty", "--max-run-s", "0.5", "--stuck-s", "0.2")
    with (
        running(daemon.address, identity_model(), b"stuck") as stuck,
        running(daemon.address, identity_model()) as honest,
        grpc.insecure_channel(daemon.address) as channel,
    ):
        statuses = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
        assert next(statuses).status == health_pb2.HealthCheckResponse.SERVING
        stuck_run = stuck.submit([ONE])
        with Observer(daemon.address) as observer:
            observer.wait_for(lambda state: state.running == 1)
        for result in (stuck_run, honest.submit([ONE])):
            with pytest.raises(UnavailableDevice, match="still on the device"):
                result.result(DEADLINE_S)
        assert next(statuses).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert daemon.wait() == ExitCode.STUCK
    assert "the device is stuck" in daemon.log()


def test_a_client_that_leaves_a_run_that_does_not_end(start_daemon: StartDaemon) -> None:
    """Nobody waits for it any more, but the device does."""
    daemon = start_daemon("--backend", "faulty", "--max-run-s", "0", "--stuck-s", "0.2")
    with running(daemon.address, identity_model(), b"stuck") as executor:
        executor.submit([ONE])
        with Observer(daemon.address) as observer:
            observer.wait_for(lambda state: state.running == 1)
    assert daemon.wait() == ExitCode.STUCK


def test_a_compilation_that_takes_too_long(start_daemon: StartDaemon) -> None:
    """It ends where the backend says how far it is, and the next one has its slot."""
    daemon = start_daemon("--backend", "compiling", "--max-compile-s", "0.3", "--concurrent-compilations", "1")
    with Runtime([daemon.address]) as runtime:
        for _ in range(2):
            compilation = Compilation(identity_model(), runtime.device())
            with compilation, pytest.raises(TimedOut, match="raise --max-compile-s"):
                compilation.build()


def test_a_compilation_that_does_not_end(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Nothing else ends it than the end of its daemon."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    limits = ("--max-compile-s", "0.3", "--stuck-s", "0.2")
    daemon = start_daemon("--backend", "building", "--option", f"gate={gate}", *limits)
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        with pytest.raises(UnavailableDevice):
            compilation.build()
        assert daemon.wait() == ExitCode.STUCK
    assert "a compilation is not over" in daemon.log()


def test_a_compilation_that_was_given_up_has_its_time() -> None:
    """A library can't be asked to stop, and nobody ends a daemon by changing his mind."""
    compiling = Cancellation()
    compiling.cancel()
    compiling.began_ns = time.perf_counter_ns() - int(100e9)
    assert CompileWatch(max_compile_s=200, stuck_s=1).end_overdue([compiling]) == ""
    assert "is not over 50." in CompileWatch(max_compile_s=50, stuck_s=1).end_overdue([compiling])


@pytest.mark.slow
def test_a_kernel_of_onnx_runtime_that_does_not_end(start_daemon: StartDaemon) -> None:
    """It looks only between nodes whether to stop."""
    model = Model()
    x = model.input((6000, 6000), DataType.INT32)
    model.specify_inputs_and_outputs([x], [matmul(model, x)])
    model.finish()
    daemon = start_daemon("--backend", "onnxruntime", "--stuck-s", "0.2")
    with running(daemon.address, model) as executor:
        executor.submit([np.ones((6000, 6000), np.int32)])
        with Observer(daemon.address) as observer:
            observer.wait_for(lambda state: state.running == 1)
    assert daemon.wait() == ExitCode.STUCK
