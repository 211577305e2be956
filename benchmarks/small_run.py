"""What a run of a small model costs beside a bare gRPC echo of the same bytes, and where the time goes.

    python benchmarks/small_run.py

Both are measured in turns, in one process, against servers on the same transport.
"""

import multiprocessing as mp
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from report import Report

from nnrt_client import Compilation, Executor, Model, OperationType, Runtime

ELEMENTS = 256  # 1 KB of float32
ROUNDS = 30
RUNS_PER_ROUND = 100
MEMORY_RUNS = 1000


def identity_model() -> Model:
    """y = x + 0 over 256 float32: as little work as a model can be."""
    model = Model()
    x = model.input((ELEMENTS,), name="x")
    y = model.apply(OperationType.ADD, x, np.zeros(1, np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def serve_echo(address: str, pipe: Connection) -> None:
    """The least a gRPC-Python server can do with a unary call."""

    class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)

    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port(address)
    server.start()
    pipe.send(port)
    pipe.recv()
    server.stop(0).wait()


@contextmanager
def echo_server(address: str) -> Iterator[str]:
    context = mp.get_context("spawn")
    pipe, there = context.Pipe()
    process = context.Process(target=serve_echo, args=(address, there))
    process.start()
    port = pipe.recv()
    yield address if address.startswith("unix:") else f"127.0.0.1:{port}"
    pipe.send(None)
    process.join()


@contextmanager
def device_daemon(address: str, *arguments: str) -> Iterator[tuple[str, int]]:
    """A daemon with the reference backend: its address and process id."""
    command = [sys.executable, "-m", "nnrt_device_service", "serve", "--listen", address, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[2], process.pid
        process.kill()


def median_us(run: Callable[[], Any]) -> float:
    times = []
    for _ in range(RUNS_PER_ROUND):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def measure() -> list[Report]:
    latency = Report(
        "A small run beside a bare gRPC echo",
        f"1 KB in and 1 KB out, p50 of {ROUNDS} rounds of {RUNS_PER_ROUND} calls taken in turns; the ratio is the"
        " median of the rounds' ratios, with their quartiles. The echo is a unary call of gRPC-Python whose handler"
        " returns its request.",
        ("transport", "echo µs", "run µs", "ratio", "quartiles"),
    )
    memory = Report(
        "Memory over many runs",
        f"Resident memory of the daemon before and after {MEMORY_RUNS} runs of 1 MB in and out (after 200 to warm up).",
        ("transport", "before MiB", "after MiB", "grown KiB"),
    )
    with tempfile.TemporaryDirectory() as folder:
        for transport, ends in (
            ("TCP loopback", ("127.0.0.1:0", "127.0.0.1:0")),
            ("Unix socket", (f"unix:{folder}/echo", f"unix:{folder}/device")),
        ):
            _measure_transport(transport, *ends, latency, memory)
    return [latency, memory]


def _measure_transport(transport: str, echo_at: str, device_at: str, latency: Report, memory: Report) -> None:
    with ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(stack.enter_context(echo_server(echo_at))))
        address, pid = stack.enter_context(device_daemon(device_at))
        runtime = stack.enter_context(Runtime([address]))
        compilation = stack.enter_context(Compilation(identity_model(), runtime.device()))
        compilation.build()
        executor = stack.enter_context(Executor(compilation))
        array = np.ones(ELEMENTS, np.float32)
        echo = partial(channel.unary_unary("/echo/unary"), array.tobytes())
        run = partial(executor.run_sync, [array])
        median_us(echo), median_us(run)
        pairs = [(median_us(echo), median_us(run)) for _ in range(ROUNDS)]
        low, middle, high = statistics.quantiles(run_us / echo_us for echo_us, run_us in pairs)
        latency.add(
            transport,
            f"{statistics.median(pair[0] for pair in pairs):.0f}",
            f"{statistics.median(pair[1] for pair in pairs):.0f}",
            f"{middle:.2f}",
            f"{low:.2f}..{high:.2f}",
        )
        before, after = _memory_of_runs(runtime, pid)
        memory.add(transport, f"{before / 2**20:.1f}", f"{after / 2**20:.1f}", f"{(after - before) / 1024:.0f}")


def _memory_of_runs(runtime: Runtime, pid: int) -> tuple[int, int]:
    model = Model()
    x = model.input((1 << 18,))
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ADD, x, np.zeros(1, np.float32))])
    model.finish()
    array = np.ones(1 << 18, np.float32)
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            for _ in range(200):
                executor.run_sync([array])
            before = _resident_bytes(pid)
            for _ in range(MEMORY_RUNS):
                executor.run_sync([array])
            return before, _resident_bytes(pid)


def _resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    for report in measure():
        report.show()
