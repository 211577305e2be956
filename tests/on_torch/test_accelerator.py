"""The path of accelerators, tried on a processor: runs on a stream, buffers of the device, and pinned memory."""

import gc
import mmap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from operators.single_node import graph_of, spec
from operators.test_answers import cases_of, distances_of

from nnrt_client.conformance import Level
from nnrt_hdi.backend import Cancellation, ModelConfig, RunEnd, backend_states, load_backend
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.host_limits import processors
from nnrt_hdi.steps import ALL_FOLDED_BYTES
from nnrt_hdi.tensor import Array

pytest.importorskip("torch", reason="needs torch: `make test-torch` has it")

import torch
from nnrt_backend_torch import found
from nnrt_backend_torch.accelerator import AcceleratorBackend
from nnrt_backend_torch.backend import TorchBackend
from nnrt_backend_torch.options import Options
from nnrt_backend_torch.pinning import Pinning
from nnrt_backend_torch.stream import NativeStream, Stream

DEADLINE_S = 20.0
CPU = torch.device("cpu")


@pytest.fixture
def backend() -> Iterator[AcceleratorBackend]:
    backend = AcceleratorBackend(
        Options(CPU, processors(), tf32=False, pinning=False, compile=False, name="")
    )  # One thread computes.
    yield backend
    backend.close()


def sum_graph(length: int = 4) -> Graph:
    """Return a graph that adds two vectors."""
    vector = spec((length,), DataType.FLOAT32)
    return graph_of(NodeType.ADD_FUSION, [(vector, None), (vector, None)], {}, vector)


@pytest.mark.parametrize("family", ["arithmetic", "convolution", "shape", "indexing"])
def test_it_gives_the_answers(backend: AcceleratorBackend, family: str) -> None:
    for case in cases_of(Level.OPERATORS, family):
        distances_of(case, backend)


def test_runs_end_in_their_order(backend: AcceleratorBackend) -> None:
    model = backend.prepare(sum_graph(), ModelConfig(), lambda _: None)
    ends: SimpleQueue[RunEnd] = SimpleQueue()
    for number in range(100):
        vector = np.full(4, number, np.float32)
        model.start([vector, vector], Cancellation(), [], ends.put)
    for number in range(100):
        (y,) = answer(ends.get(timeout=DEADLINE_S))
        np.testing.assert_array_equal(y, np.full(4, 2 * number, np.float32))


def test_what_clients_keep_stays_on_the_device(backend: AcceleratorBackend) -> None:
    """An output may overwrite the input that it is computed of, and another input."""
    model = backend.prepare(sum_graph(), ModelConfig(), lambda _: None)
    buffer = backend.allocate(64)
    buffer.write(0, memoryview(np.arange(8, dtype=np.float32).tobytes()))
    low, high = (DeviceRegion(buffer, at, spec((4,), DataType.FLOAT32)) for at in (0, 16))
    middle = DeviceRegion(buffer, 8, spec((4,), DataType.FLOAT32))
    ends: SimpleQueue[RunEnd] = SimpleQueue()
    model.start([low, high], Cancellation(), [middle], ends.put)  # type: ignore[list-item]
    assert answer(ends.get(timeout=DEADLINE_S)) == [middle]
    np.testing.assert_array_equal(middle.copy(), [4, 6, 8, 10])
    np.testing.assert_array_equal(low.copy(), [0, 1, 4, 6])
    buffer.close()


def test_a_view_of_an_input_is_copied_before_another_output_is_written(backend: AcceleratorBackend) -> None:
    """Split: both outputs are views of one input, and change places in its own memory."""
    vector, half = spec((8,), DataType.FLOAT32), spec((4,), DataType.FLOAT32)
    graph = graph_of(NodeType.SPLIT, [(vector, None)], {"output_num": 2, "size_splits": (4, 4), "axis": 0}, half, half)
    model = backend.prepare(graph, ModelConfig(), lambda _: None)
    buffer = backend.allocate(32)
    buffer.write(0, memoryview(np.arange(8, dtype=np.float32).tobytes()))
    regions = [DeviceRegion(buffer, at, half) for at in (16, 0)]
    ends: SimpleQueue[RunEnd] = SimpleQueue()
    model.start([DeviceRegion(buffer, 0, vector)], Cancellation(), regions, ends.put)  # type: ignore[list-item, arg-type]
    assert answer(ends.get(timeout=DEADLINE_S)) == regions
    np.testing.assert_array_equal(regions[0].copy(), [0, 1, 2, 3])
    np.testing.assert_array_equal(regions[1].copy(), [4, 5, 6, 7])


def test_what_a_model_takes_on_the_device(backend: AcceleratorBackend) -> None:
    """Its weights, in the type that they have there. A closed model takes nothing, though something may know it."""
    x, weights = spec((1000,), DataType.FLOAT32), np.ones(1000, np.float32)
    graph = graph_of(NodeType.ADD_FUSION, [(x, None), (x, weights)], {}, x)
    whole, half = (
        backend.prepare(graph, ModelConfig(enable_float16=is_half), lambda _: None) for is_half in (False, True)
    )
    assert (whole.device_bytes, half.device_bytes) == (4000 + ALL_FOLDED_BYTES, 2000 + ALL_FOLDED_BYTES)
    on_device = weakref.ref(half.prepared([]).folded.values[1])
    assert on_device() is not None
    gc.disable()  # Cycles are left until it runs.
    try:
        half.close()
        assert on_device() is None
    finally:
        gc.enable()
    on_cpu = TorchBackend(Options(CPU, processors(), tf32=False, pinning=False, compile=False, name=""))
    assert on_cpu.prepare(graph, ModelConfig(), lambda _: None).device_bytes is None
    on_cpu.close()


def test_a_run_that_is_cancelled_is_not_computed(backend: AcceleratorBackend) -> None:
    model = backend.prepare(sum_graph(), ModelConfig(), lambda _: None)
    cancellation, vector = Cancellation(), np.zeros(4, np.float32)
    cancellation.cancel()
    ends: SimpleQueue[RunEnd] = SimpleQueue()
    model.start([vector, vector], cancellation, [], ends.put)
    assert isinstance(ends.get(timeout=DEADLINE_S), NnrtError)


@pytest.mark.slow
def test_results_that_follow_from_shapes_are_computed_once() -> None:
    """Also if they are outputs, which each caller may change."""
    backend = TorchBackend(Options(CPU, processors(), tf32=False, pinning=False, compile=False, name=""))
    x = spec((-1, 3), DataType.FLOAT32)
    graph = graph_of(NodeType.SHAPE, [(x, None)], {}, spec((2,), DataType.INT32))
    model = backend.prepare(graph, ModelConfig(), lambda _: None)
    for rows in (2, 5, 2):
        array = np.zeros((rows, 3), np.float32)
        assert not model.prepared([array]).folded.run.steps
        (y,) = model.run([array], Cancellation())
        np.testing.assert_array_equal(y, [rows, 3])
        y[:] = 0
    backend.close()


def test_checks_of_elements_are_made_when_the_run_ends(backend: AcceleratorBackend) -> None:
    """A run with an index out of bounds ends with the error that a CPU raises at once."""
    x, indices = spec((4,), DataType.FLOAT32), spec((2,), DataType.INT32)
    axis = (spec((), DataType.INT64), np.array(0))
    graph = graph_of(NodeType.GATHER, [(x, None), (indices, None), axis], {}, spec((2,), DataType.FLOAT32))
    model = backend.prepare(graph, ModelConfig(), lambda _: None)
    vector = np.arange(4, dtype=np.float32)
    (y,) = model.run([vector, np.array([3, 0], np.int32)], Cancellation())
    np.testing.assert_array_equal(y, [3, 0])
    with pytest.raises(InvalidParameter, match=r"GATHER node 0: indices\[1\] is -1 in a dimension of 4 elements"):
        model.run([vector, np.array([3, -1], np.int32)], Cancellation())


@pytest.mark.parametrize(
    ("error", "fault", "kind"),
    [
        (
            torch.AcceleratorError("CUDA error: an illegal memory access\nmore"),
            "CUDA error: an illegal memory access",
            torch.AcceleratorError,
        ),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "", OutOfMemory),
        (RuntimeError("a kernel that is wrong"), "", RuntimeError),
    ],
    ids=["a fault that stays", "no memory", "another error"],
)
def test_a_run_that_fails_on_the_device(error: Exception, fault: str, kind: type[Exception]) -> None:
    """The run ends with the error. After a fault of the driver, the stream has that fault."""
    stream, ends = Stream("cpu"), SimpleQueue[RunEnd]()

    def collect() -> list[Array]:
        raise error

    stream.enqueue(lambda: collect, ends.put)
    assert isinstance(ends.get(timeout=DEADLINE_S), kind)
    assert stream.fault == fault
    stream.enqueue(lambda: list, ends.put)
    assert ends.get(timeout=DEADLINE_S) == []
    stream.close()


class SimulatedStream(NativeStream):
    """Stream of an accelerator that does all work late: an event comes when the test lets it."""

    def __init__(self) -> None:
        self.inside = 0
        self.events: SimpleQueue[threading.Event] = SimpleQueue()
        self.is_synchronized = False

    @contextmanager
    def current(self) -> Iterator[None]:
        self.inside += 1
        yield
        self.inside -= 1

    def record_event(self) -> Any:
        assert self.inside, "it is recorded on the stream"
        done = threading.Event()
        self.events.put(done)
        return SimpleNamespace(synchronize=lambda: done.wait(DEADLINE_S))

    def synchronize(self) -> None:
        self.is_synchronized = True


def test_a_run_on_an_accelerator_ends_after_its_event() -> None:
    """The stream gives the device the work at once, and collects the outputs when the device has done it."""
    native = SimulatedStream()
    stream, ends, steps = Stream("simulated", native), SimpleQueue[RunEnd](), list[str]()

    def compute() -> Callable[[], list[Array]]:
        assert native.inside
        steps.append("given")
        return collect

    def collect() -> list[Array]:
        steps.append("collected")
        return []

    stream.enqueue(compute, ends.put)
    stream.enqueue(compute, ends.put)
    assert steps == ["given", "given"]
    assert ends.empty()
    for done in (native.events.get(), native.events.get()):
        done.set()
        assert ends.get(timeout=DEADLINE_S) == []
    assert steps == ["given", "given", "collected", "collected"]
    stream.close()
    assert not native.is_synchronized


@pytest.mark.parametrize(
    ("error", "kind", "fault"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB\nmore"), OutOfMemory, ""),
        (
            torch.AcceleratorError("CUDA error: misaligned address\nmore"),
            torch.AcceleratorError,
            "CUDA error: misaligned address",
        ),
        (InvalidParameter("no"), InvalidParameter, ""),
    ],
    ids=["no memory", "a fault that stays", "an error for the client"],
)
def test_work_that_an_accelerator_refuses(error: Exception, kind: type[Exception], fault: str) -> None:
    """Nothing was started. The device no longer reads the run's inputs, unless it has a fault."""
    native = SimulatedStream()
    stream = Stream("simulated", native)

    def compute() -> Callable[[], list[Array]]:
        raise error

    with pytest.raises(kind):
        stream.enqueue(compute, lambda end: pytest.fail("it has no end"))
    assert (stream.fault, native.is_synchronized) == (fault, not fault)
    stream.close()


@pytest.mark.parametrize("threads", ["0", "x", "1000000"])
def test_a_wrong_number_of_threads(threads: str) -> None:
    with pytest.raises(InvalidParameter, match="threads"):
        load_backend("torch", {"threads": threads})


def test_devices_are_listed() -> None:
    (state,) = [state for state in backend_states() if state.name == "torch"]
    assert (state.broken, state.skipped) == ("", "")
    assert [(device.name, device.hardware) for device in state.devices][-1] == ("cpu", "")


@pytest.mark.parametrize(("hip", "driver"), [(None, "cuda"), ("6.4", "hip")])
def test_accelerators_are_called_as_other_backends_call_them(
    monkeypatch: pytest.MonkeyPatch, hip: str | None, driver: str
) -> None:
    monkeypatch.setattr(found, "present_devices", lambda: [torch.device("cuda", 1), CPU])
    monkeypatch.setattr(torch.version, "hip", hip)
    device, _ = found.found_devices()
    assert (device.name, device.options, device.hardware) == ("cuda-1", {"device": "cuda:1"}, f"{driver}:1")


def test_threads_of_a_run() -> None:
    """Products of matrices, too, take as many threads as the option says."""
    backend = load_backend("torch", {"threads": "1"})
    square = spec((512, 512), DataType.FLOAT32)
    model = backend.prepare(graph_of(NodeType.MATMUL_FUSION, [(square, None)] * 2, {}, square), ModelConfig(), print)
    x = np.ones((512, 512), np.float32)
    model.run([x, x], Cancellation())
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(40):
        model.run([x, x], Cancellation())
    ratio = (time.process_time() - cpu) / (time.perf_counter() - wall)
    backend.close()
    assert ratio < 1.5


def test_runs_end_before_the_stream_closes() -> None:
    stream, ends = Stream("cpu"), list[RunEnd]()
    may_end = threading.Event()

    def collect() -> list[Array]:
        assert may_end.wait(DEADLINE_S)
        return []

    for _ in range(3):
        stream.enqueue(lambda: collect, ends.append)
    may_end.set()
    stream.close()
    assert ends == [[], [], []]


def test_mapped_memory_is_registered_once_and_until_it_is_unmapped() -> None:
    registered: dict[int, int] = {}

    def register(address: int, size_bytes: int) -> Callable[[], object]:
        registered[address] = size_bytes
        return lambda: registered.pop(address)

    pinning = Pinning(register)
    mapping = mmap.mmap(-1, 1 << 20)
    large = np.frombuffer(memoryview(mapping)[4096:], np.float32)[:50_000].reshape(5, -1)
    pinning.pin(large[1:])
    pinning.pin(large)
    pinning.pin(large[0, :10])
    pinning.pin(np.zeros(1 << 20, np.uint8))
    assert list(registered.values()) == [1 << 20]
    del mapping, large
    gc.collect()
    assert registered == {}


def test_memory_that_cannot_be_registered_is_used_as_it_is() -> None:
    asked = list[int]()

    def register(address: int, size_bytes: int) -> Callable[[], object]:
        asked.append(size_bytes)
        raise RuntimeError("CUDA error: part or all of the requested memory range is already mapped")

    pinning, mapping = Pinning(register), mmap.mmap(-1, 1 << 20)
    for _ in range(3):
        pinning.pin(np.frombuffer(mapping, np.uint8))
    assert asked == [1 << 20]


def answer(end: RunEnd) -> list[Array]:
    """Return the outputs of a run; raise its error."""
    if isinstance(end, BaseException):
        raise end
    return list(end)
