"""The cost of a run beside bare echoes of the same bytes, where its time goes, and what its flight recorder adds.

    python benchmarks/small_run.py

All are measured in turns, in one process: a run, a unary call of gRPC on the same transport, and on one host a
`multiprocessing.Connection`.
"""

import multiprocessing as mp
import os
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
from time import perf_counter_ns
from typing import Any

import grpc
import numpy as np
from carriers import ThreadedHandlers, stream_read_by_caller, stream_read_by_thread
from numpy.typing import NDArray
from report import Report, pair_cells

from nnrt_client import Compilation, Executor, Model, OperationType, Runtime, Settings
from nnrt_client.run.stamps import Stamps
from nnrt_client.session.daemon_clock import DaemonClock
from nnrt_hdi import wire
from nnrt_hdi.enums import DataType
from nnrt_hdi.tensor import TensorSpec
from nnrt_hdi.v2 import local_socket_pb2

KILOBYTE = 256  # of float32
IMAGE = 3 * 224 * 224
ROUNDS = 30
RUNS_PER_ROUND = 100
# What the flight recorder costs is far below the noise of a run, so it is measured by itself.
RECORDINGS = 2000
# Processor time is counted in hundredths of a second.
SHARED_RUNS = 5000
_CLOCK = DaemonClock()


def identity_model(elements: int = KILOBYTE) -> Model:
    """y = x + 0 over so many float32: as little work as a model can be."""
    model = Model()
    x = model.input((elements,), name="x")
    y = model.apply(OperationType.ADD, x, np.zeros(1, np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def serve_echo(address: str, pipe: Connection, pair: tuple[bytes, bytes] | None = None) -> None:
    """The least a gRPC-Python server can do with unary calls and with streams; over TLS with the pair of a key and its
    certificate."""
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((ThreadedHandlers(),))
    port = opened_port(server, address, pair)
    server.start()
    pipe.send(port)
    pipe.recv()
    server.stop(0).wait()


def opened_port(server: Any, address: str, pair: tuple[bytes, bytes] | None) -> int:
    if pair is None:
        return int(server.add_insecure_port(address))
    return int(server.add_secure_port(address, grpc.ssl_server_credentials([pair])))


@contextmanager
def echo_server(address: str, pair: tuple[bytes, bytes] | None = None) -> Iterator[str]:
    context = mp.get_context("spawn")
    pipe, there = context.Pipe()
    process = context.Process(target=serve_echo, args=(address, there, pair))
    process.start()
    port = pipe.recv()
    yield address if address.startswith("unix:") else f"127.0.0.1:{port}"
    pipe.send(None)
    process.join()


def repeat_bytes(pipe: Connection) -> None:
    """The least that a process of Python can do with what another one sends."""
    while True:
        try:
            pipe.send_bytes(pipe.recv_bytes())
        except EOFError:
            return


@contextmanager
def connection_echo(data: bytes) -> Iterator[Callable[[], bytes]]:
    """Make what sends these bytes to another process over a multiprocessing.Connection, and receives them again."""
    context = mp.get_context("spawn")
    pipe, there = context.Pipe()
    process = context.Process(target=repeat_bytes, args=(there,))
    process.start()
    there.close()

    def echo() -> bytes:
        pipe.send_bytes(data)
        return pipe.recv_bytes()

    with pipe:
        yield echo
    process.join()


@contextmanager
def device_daemon(address: str, *arguments: str) -> Iterator[tuple[str, int]]:
    """A daemon with the reference backend: its address and process id."""
    command = [sys.executable, "-m", "nnrt_device_service", "serve", "--listen", address, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split()[2], process.pid
        process.kill()


def median_us(run: Callable[[], Any], runs: int = RUNS_PER_ROUND) -> float:
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        run()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def measure() -> list[Report]:
    latency = Report(
        "A run beside bare echoes",
        f"As many bytes in as out, p50 of {RUNS_PER_ROUND} calls, {ROUNDS} rounds taken in turns; a ratio is the"
        " median of the rounds' ratios, with their quartiles. The gRPC echo is a unary call of gRPC-Python on the same"
        " transport, whose handler returns its request; the Connection is one of `multiprocessing`, whose other end"
        " sends back what it receives. With the local socket packets and shared memory carry the run, without it a"
        " stream of gRPC does.",
        ("tensor", "transport", "run over", "echo", "echo µs", "run µs", "ratio", "quartiles"),
    )
    shares = Report(
        "Where the time of a run goes",
        f"µs per run, of {SHARED_RUNS} runs: processor time of the client's and of the daemon's own code, of the"
        " kernel for both, and the rest of the time, in which nobody computes but who is to go on is still being woken."
        " The daemon's part has the backend's. Where threads of both work at once, nothing may be left for waking.",
        ("tensor", "run over", "run µs", "client", "daemon", "kernel", "waking"),
    )
    streams = Report(
        "A run over gRPC beside bare streams",
        "1 KB in and out over TCP loopback, in one process: a run, which is a message each way on a stream, and streams"
        " of gRPC-Python whose handler returns what it gets: no run over gRPC-Python can take less. On a stream that a"
        " thread reads the caller waits for that thread, as the main thread must, which may be interrupted. p50 of"
        f" {ROUNDS} rounds of {RUNS_PER_ROUND} calls in turns; a ratio is the median of the rounds' ratios, with their"
        " quartiles. The processor time is that of all threads of the client.",
        ("what", "µs", "of a unary call", "quartiles", "client's processor µs"),
    )
    recorder = Report(
        "The flight recorder",
        "What it adds to a run of 1 KB, on both sides: looks at the clock, what keeps them, and what the reply tells,"
        f" p50 of {ROUNDS} rounds of {RECORDINGS} replies with and without, in one process. Beside it the run over the"
        " local socket, p50 of the same rounds.",
        ("adds µs", "run µs", "share of the run", "quartiles"),
    )
    with tempfile.TemporaryDirectory() as folder:
        for tensor, elements, transport, settings in (
            ("1 KB", KILOBYTE, "Unix socket", Settings()),
            ("1 KB", KILOBYTE, "TCP loopback", Settings(share_memory=False)),
            ("600 KB", IMAGE, "Unix socket", Settings()),
        ):
            is_unix = transport == "Unix socket"
            with ExitStack() as stack:
                echo_at, device_at = (
                    f"unix:{folder}/{end}" if is_unix else "127.0.0.1:0" for end in ("echo", "device")
                )
                x = np.ones(elements, np.float32)
                channel = stack.enter_context(grpc.insecure_channel(stack.enter_context(echo_server(echo_at))))
                connection = stack.enter_context(connection_echo(x.tobytes()))
                at, pid = stack.enter_context(device_daemon(device_at))
                run = stack.enter_context(runner_at(at, settings, x))
                carrier = "local socket" if settings.share_memory else "gRPC"
                echoes = {"gRPC": partial(channel.unary_unary("/echo/unary"), x.tobytes())}
                for name, echo in (({"Connection": connection} if is_unix else {}) | echoes).items():
                    latency.add(tensor, transport, carrier, name, *pair_cells(in_turns(echo, run)))
                shares.add(tensor, carrier, *_share_cells(run, pid))
                if tensor == "1 KB" and is_unix:
                    _measure_recorder(run, recorder)
                elif not is_unix:
                    _measure_streams(channel, x.tobytes(), run, streams)
    return [latency, streams, shares, recorder]


def _measure_streams(channel: grpc.Channel, data: bytes, run: Callable[[], Any], streams: Report) -> None:
    ways: dict[str, Callable[[], Any]] = {
        "unary call": partial(channel.unary_unary("/echo/unary"), data),
        "stream, read by its caller": partial(stream_read_by_caller(channel), data),
        "stream, read by a thread": partial(stream_read_by_thread(channel), data),
        "run": run,
    }
    rounds = [[_latency_and_processor_us(way) for way in ways.values()] for _ in range(ROUNDS + 1)]
    del rounds[0]  # It warmed up.
    unary = [latency for (latency, _), *_ in rounds]
    for name, measured in zip(ways, zip(*rounds, strict=True), strict=True):
        latencies, processor = zip(*measured, strict=True)
        *_, ratio, quartiles = pair_cells(zip(unary, latencies, strict=True))
        streams.add(
            name, f"{statistics.median(latencies):.0f}", ratio, quartiles, f"{statistics.median(processor):.0f}"
        )


def _latency_and_processor_us(run: Callable[[], Any]) -> tuple[float, float]:
    began = time.process_time()
    latency = median_us(run)
    return latency, (time.process_time() - began) / RUNS_PER_ROUND * 1e6


def _share_cells(run: Callable[[], Any], pid: int) -> list[str]:
    """Microseconds of a run: all, the client's, the daemon's, the kernel's, and the rest."""
    before, began = _processor_times(pid), time.perf_counter()
    for _ in range(SHARED_RUNS):
        run()
    all_s = time.perf_counter() - began
    client_s, client_kernel_s, daemon_s, daemon_kernel_s = (
        after - earlier for earlier, after in zip(before, _processor_times(pid), strict=True)
    )
    kernel_s = client_kernel_s + daemon_kernel_s
    parts = (all_s, client_s, daemon_s, kernel_s, max(all_s - client_s - daemon_s - kernel_s, 0.0))
    return [f"{part / SHARED_RUNS * 1e6:.0f}" for part in parts]


def _processor_times(pid: int) -> tuple[float, float, float, float]:
    """Seconds in their own code and in the kernel of this process and of that one."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    own = os.times()
    return own.user, own.system, *(int(tick) / os.sysconf("SC_CLK_TCK") for tick in ticks)  # type: ignore[return-value]


@contextmanager
def runner_at(address: str, settings: Settings, x: NDArray[np.float32]) -> Iterator[Callable[[], Any]]:
    """Make what runs the identity once, on the daemon there."""
    with (
        Runtime([address], settings) as runtime,
        Compilation(identity_model(x.size), runtime.device()) as compilation,
    ):
        compilation.build()
        with Executor(compilation) as executor:
            yield partial(executor.run_sync, [x])


def in_turns(one: Callable[[], Any], other: Callable[[], Any], runs: int = RUNS_PER_ROUND) -> list[tuple[float, float]]:
    """Medians of so many runs of both, of each round."""
    median_us(one, runs), median_us(other, runs)
    return [(median_us(one, runs), median_us(other, runs)) for _ in range(ROUNDS)]


def _measure_recorder(run: Callable[[], Any], recorder: Report) -> None:
    spec, x = TensorSpec(DataType.FLOAT32, (KILOBYTE,)), np.ones(KILOBYTE, np.float32)
    rounds = []
    for _ in range(ROUNDS):
        with_times, without = (
            median_us(partial(_reply, spec, x, has_times), RECORDINGS) for has_times in (True, False)
        )
        rounds.append((with_times - without, median_us(run)))
    low, middle, high = statistics.quantiles(adds / whole for adds, whole in rounds)
    adds, whole = (statistics.median(side) for side in zip(*rounds, strict=True))
    recorder.add(f"{adds:.2f}", f"{whole:.0f}", f"{middle:.1%}", f"{low:.1%}..{high:.1%}")


def _reply(spec: TensorSpec, x: NDArray[np.float32], has_times: bool) -> Any:
    """A reply, made and sent and read as the daemon and the client do, with as many looks at the clock."""
    local_reply = local_socket_pb2.LocalReply()
    if has_times:
        stamps = Stamps(_CLOCK)
        stamps.packing_ns, stamps.sent_ns = perf_counter_ns(), perf_counter_ns()
        received, began, ready, asked, started, ended, done, end = (
            *(perf_counter_ns(), perf_counter_ns(), perf_counter_ns(), perf_counter_ns()),
            *(perf_counter_ns(), perf_counter_ns(), perf_counter_ns(), perf_counter_ns()),
        )
        times = received, started - asked, ready - began, ended - started, end - done
        wire.fill_reply(local_reply.run, 1, times)
    local_reply.run.outputs.add(**wire.io_tensor_fields(spec, x))
    read = local_socket_pb2.LocalReply.FromString(local_reply.SerializeToString())
    if has_times:
        stamps.told = wire.times_told(read.run)
        stamps.answered_ns, stamps.unpacked_ns, stamps.woken_ns = (
            perf_counter_ns(),
            perf_counter_ns(),
            perf_counter_ns(),
        )
    return read


if __name__ == "__main__":
    for report in measure():
        report.show()
