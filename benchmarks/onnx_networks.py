"""Whole networks through the onnxruntime backend, beside ONNX Runtime in this process.

    PYTHONPATH=tests:tests/onnx_import python benchmarks/onnx_networks.py

Both sides compute the same ONNX file with as many threads, which don't spin while they wait (the backend's default), in
turns.
"""

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import onnx
import onnxruntime
from onnx_models import LIGHT, AnyArray, Graph, with_weights
from processor_time import processor_s
from report import Report, pair_cells
from small_run import device_daemon

from nnrt_client import Compilation, Device, Executor, Runtime, Settings, from_onnx

ROUNDS = 11
RUNS_PER_ROUND = 4
SIZES = {"1 KB": 1 << 10, "64 KB": 1 << 16, "600 KB": 600 << 10, "4 MB": 1 << 22}
SMALL_ROUNDS = 15
SMALL_RUNS_PER_ROUND = 30
CLIENTS = 8
THROUGHPUT_ROUNDS = 4
THROUGHPUT_S = 1.5

Run = Callable[[], Any]
T = TypeVar("T")
Connect = Callable[[], Runtime]
# To a daemon on this host.
TRANSPORTS = {"shared memory": Settings(), "gRPC over TCP": Settings(share_memory=False)}


# ---- networks


def of_onnx(name: str) -> onnx.ModelProto:
    """One of the networks that onnx brings along, with random weights."""
    return with_weights(onnx.load(LIGHT / f"light_{name}.onnx"))


def encoder(blocks: int = 4, tokens: int = 128, width: int = 512, heads: int = 8) -> onnx.ModelProto:
    """Transformer encoder blocks, as BERT has them."""
    rng = np.random.default_rng(1)
    g = Graph()

    def dense(x: str, inner: int, outer: int) -> str:
        weight = g.constant(rng.normal(size=(inner, outer)).astype("f4") / np.float32(inner) ** 0.5)
        return str(g.op("Add", g.op("MatMul", x, weight), g.constant(np.zeros(outer, "f4"))))

    def split(x: str) -> str:
        shape = g.constant(np.array([1, tokens, heads, width // heads]))
        return str(g.op("Transpose", g.op("Reshape", x, shape), perm=[0, 2, 1, 3]))

    def normed(x: str) -> str:
        return str(g.op("LayerNormalization", x, g.constant(np.ones(width, "f4")), g.constant(np.zeros(width, "f4"))))

    x = g.input("x", [1, tokens, width])
    for _ in range(blocks):
        q, k, v = (split(dense(x, width, width)) for _ in range(3))
        scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = g.op("Div", scores, g.constant(np.float32((width // heads) ** 0.5)))
        context = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        merged = g.op("Reshape", context, g.constant(np.array([1, tokens, width])))
        x = normed(g.op("Add", dense(merged, width, width), x))
        x = normed(g.op("Add", dense(g.op("Gelu", dense(x, width, 4 * width)), 4 * width, width), x))
    return g.model(x)


def perceptron(layers: int = 4, batch: int = 64, width: int = 2048) -> onnx.ModelProto:
    rng = np.random.default_rng(2)
    g = Graph()
    x = g.input("x", [batch, width])
    for _ in range(layers):
        weight = g.constant(rng.normal(size=(width, width)).astype("f4") / np.float32(width / 2) ** 0.5)
        x = g.op("Relu", g.op("Gemm", x, weight, g.constant(np.zeros(width, "f4"))))
    return g.model(x)


def negation(size_bytes: int) -> onnx.ModelProto:
    """y = -x: as little work as a model can be that no optimization removes."""
    g = Graph()
    return g.model(g.op("Neg", g.input("x", [size_bytes // 4])))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "SqueezeNet": partial(of_onnx, "squeezenet"),
    "ResNet-50": partial(of_onnx, "resnet50"),
    "encoder, 4 blocks": encoder,
    "perceptron, 4 layers": perceptron,
}


# ---- both sides


def in_process_session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


@contextmanager
def executor_on(device: Device, path: Path) -> Iterator[Executor]:
    with Compilation(from_onnx(path), device) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


def example(path: Path) -> dict[str, AnyArray]:
    """Random inputs of a network."""
    rng = np.random.default_rng(3)
    tensors = from_onnx(path).inputs
    return {tensor.desc.name: rng.normal(size=tensor.desc.shape or ()).astype("f4") for tensor in tensors}


def require_equal(ours: Sequence[AnyArray], theirs: Sequence[AnyArray]) -> None:
    """Two sides that compute different things are not compared."""
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-2, atol=1e-3 * np.abs(other).max())


def median_s(run: Run, count: int) -> float:
    times = []
    for _ in range(count):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def in_turns(first: Callable[[], T], second: Callable[[], T], rounds: int) -> list[tuple[T, T]]:
    """Measure the two, round by round; each goes first in every other round."""
    first(), second()
    pairs = []
    for number in range(rounds):
        if number % 2:
            late = second()
            pairs.append((first(), late))
        else:
            pairs.append((first(), second()))
    return pairs


def spread(figures: Iterator[float], digits: int) -> tuple[str, str]:
    """The median and the quartiles."""
    low, middle, high = statistics.quantiles(figures)
    return f"{middle:.{digits}f}", f"{low:.{digits}f}..{high:.{digits}f}"


def medians(pairs: Sequence[tuple[float, float]], scale: float, digits: int) -> list[str]:
    return [f"{statistics.median(side) * scale:.{digits}f}" for side in zip(*pairs, strict=True)]


# ---- measurements


def measure() -> list[Report]:
    latency = Report(
        "Networks beside ONNX Runtime in process",
        "One run at a time through the onnxruntime backend, and in ONNX Runtime in the client's process:"
        f" {ROUNDS} rounds of {RUNS_PER_ROUND} runs taken in turns; the ratio is the median of the rounds' ratios, with"
        " their quartiles.",
        ("network", "threads", "transport", "in process ms", "remote ms", "ratio", "quartiles"),
    )
    added = Report(
        "Time that a run through the onnxruntime backend adds",
        "y = -x with one thread, as many bytes out as in, through the backend and in ONNX Runtime in the client's"
        f" process: medians of {SMALL_ROUNDS} rounds of {SMALL_RUNS_PER_ROUND} runs taken in turns; added is the median"
        " of the rounds' differences, with their quartiles.",
        ("tensor", "transport", "in process µs", "remote µs", "added µs", "quartiles"),
    )
    throughput = Report(
        f"Networks with {CLIENTS} clients",
        f"Runs per second of {CLIENTS} sessions, each with a thread that runs, through the onnxruntime backend in"
        f" shared memory, and of {CLIENTS} threads that share a session of ONNX Runtime in the client process:"
        f" {THROUGHPUT_ROUNDS} rounds of {THROUGHPUT_S} s taken in turns; the ratio is remote to in process. Then"
        " the processor time of a run, in process, and of client and daemon, and the ratio that it would allow where no"
        " processor ever waits.",
        (
            "network",
            "threads",
            "in process /s",
            "remote /s",
            "ratio",
            "quartiles",
            "in process ms",
            "client ms",
            "daemon ms",
            "ratio",
            "quartiles",
        ),
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = {network: folder / f"{number}.onnx" for number, network in enumerate(NETWORKS)}
        for network, path in paths.items():
            onnx.save(NETWORKS[network](), path)
        for threads in sorted({1, os.cpu_count() or 1}):
            serving = ("--backend", "onnxruntime", "--option", f"threads={threads}")
            with device_daemon("127.0.0.1:0", *serving) as (address, pid):
                for transport, settings in TRANSPORTS.items():
                    connect = partial(Runtime, [address], settings=settings)
                    for network, path in paths.items():
                        _measure_latency((network, str(threads), transport), connect, path, threads, latency)
                    if threads == 1:
                        _measure_added(transport, connect, folder, added)
                for network, path in paths.items():
                    _measure_throughput((network, str(threads)), (address, pid), path, threads, throughput)
    return [latency, added, throughput]


def _measure_latency(case: Sequence[str], connect: Connect, path: Path, threads: int, report: Report) -> None:
    feeds = example(path)
    session = in_process_session(path, threads)
    with connect() as runtime, executor_on(runtime.device(), path) as executor:
        here, there = partial(session.run, None, feeds), partial(executor.run_sync, list(feeds.values()))
        require_equal(there(), here())
        pairs = in_turns(partial(median_s, here, RUNS_PER_ROUND), partial(median_s, there, RUNS_PER_ROUND), ROUNDS)
    report.add(*case, *pair_cells(pairs, ".3f", 1e3))


def _measure_added(transport: str, connect: Connect, folder: Path, report: Report) -> None:
    for name, size_bytes in SIZES.items():
        path = folder / "negation.onnx"
        onnx.save(negation(size_bytes), path)
        feeds = example(path)
        session = in_process_session(path, threads=1)
        with connect() as runtime, executor_on(runtime.device(), path) as executor:
            here, there = partial(session.run, None, feeds), partial(executor.run_sync, list(feeds.values()))
            require_equal(there(), here())
            count = SMALL_RUNS_PER_ROUND
            pairs = in_turns(partial(median_s, here, count), partial(median_s, there, count), SMALL_ROUNDS)
        added = ((remote - local) * 1e6 for local, remote in pairs)
        report.add(name, transport, *medians(pairs, 1e6, 0), *spread(added, 0))


class Work(NamedTuple):
    """Work of a round: runs per second, and the processor time of each."""

    per_s: float
    client_ms: float
    daemon_ms: float

    @property
    def cost_ms(self) -> float:
        return self.client_ms + self.daemon_ms


def work_of(runs: Sequence[Run], daemon: int) -> Work:
    """Of all of them together, each in a thread of its own, and the daemon of this pid."""
    ready = threading.Barrier(len(runs))
    rates, counts = [0.0] * len(runs), [0] * len(runs)

    def repeat(number: int) -> None:
        ready.wait()
        started, count = time.perf_counter(), 0
        while (passed := time.perf_counter() - started) < THROUGHPUT_S:
            runs[number]()
            count += 1
        rates[number], counts[number] = count / passed, count

    threads = [threading.Thread(target=repeat, args=(number,)) for number in range(len(runs))]
    client_s, daemon_s = processor_s((os.getpid(),)), processor_s((daemon,))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent_s = processor_s((os.getpid(),)) - client_s, processor_s((daemon,)) - daemon_s
    client_ms, daemon_ms = (seconds / sum(counts) * 1e3 for seconds in spent_s)
    return Work(sum(rates), client_ms, daemon_ms)


def _measure_throughput(case: Sequence[str], daemon: tuple[str, int], path: Path, threads: int, report: Report) -> None:
    feeds = example(path)
    session = in_process_session(path, threads)
    address, pid = daemon
    with ExitStack() as stack:
        there: list[Run] = []
        for _ in range(CLIENTS):
            device = stack.enter_context(Runtime([address])).device()
            there.append(partial(stack.enter_context(executor_on(device, path)).run_sync, list(feeds.values())))
        here = [partial(session.run, None, feeds)] * CLIENTS
        pairs = in_turns(partial(work_of, here, pid), partial(work_of, there, pid), THROUGHPUT_ROUNDS)
    local, remote = zip(*pairs, strict=True)
    report.add(
        *case,
        *pair_cells([(one.per_s, other.per_s) for one, other in pairs]),
        f"{statistics.median(work.client_ms for work in local):.2f}",
        f"{statistics.median(work.client_ms for work in remote):.2f}",
        f"{statistics.median(work.daemon_ms for work in remote):.2f}",
        *spread((one.client_ms / other.cost_ms for one, other in pairs), 2),
    )


if __name__ == "__main__":
    for report in measure():
        report.show()
