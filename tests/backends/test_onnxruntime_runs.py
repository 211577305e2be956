"""Runs of the ONNX Runtime backend: options, cancellation, threads, memory, what it refuses."""

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import warm
from daemon_process import DaemonProcess
from loaded import loaded
from net import Net
from networks import convolution_model
from nnrt_backend_onnxruntime.backend import OPTIONS
from nnrt_backend_onnxruntime.extensions import PROVIDER_OPTIONS, SESSION_OPTIONS
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_backend_onnxruntime.session import MODES
from onnxruntime_graphs import backend, prepare, reference, require_close, run

from nnrt_client import Compilation, Executor, Runtime, Settings
from nnrt_client.model.model import parts_of
from nnrt_hdi.backend import Cancellation, ModelConfig, load_backend
from nnrt_hdi.enums import DataType, DeviceType, NodeType, PerformanceMode
from nnrt_hdi.errors import InvalidParameter, NnrtError, OperationFailed, OutOfMemory, TimedOut
from nnrt_hdi.graph import Graph

N = NodeType
INT32 = DataType.INT32
JOIN_S = 60.0
SIZE = 768


def endless() -> Graph:
    """More work than any test waits for."""
    net = Net()
    x, weight = net.input(SIZE, SIZE), net.constant(np.full((SIZE, SIZE), 1 / SIZE, np.float32))
    y = x
    for _ in range(600):
        y = net.op(N.MATMUL_FUSION, y, weight)
    return net.graph(y)


class Watched(Cancellation):
    """Says when a run listens, and how many listeners have been taken back."""

    def __init__(self, deadline: float | None = None) -> None:
        super().__init__(deadline)
        self.listens = threading.Event()
        self.taken_back = 0

    def on_cancel(self, listener: Callable[[], None]) -> Callable[[], None]:
        take_back = super().on_cancel(listener)
        self.listens.set()

        def count_and_take_back() -> None:
            self.taken_back += 1
            take_back()

        return count_and_take_back


@pytest.mark.slow
def test_a_long_run_ends_when_it_is_cancelled() -> None:
    model, cancellation = prepare(endless()), Watched()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(model.run, [np.ones((SIZE, SIZE), np.float32)], cancellation)
        assert cancellation.listens.wait(JOIN_S)
        cancellation.cancel()
        with pytest.raises(OperationFailed, match="cancelled"):
            running.result(JOIN_S)


@pytest.mark.slow
def test_a_long_run_ends_at_its_deadline() -> None:
    device = backend()
    model = device.prepare(endless(), ModelConfig(), lambda _: None)
    try:
        with pytest.raises(TimedOut):
            model.run([np.ones((SIZE, SIZE), np.float32)], Cancellation(time.monotonic() + 0.2))
    finally:
        device.close()


def test_a_run_in_time_is_left_alone() -> None:
    """It leaves no listener with its cancellation, which may live on."""
    device = backend()
    net = Net()
    model = device.prepare(net.graph(net.op(N.ABS, net.input(2))), ModelConfig(), lambda _: None)
    cancellation = Watched(time.monotonic() + JOIN_S)
    (y,) = model.run([np.array([-1, 2], np.float32)], cancellation)
    assert y.tolist() == [1, 2]
    assert cancellation.taken_back == 1
    device.close()
    device.close()


def test_a_run_that_is_cancelled_before_it_starts() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    net = Net()
    model = prepare(net.graph(net.op(N.ABS, net.input(2))))
    with pytest.raises(OperationFailed, match="cancelled"):
        model.run([np.ones(2, np.float32)], cancellation)


def test_runs_of_several_threads_keep_apart() -> None:
    net = Net()
    graph = net.graph(net.op(N.SQRT, net.op(N.SQUARE, net.conv(net.input(-1, 16, 16, 3), 8))))
    model = prepare(graph)
    images = [np.full((1 + at % 3, 16, 16, 3), at, np.float32) for at in range(24)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: model.run([x], Cancellation())[0], images))
    for image, result in zip(images, results, strict=True):
        require_close([result], reference(graph, image))


def test_outputs_are_the_callers_and_inputs_are_left_alone() -> None:
    """Also where an output is an input, a constant, or another output."""
    net = Net()
    x, constant = net.input(3), net.constant(np.array([7, 8], np.float32))
    y = net.op(N.ABS, x)
    model = prepare(net.graph(y, x, constant))
    given = np.array([-1, 2, 3], np.float32)
    given.flags.writeable = False
    first = model.run([given], Cancellation())
    for array in first:
        assert array.flags.c_contiguous
        array[...] = 99
    assert [array.tolist() for array in model.run([given], Cancellation())] == [[1, 2, 3], [-1, 2, 3], [7, 8]]


def test_a_large_output_is_not_copied() -> None:
    """It lies in the memory that ONNX Runtime made it in."""
    net = Net()
    (y,) = run(net.graph(net.op(N.ABS, net.input(1024))), np.ones(1024, np.float32))
    assert not y.flags.owndata


def test_integer_divisions_that_processors_do_not_survive() -> None:
    lowest = np.iinfo(np.int32).min
    for node_type, wanted in ((N.DIV_FUSION, [0, lowest, -7]), (N.MOD, [0, 0, 0])):
        net = Net()
        graph = net.graph(net.op(node_type, net.input(3, data_type=INT32), net.input(3, data_type=INT32)))
        (y,) = run(graph, np.array([5, lowest, 7], np.int32), np.array([0, -1, -1], np.int32))
        assert y.tolist() == wanted


def test_an_assertion_that_fails() -> None:
    net = Net()
    condition, data = net.input(2, data_type=DataType.BOOL), net.input(-1)
    model = prepare(net.graph(net.op(N.ASSERT, condition, data, summarize=2)))
    values = np.array([0.5, 1.5, 2.5], np.float32)
    (passed,) = model.run([np.ones(2, np.bool_), values], Cancellation())
    assert passed.tolist() == [True, True]
    with pytest.raises(OperationFailed, match=r"ASSERT node 0: 1 of 2 .* data FLOAT32\[3\] begins with 0.5, 1.5$"):
        model.run([np.array([True, False]), values], Cancellation())


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside(index: int) -> None:
    net = Net()
    graph = net.graph(net.op(N.GATHER, net.input(3), net.input(1, data_type=INT32), net.constant(np.array(0))))
    with pytest.raises(InvalidParameter, match="GATHER node 0"):
        run(graph, np.ones(3, np.float32), np.array([index], np.int32))


def test_tensors_that_are_too_large_for_what_is_known_before_a_run() -> None:
    net = Net()
    graph = net.graph(net.op(N.ABS, net.input(-1, 1024)))
    model = prepare(graph, max_tensor_bytes=1 << 16)
    model.run([np.ones((16, 1024), np.float32)], Cancellation())
    with pytest.raises(OutOfMemory, match=r"ABS node 0: .* at most 65536 are allowed"):
        model.run([np.ones((17, 1024), np.float32)], Cancellation())
    fixed = Net()
    with pytest.raises(OutOfMemory, match="at most 65536 are allowed"):
        prepare(fixed.graph(fixed.op(N.ABS, fixed.input(1 << 20))), max_tensor_bytes=1 << 16)


def test_elements_that_decide_shapes_are_looked_at_before_a_run() -> None:
    net = Net()
    value, shape = net.input(), net.input(2, data_type=INT32)
    graph = net.graph(net.op(N.FILL, value, shape))
    model = prepare(graph)
    one = np.array(1, np.float32)
    assert model.run([one, np.array([2, 3], np.int32)], Cancellation())[0].shape == (2, 3)
    with pytest.raises(OutOfMemory, match="FILL node 0"):
        model.run([one, np.array([1 << 20, 1 << 20], np.int32)], Cancellation())
    with pytest.raises(InvalidParameter, match=r"shape is \[-1, 2\]; use sizes of 0 or more"):
        model.run([one, np.array([-1, 2], np.int32)], Cancellation())


def test_shapes_that_a_model_computes_end_at_the_memory_of_the_machine() -> None:
    net = Net()
    value, number = net.input(), net.input(1, data_type=DataType.INT64)
    shape = net.op(N.MUL_FUSION, number, net.constant(np.array([1 << 20])))
    graph = net.graph(net.op(N.FILL, value, shape))
    model = prepare(graph)
    one = np.array(1, np.float32)
    assert model.run([one, np.array([1])], Cancellation())[0].shape == (1 << 20,)
    with pytest.raises(OutOfMemory):
        model.run([one, np.array([1 << 24])], Cancellation())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says what memory a process has")
def test_a_model_that_is_closed_gives_back_the_memory_of_its_runs() -> None:
    net = Net()
    x = net.input(-1, 1024)
    graph = net.graph(net.op(N.REDUCE_FUSION, net.op(N.COS, net.op(N.SIN, x)), net.constant(np.array([0, 1]))))
    before = resident_bytes()
    model = prepare(graph)
    model.run([np.zeros((1 << 15, 1024), np.float32)], Cancellation())
    taken = resident_bytes() - before
    assert taken > 1 << 26
    model.close()
    assert resident_bytes() - before < taken / 2


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_performance_modes_set_the_session(mode: PerformanceMode) -> None:
    net = Net()
    graph = net.graph(net.op(N.ABS, net.input(2)))
    model = backend(threads="4").prepare(graph, ModelConfig(mode=mode), lambda _: None)
    options = model.session.get_session_options()
    threads = {PerformanceMode.LOW: 1, PerformanceMode.MEDIUM: 2}.get(mode, 4)
    spins = "1" if mode is PerformanceMode.EXTREME else "0"
    assert options.intra_op_num_threads == threads
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == spins
    assert options.graph_optimization_level == MODES[mode].level


def test_extensions_reach_the_session_by_name() -> None:
    net = Net()
    graph = net.graph(net.op(N.ABS, net.input(2)))
    model = prepare(graph, extensions={"session.disable_prepacking": b"1"})
    assert model.session.get_session_options().get_session_config_entry("session.disable_prepacking") == "1"


@pytest.mark.parametrize(
    ("provider", "option"),
    [
        ("cuda", "gpu_external_alloc"),
        ("cuda", "user_compute_stream"),
        ("cuda", "device_id"),
        ("tensorrt", "trt_engine_cache_path"),
        ("tensorrt", "trt_extra_plugin_lib_paths"),
        ("openvino", "load_config"),
        ("qnn", "backend_path"),
        ("cann", "dump_om_model"),
    ],
)
def test_options_of_providers_that_are_not_for_clients(provider: str, option: str) -> None:
    """They are addresses that are called, libraries that are loaded, files that are written."""
    with pytest.raises(InvalidParameter, match=f"has no option '{option}'"):
        ProviderDevice(provider, 0, 1).providers({f"provider.{option}": b"1"})


def test_options_of_providers() -> None:
    ((_, options), _) = ProviderDevice("cuda", 1, 1).providers({"provider.use_tf32": b"0"})
    assert options == {"use_tf32": "0", "device_id": "1"}


def test_the_page_names_every_extension_and_provider_option() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/reference/onnxruntime-backend.md").read_text()
    assert [name for name in SESSION_OPTIONS if f"`{name.removeprefix('session.')}`" not in page] == []
    assert [name for names in PROVIDER_OPTIONS.values() for name in names if f"`{name}`" not in page] == []
    assert [name for name in OPTIONS if f"| `{name}`" not in page] == []
    assert [mode.name for mode in MODES if mode.name not in page] == []


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("session.model_external_initializers_file_folder_path", b"1", "there is no extension"),
        ("other", b"1", "there is no extension 'other'"),
        ("provider.device_id", b"1", "the provider cpu has no option 'device_id'"),
        ("session.disable_prepacking", b"/etc/passwd", "use 1 or 0"),
        ("session.dynamic_block_base", b"9" * 20, "use 1 or 0"),
        ("session.disable_prepacking", b"\xff", "use at most 256 of ASCII"),
    ],
)
def test_extensions_that_are_refused(name: str, value: bytes, message: str) -> None:
    net = Net()
    with pytest.raises(InvalidParameter, match=message):
        prepare(net.graph(net.op(N.ABS, net.input(2))), extensions={name: value})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"provider": "gpu"}, "there is no provider 'gpu'; present: .*cpu"),
        ({"device_index": "1"}, "cpu has one device; use 0"),
        ({"device_index": "-1"}, "option device_index is '-1'"),
        ({"threads": "0"}, "option threads is '0'; use a number of 1 or more"),
        ({"colour": "red"}, "has no option 'colour'; it has provider, device_index, threads, name"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        load_backend("onnxruntime", options)


@pytest.mark.skipif("CUDAExecutionProvider" in onnxruntime.get_available_providers(), reason="CUDA is there")
def test_a_provider_that_is_not_there_is_an_error_and_no_fall_back() -> None:
    with pytest.raises(InvalidParameter, match=r"provider 'cuda' is not in this ONNX Runtime .*; present: cpu"):
        load_backend("onnxruntime", {"provider": "cuda"})


def test_who_it_is() -> None:
    info = load_backend("onnxruntime", {"name": "left"}).describe()
    assert (info.device_name, info.device_type, info.backend_name) == ("left", DeviceType.CPU, "onnxruntime")
    assert info.backend_version.startswith(f"{onnxruntime.__version__} (cpu")
    assert loaded("onnxruntime").describe().device_name == "onnxruntime-cpu"


def test_without_the_library_it_is_skipped() -> None:
    program = """
import sys
sys.modules["onnxruntime"] = None
from nnrt_hdi.backend import backend_states
(state,) = [state for state in backend_states() if state.name == "onnxruntime"]
print(state.skipped)
"""
    said = warm.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert "install nnrt[onnxruntime]" in said


@pytest.mark.slow
def test_a_daemon_serves_it() -> None:
    daemon = DaemonProcess("--backend", "onnxruntime", "--option", "threads=1")
    try:
        model = convolution_model()
        image = np.random.default_rng(0).random((3, 8, 8, 1), np.float32)
        with (
            Runtime([daemon.address], Settings()) as runtime,
            Compilation(model, runtime.device()) as compilation,
        ):
            compilation.set_performance_mode(PerformanceMode.HIGH)
            compilation.build()
            with Executor(compilation) as executor:
                (y,) = executor.run_sync([image])
        require_close([y], reference(parts_of(model).graph, image))
    finally:
        daemon.kill()


def test_errors_are_those_of_nnrt() -> None:
    net = Net()
    graph = net.graph(net.op(N.RESHAPE, net.input(-1), net.constant(np.array([-1, 4]))))
    with pytest.raises(NnrtError, match="RESHAPE node 0"):
        run(graph, np.ones(6, np.float32))
