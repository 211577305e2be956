"""The path of accelerators, tried on a processor: runs on a stream, buffers of the device, and pinned memory."""

import gc
import mmap
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue

import numpy as np
import pytest
from operators.single_node import graph_of, spec
from operators.test_answers import cases_of, distances_of

from nnrt_client.conformance import Level
from nnrt_hdi.backend import Cancellation, ModelConfig, RunEnd
from nnrt_hdi.device_buffers import DeviceRegion
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, NnrtError, OutOfMemory
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import Array

pytest.importorskip("torch", reason="needs torch: `make test-torch` has it")

import torch
from nnrt_backend_torch.accelerator import AcceleratorBackend
from nnrt_backend_torch.backend import TorchBackend
from nnrt_backend_torch.options import Options, processors
from nnrt_backend_torch.pinning import Pinning
from nnrt_backend_torch.stream import Stream

DEADLINE_S = 20.0
CPU = torch.device("cpu")


@pytest.fixture
def backend() -> Iterator[AcceleratorBackend]:
    backend = AcceleratorBackend(Options(CPU, processors(), tf32=False, compile=False, name=""))  # One thread computes.
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
    backend = TorchBackend(Options(CPU, processors(), tf32=False, compile=False, name=""))
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
    """It ends with the error. A fault of the driver is the device's."""
    stream, ends = Stream(CPU), SimpleQueue[RunEnd]()

    def collect() -> list[Array]:
        raise error

    stream.enqueue(lambda: collect, ends.put)
    assert isinstance(ends.get(timeout=DEADLINE_S), kind)
    assert stream.fault == fault
    stream.enqueue(lambda: list, ends.put)
    assert ends.get(timeout=DEADLINE_S) == []
    stream.close()


def test_runs_end_before_the_stream_closes() -> None:
    stream, ends = Stream(CPU), list[RunEnd]()
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

    def register(address: int, size_bytes: int, is_read_only: bool) -> Callable[[], object]:
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

    def register(address: int, size_bytes: int, is_read_only: bool) -> Callable[[], object]:
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
