"""The cost of having a model ready again: from the client's cache, from the daemon's store, and without either.

    PYTHONPATH=tests:tests/onnx_import python benchmarks/caches.py [resnet]

The ways are measured in turns, in one process. What is sent is counted on the wire, by a proxy of its own run. With
`resnet` the network alone is measured.
"""

import os
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx_networks import in_process_session, of_onnx, spread
from report import Report
from small_run import device_daemon

from nnrt_client import Compilation, Device, Executor, Model, ModelTensor, OperationType, Origin, Runtime, from_onnx
from nnrt_hdi.backend import backend_names

# Those of them that are installed.
BACKENDS = ("reference", "onnxruntime")
LAYERS = 10
WIDTH = 1000
# 40 MB of float32 in LAYERS matrices.
WEIGHTS_BYTES = LAYERS * WIDTH * WIDTH * 4
OPERATIONS = 2000
ROUNDS = 9
NETWORK_ROUNDS = 7

Weights = Sequence[NDArray[np.float32]]
Way = Callable[[Device], Compilation]
# Seconds that pass, and seconds of processors that both sides take.
Took = tuple[float, float]


class CountingProxy:
    """Passes connections on to a daemon, and counts the bytes that its clients send."""

    def __init__(self, address: str) -> None:
        self.sent_bytes = 0
        self._daemon = address.rsplit(":", 1)
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for end in self._open:
            with suppress(OSError):  # It has ended.
                end.shutdown(socket.SHUT_RDWR)  # Closing it would not wake the thread that waits.
        for thread in self._threads:
            thread.join()
        for end in (*self._open, self._listener):
            end.close()

    def _accept(self) -> None:
        host, port = self._daemon
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # `close` was called.
                return
            daemon = socket.create_connection((host, int(port)))
            self._open += [client, daemon]
            for source, sink, is_client in ((client, daemon, True), (daemon, client, False)):
                thread = threading.Thread(target=self._pass_on, args=(source, sink, is_client))
                thread.start()
                self._threads.append(thread)

    def _pass_on(self, source: socket.socket, sink: socket.socket, is_client: bool) -> None:
        try:
            while data := source.recv(1 << 20):
                if is_client:
                    self.sent_bytes += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # One of the two has gone.


def finished(model: Model, x: ModelTensor, y: ModelTensor) -> Model:
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def large_model(weights: Weights) -> Model:
    """Fully connected layers, each with weights of its own."""
    model = Model()
    x = y = model.input((-1, WIDTH), name="x")
    for matrix in weights:
        y = model.apply(OperationType.FULL_CONNECTION, y, matrix, np.zeros(WIDTH, np.float32))
    return finished(model, x, y)


def long_model() -> Model:
    """Many operations that compute little."""
    model = Model()
    x = y = model.input((-1, 64), name="x")
    for number in range(OPERATIONS // 2):
        y = model.apply(OperationType.ADD, y, np.full(64, number, np.float32))
        y = model.apply(OperationType.RELU, y)
    return finished(model, x, y)


@contextmanager
def counting(address: str) -> Iterator[CountingProxy]:
    proxy = CountingProxy(address)
    try:
        yield proxy
    finally:
        proxy.close()


def measure() -> list[Report]:
    report = Report(
        "Having a model ready again",
        f"TCP loopback, two models: one with {WEIGHTS_BYTES / 1e6:.0f} MB of weights in {LAYERS} operations, which cost"
        f" their way to the daemon and their digests, and one with {OPERATIONS} small operations, which cost their"
        " checks. From weights in numpy's arrays, or from nothing, to an executor: constructing the model if there is"
        " one, reading and checking the cache's file, checks, upload, compilation. Once in a fresh session, for which"
        f" nothing is uploaded, and once more in the same one. Median of {ROUNDS} rounds taken in turns; a ratio is the"
        " median of the rounds' ratios to building cold, fresh to fresh and again to again, with their quartiles. Sent"
        " is what the client sends, fresh and again, counted by a proxy on the wire.",
        ("backend", "model", "from", "fresh ms", "ratio", "quartiles", "again ms", "ratio", "quartiles", "sent MB"),
    )
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((WIDTH, WIDTH), np.float32) for _ in range(LAYERS)]
    for backend in sorted(set(BACKENDS) & set(backend_names())):
        _measure_model(backend, "weights", lambda: large_model(weights), report)
        _measure_model(backend, "operations", long_model, report)
    return [report, network_report()]


def _measure_model(backend: str, model_name: str, construct: Callable[[], Model], report: Report) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "cache").mkdir()
        serving = ("127.0.0.1:0", "--backend", backend)
        plain, _ = stack.enter_context(device_daemon(*serving))
        storing, _ = stack.enter_context(device_daemon(*serving, "--store-dir", str(folder / "store")))

        def building(device: Device) -> Compilation:
            return Compilation(construct(), device)

        def from_cache(device: Device) -> Compilation:
            return _with_cache(Compilation.for_cache(device), folder / "cache")

        def building_with_cache(device: Device) -> Compilation:
            return _with_cache(building(device), folder / "cache")

        plans = (
            ("nothing: cold", plain, building, Origin.COMPILED),
            ("the cache alone", plain, from_cache, Origin.RESTORED),
            ("the cache, with the model", plain, building_with_cache, Origin.RESTORED),
            ("the daemon's store", storing, building, Origin.STORED),
        )
        for address, way in ((plain, building_with_cache), (storing, building)):
            _ready_twice(address, way)  # Writes the cache, and fills the store.
        rounds = [[_ready_twice(address, way, origin) for _, address, way, origin in plans] for _ in range(ROUNDS)]
        for index, (name, address, way, _) in enumerate(plans):
            cells = []
            for turn in range(2):
                low, middle, high = statistics.quantiles(ready[index][turn] / ready[0][turn] for ready in rounds)
                median_s = statistics.median(ready[index][turn] for ready in rounds)
                cells += [f"{median_s * 1e3:.0f}", f"{middle:.2f}", f"{low:.2f}..{high:.2f}"]
            sent = ", ".join(f"{size / 1e6:.3f}" for size in _sent_bytes(address, way))
            report.add(backend, model_name, name, *cells, sent)


def _with_cache(compilation: Compilation, folder: Path) -> Compilation:
    compilation.set_cache(folder, 1)
    return compilation


def _ready_twice(address: str, way: Way, origin: Origin | None = None) -> list[float]:
    """Seconds to an executor, twice in one session. The model must come from there."""
    with Runtime([address]) as runtime:
        device = runtime.device()
        return [_ready(way, device, origin) for _ in range(2)]


def _ready(way: Way, device: Device, origin: Origin | None = None) -> float:
    started = time.perf_counter()
    with way(device) as compilation:
        compilation.build()
        with Executor(compilation):
            seconds = time.perf_counter() - started
        assert origin in (None, compilation.origin), compilation.origin
        return seconds


def network_report() -> Report:
    report = Report(
        "Having ResNet-50 ready again",
        "102 MB of random weights, to daemons on this host, each time in a fresh session and with the ONNX file"
        " imported before: compiled, with everything uploaded; from the daemon's store, which the daemon has read"
        " before, or which a daemon that was just started finds; from the client's cache, without the model and with"
        " it, which the daemon has digested before, or which one that was just started digests; and for comparison a"
        " session of ONNX Runtime in process, from the file. CPU is the time of all threads of"
        f" both processes. Medians of {NETWORK_ROUNDS} rounds taken in turns, after one that isn't counted; a ratio is"
        " the median of the rounds' ratios to compiling, with their quartiles.",
        ("backend", "from", "ms", "ratio", "quartiles", "CPU ms", "ratio", "quartiles"),
    )
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "resnet50.onnx")
        onnx.save(of_onnx("resnet50"), path)
        for backend in sorted(set(BACKENDS) & set(backend_names())):
            _measure_network(backend, path, report)
    return report


def _measure_network(backend: str, path: Path, report: Report) -> None:
    model = from_onnx(path)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "cache").mkdir()
        serving = ("127.0.0.1:0", "--backend", backend)
        storing_flags = (*serving, "--store-dir", str(folder / "store"))
        # One that gives back what a compilation has left would do so while another model is restored.
        compiling, restoring = (stack.enter_context(device_daemon(*serving)) for _ in range(2))
        storing = stack.enter_context(device_daemon(*storing_flags))
        building = partial(Compilation, model)

        def from_cache(device: Device) -> Compilation:
            return _with_cache(Compilation.for_cache(device), folder / "cache")

        def building_with_cache(device: Device) -> Compilation:
            return _with_cache(building(device), folder / "cache")

        def by_a_new_daemon(flags: Sequence[str], way: Way, origin: Origin) -> Took:
            with device_daemon(*flags) as started:
                return _took(started, way, origin)

        ways: dict[str, Callable[[], Took]] = {
            "nothing: compiled": partial(_took, compiling, building, Origin.COMPILED),
            "the daemon's store": partial(_took, storing, building, Origin.STORED),
            "the daemon's store, by a new daemon": partial(by_a_new_daemon, storing_flags, building, Origin.STORED),
            "the client's cache": partial(_took, restoring, from_cache, Origin.RESTORED),
            "the client's cache, by a new daemon": partial(by_a_new_daemon, serving, from_cache, Origin.RESTORED),
            "the client's cache, with the model": partial(_took, restoring, building_with_cache, Origin.RESTORED),
        }
        if backend == "onnxruntime":
            ways["the ONNX file, in process"] = partial(_took_in_process, path)
        _took(restoring, building_with_cache, Origin.COMPILED)  # Writes the cache.
        _took(storing, building, Origin.COMPILED)
        _took(storing, building, Origin.STORED)  # Waits until the store is filled.
        # The first one is for memory that the host has to find first.
        rounds = [[way() for way in ways.values()] for _ in range(1 + NETWORK_ROUNDS)][1:]
    for index, name in enumerate(ways):
        cells = []
        for kind in range(2):
            median_s = statistics.median(each[index][kind] for each in rounds)
            cells += [f"{median_s * 1e3:.0f}", *spread((each[index][kind] / each[0][kind] for each in rounds), 2)]
        report.add(backend, name, *cells)


def _took(daemon: tuple[str, int], way: Way, origin: Origin) -> Took:
    """Measure what a way takes in a fresh session. The model must come from there."""
    address, pid = daemon
    with Runtime([address]) as runtime:
        device = runtime.device()
        before_s = time.process_time() + _processor_s(pid)
        seconds = _ready(way, device, origin)
        return seconds, time.process_time() + _processor_s(pid) - before_s


def _took_in_process(path: Path) -> Took:
    began_s, before_s = time.perf_counter(), time.process_time()
    in_process_session(path, os.cpu_count() or 1)
    return time.perf_counter() - began_s, time.process_time() - before_s


def _processor_s(pid: int) -> float:
    """Seconds of processors that all threads of another process have taken: see clock_getcpuclockid of Linux."""
    return time.clock_gettime(~pid << 3 | 2)


def _sent_bytes(address: str, way: Way) -> list[int]:
    """Count what a client sends for it, twice in one session."""
    sent = []
    with counting(address) as proxy, Runtime([proxy.address]) as runtime:
        device = runtime.device()
        for _ in range(2):
            before = proxy.sent_bytes
            _ready(way, device)
            sent.append(proxy.sent_bytes - before)
    return sent


if __name__ == "__main__":
    for report in [network_report()] if sys.argv[1:] == ["resnet"] else measure():
        report.show()
