"""What building a model again costs: from the client's cache, from the daemon's store, and without either.

    python benchmarks/caches.py

The ways are measured in turns, in one process. What is sent is counted on the wire, by a proxy of its own run.
"""

import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from report import Report
from small_run import device_daemon

from nnrt_client import Compilation, Device, Model, ModelTensor, OperationType, Origin, Runtime

LAYERS = 10
WIDTH = 1000
# 40 MB of float32 in LAYERS matrices.
WEIGHTS_BYTES = LAYERS * WIDTH * WIDTH * 4
OPERATIONS = 2000
ROUNDS = 9

Way = Callable[[Device], Compilation]


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
            end.close()
        for thread in self._threads:
            thread.join()
        self._listener.close()

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


def large_model() -> Model:
    """Fully connected layers, each with weights of its own."""
    rng = np.random.default_rng(0)
    model = Model()
    x = y = model.input((-1, WIDTH), name="x")
    for _ in range(LAYERS):
        weights = rng.standard_normal((WIDTH, WIDTH), np.float32)
        y = model.apply(OperationType.FULL_CONNECTION, y, weights, np.zeros(WIDTH, np.float32))
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
        "Building a model again",
        f"Two models on the reference backend, TCP loopback: one with {WEIGHTS_BYTES / 1e6:.0f} MB of weights in"
        f" {LAYERS} operations, which cost their way to the daemon, and one with {OPERATIONS} small operations, which"
        f" cost their checks. Median of {ROUNDS} rounds taken in turns; the ratio is the median of the rounds' ratios"
        " to the cold build, with their quartiles. A build from the client's cache includes reading and checking its"
        " file, which travels to the daemon; the daemon's store is where it is needed. Sent is what the client sends,"
        " counted by a proxy on the wire.",
        ("model", "build", "origin", "ms", "ratio", "quartiles", "sent MB", "of the cold"),
    )
    for name, model in (("weights", large_model()), ("operations", long_model())):
        _measure_model(name, model, report)
    return [report]


def _measure_model(model_name: str, model: Model, report: Report) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "cache").mkdir()
        plain, _ = stack.enter_context(device_daemon("127.0.0.1:0"))
        storing, _ = stack.enter_context(device_daemon("127.0.0.1:0", "--store-dir", str(folder / "store")))

        def compiling(device: Device) -> Compilation:
            return Compilation(model, device)

        def cached(device: Device) -> Compilation:
            compilation = Compilation(model, device)
            compilation.set_cache(folder / "cache", 1)
            return compilation

        # In pairs: the first build in a session, and the second.
        plans = (
            (plain, compiling, ("cold", "again in the session")),
            (plain, cached, ("from the client's cache", "again in the session")),
            (storing, compiling, ("from the daemon's store", "again in the session")),
        )
        for address, way, _ in plans[1:]:
            _build_twice(address, way)  # Writes the cache, and fills the store.
        rounds = [[build for address, way, _ in plans for build in _build_twice(address, way)] for _ in range(ROUNDS)]
        sent = [size for address, way, _ in plans for size in _sent_bytes(address, way)]
        names = [name for _, _, both in plans for name in both]
        for index, name in enumerate(names):
            low, middle, high = statistics.quantiles(builds[index][1] / builds[0][1] for builds in rounds)
            report.add(
                model_name,
                name,
                rounds[0][index][0].value,
                f"{statistics.median(builds[index][1] for builds in rounds) * 1e3:.0f}",
                f"{middle:.2f}",
                f"{low:.2f}..{high:.2f}",
                f"{sent[index] / 1e6:.3f}",
                f"{sent[index] / sent[0]:.2%}",
            )


def _build_twice(address: str, way: Way) -> list[tuple[Origin, float]]:
    """Two builds in one session: where each got its model, and the seconds."""
    with Runtime([address]) as runtime:
        device = runtime.device()
        return [_build(way, device) for _ in range(2)]


def _build(way: Way, device: Device) -> tuple[Origin, float]:
    started = time.perf_counter()
    with way(device) as compilation:
        compilation.build()
        seconds = time.perf_counter() - started
        assert compilation.origin is not None
        return compilation.origin, seconds


def _sent_bytes(address: str, way: Way) -> list[int]:
    """What two builds in one session send."""
    sent = []
    with counting(address) as proxy, Runtime([proxy.address]) as runtime:
        device = runtime.device()
        for _ in range(2):
            before = proxy.sent_bytes
            _build(way, device)
            sent.append(proxy.sent_bytes - before)
    return sent


if __name__ == "__main__":
    for report in measure():
        report.show()
