"""Whole networks on the onnxruntime backend, compared with ONNX Runtime in this process.

Both sides compute the same ONNX file with the same number of threads, which don't spin while they wait (the backend's
default).
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from harness import Daemon, Report, Run, alternate, at_most, cpu_seconds, device_daemon, in_rounds, pair_cells, spread
from onnx_models import LIGHT, AnyArray, Graph, with_weights
from working_client import executor_of, repeat

from nnrt_client import Settings, from_onnx

ROUNDS, RUNS_PER_ROUND = 11, 4
CLIENTS, CROWD_ROUNDS, WINDOW_S = 8, 4, 1.5
# Transports to a daemon on this host.
TRANSPORTS = {"shared memory": Settings(), "gRPC over TCP": Settings(share_memory=False)}


# ---- networks


def onnx_network(name: str) -> onnx.ModelProto:
    """Return a network from the package onnx, with random weights."""
    return with_weights(onnx.load(LIGHT / f"light_{name}.onnx"))


def encoder(blocks: int = 4, tokens: int = 128, width: int = 512, heads: int = 8) -> onnx.ModelProto:
    """Return transformer encoder blocks as in BERT."""
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


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "SqueezeNet": partial(onnx_network, "squeezenet"),
    "ResNet-50": partial(onnx_network, "resnet50"),
    "encoder, 4 blocks": encoder,
    "perceptron, 4 layers": perceptron,
}


def in_process_session(path: Path, threads: int) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def example(path: Path) -> dict[str, AnyArray]:
    """Return random inputs of a network."""
    rng = np.random.default_rng(3)
    tensors = from_onnx(path).inputs
    return {tensor.desc.name: rng.normal(size=tensor.desc.shape or ()).astype("f4") for tensor in tensors}


def require_equal(ours: Sequence[AnyArray], theirs: Sequence[AnyArray]) -> None:
    """Raise AssertionError unless both sides compute the same: otherwise the comparison would be void."""
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-2, atol=1e-3 * np.abs(other).max())


# ---- measurements


def measure() -> Iterator[Report]:
    latency = Report(
        "Networks compared with ONNX Runtime in process",
        "One run at a time on the onnxruntime backend, and in ONNX Runtime in the client's process: p50 of"
        f" {RUNS_PER_ROUND} runs, in {ROUNDS} alternating rounds. ratio: remote divided by in process, median over the"
        " rounds, with quartiles.",
        ("network", "threads", "transport", "in process ms", "remote ms", "ratio", "quartiles"),
    )
    throughput = Report(
        f"Networks with {CLIENTS} clients",
        f"Runs per second of {CLIENTS} sessions with one thread each on the onnxruntime backend over shared memory, and"
        f" of {CLIENTS} threads that share one ONNX Runtime session in the client process, in {CROWD_ROUNDS}"
        f" alternating rounds of {WINDOW_S} s. ratio: remote divided by in process. Then CPU time per run in process,"
        " in the client and in the daemon; CPU ratio: in process divided by client + daemon, which is the throughput"
        " ratio that the CPU time would allow.",
        (
            *("network", "threads", "in process runs/s", "remote runs/s", "ratio", "quartiles"),
            *("in process CPU ms", "client CPU ms", "daemon CPU ms", "CPU ratio", "quartiles"),
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        for network, build in NETWORKS.items():
            path = Path(folder, "network.onnx")
            onnx.save(build(), path)
            for threads in sorted({1, os.cpu_count() or 1}):
                serving = ("--backend", "onnxruntime", "--option", f"threads={threads}")
                with device_daemon("127.0.0.1:0", *serving) as daemon:
                    here = partial(in_process_session(path, threads).run, None, example(path))
                    for transport, settings in TRANSPORTS.items():
                        case = network, str(threads), transport
                        latency.add(*case, *_latency(here, daemon.address, settings, path))
                    throughput.add(network, str(threads), *_throughput(here, daemon, path))
    yield latency
    yield throughput


def _latency(here: Run, address: str, settings: Settings, path: Path) -> Sequence[str]:
    with executor_of(from_onnx(path), address, settings) as executor:
        there = partial(executor.run_sync, list(example(path).values()))
        require_equal(there(), here())
        return pair_cells(alternate(here, there, RUNS_PER_ROUND, ROUNDS), ".3f", 1e-3)


class Work(NamedTuple):
    """Result of a round: runs per second, and CPU time per run in the client and in the daemon."""

    per_s: float
    client_ms: float
    daemon_ms: float


def _throughput(here: Run, daemon: Daemon, path: Path) -> Sequence[str]:
    with ExitStack() as stack:
        executors = [stack.enter_context(executor_of(from_onnx(path), daemon.address)) for _ in range(CLIENTS)]
        there = [partial(executor.run_sync, list(example(path).values())) for executor in executors]
        ways = {"here": partial(_measure, [here] * CLIENTS, daemon.pid), "there": partial(_measure, there, daemon.pid)}
        local, remote = in_rounds(ways, CROWD_ROUNDS).values()
    pairs = list(zip(local, remote, strict=True))
    return (
        *pair_cells((one.per_s, other.per_s) for one, other in pairs),
        f"{statistics.median(work.client_ms for work in local):.2f}",
        f"{statistics.median(work.client_ms for work in remote):.2f}",
        f"{statistics.median(work.daemon_ms for work in remote):.2f}",
        *spread(one.client_ms / (other.client_ms + other.daemon_ms) for one, other in pairs),
    )


def _measure(runs: Sequence[Run], daemon: int) -> Work:
    """Measure all runs together, each in a thread of its own, and the CPU time of this process and the daemon."""
    before = cpu_seconds([os.getpid()]), cpu_seconds([daemon])
    with ThreadPoolExecutor(len(runs)) as threads:
        times = list(threads.map(lambda run: repeat(run, at_most(WINDOW_S, 0.1)), runs))
    count = sum(map(len, times))
    client_s, daemon_s = cpu_seconds([os.getpid()]) - before[0], cpu_seconds([daemon]) - before[1]
    return Work(sum(len(each) / sum(each) for each in times), client_s / count * 1e3, daemon_s / count * 1e3)
