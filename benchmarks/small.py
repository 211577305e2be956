"""Runs compared with bare echoes of the same bytes, and large tensors compared with copies and manual transfers."""

import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import bare
import numpy as np
from harness import (
    ROUNDS,
    RUNS,
    SIZES,
    Report,
    Run,
    alternate,
    at_most,
    device_daemon,
    in_rounds,
    median_us,
    pair_cells,
    seconds,
)
from working_client import executor_of, finished, identity

from nnrt_client import DataType, Model, OperationType, Runtime, Settings, Tensor, TensorDesc
from nnrt_hdi.tensor import flat_bytes

OVER_GRPC = Settings(share_memory=False)
CHUNKS_KIB = (64, 256, 512, 1024, 2048, 8192)
LARGE_ROUNDS = 25


def measure() -> Iterator[Report]:
    yield _compare_echoes()
    yield _compare_streams()
    yield _on_one_host()
    yield _over_tcp()


def _compare_echoes() -> Report:
    report = Report(
        "A run compared with bare echoes",
        f"Equally large input and output: p50 of {RUNS} calls, in {ROUNDS} alternating rounds. ratio: run divided by"
        " echo, median over the rounds, with quartiles. The gRPC echo is a unary call of gRPC-Python on the same"
        " transport, whose handler returns its request. The Connection is one of `multiprocessing`, whose other end"
        " returns what it receives. Over the local socket a run uses packets and shared memory, otherwise a gRPC"
        " stream.",
        ("tensor", "transport", "run over", "echo", "echo µs", "run µs", "ratio", "quartiles"),
    )
    for tensor, transport in (("1 KB", "Unix socket"), ("1 KB", "TCP loopback"), ("600 KB", "Unix socket")):
        is_unix = transport == "Unix socket"
        x = np.ones(SIZES[tensor], np.float32)
        data = x.tobytes()
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            echo_at, device_at = (f"unix:{folder}/{end}" if is_unix else "127.0.0.1:0" for end in ("echo", "device"))
            unary = stack.enter_context(bare.grpc_server(echo_at)).unary_unary("/bare/unary")
            echoes: dict[str, Run] = {"gRPC": partial(unary, data)}
            if is_unix:
                echoes["Connection"] = stack.enter_context(bare.connection_echo(data))
            at, _ = stack.enter_context(device_daemon(device_at))
            executor = stack.enter_context(executor_of(identity(x.size), at, None if is_unix else OVER_GRPC))
            for echo, call in echoes.items():
                cells = pair_cells(alternate(call, partial(executor.run_sync, [x])))
                report.add(tensor, transport, "local socket" if is_unix else "gRPC", echo, *cells)
    return report


def _compare_streams() -> Report:
    report = Report(
        "A run over gRPC compared with bare streams",
        "1 KB in and out over TCP loopback: a run, which is one message each way on a stream, and gRPC-Python streams"
        " whose handler returns its request, which are the lower bound of a run over gRPC-Python. If a thread reads the"
        f" stream, the caller waits for that thread. p50 of {RUNS} calls, in {ROUNDS} alternating rounds. ratio: time"
        " divided by that of a unary call, median over the rounds, with quartiles. CPU time is that of all threads of"
        " the client.",
        ("call", "µs", "ratio", "quartiles", "client's CPU µs"),
    )
    x = np.ones(SIZES["1 KB"], np.float32)
    data = x.tobytes()
    with bare.grpc_server() as channel, device_daemon() as (at, _), executor_of(identity(), at, OVER_GRPC) as executor:
        ways: dict[str, Run] = {
            "unary call": partial(channel.unary_unary("/bare/unary"), data),
            "stream, read by its caller": bare.stream_read_by_caller(channel, data),
            "stream, read by a thread": bare.stream_read_by_thread(channel, data),
            "run": partial(executor.run_sync, [x]),
        }
        rounds = in_rounds({name: partial(_latency_and_cpu_us, run) for name, run in ways.items()})
    report.add_ways((), {name: [us for us, _ in each] for name, each in rounds.items()}, "unary call")
    report.rows = [
        (*row, f"{statistics.median(us for _, us in each):.0f}")
        for row, each in zip(report.rows, rounds.values(), strict=True)
    ]
    return report


def _latency_and_cpu_us(run: Run) -> tuple[float, float]:
    runs = at_most(RUNS, 5)
    began = time.process_time()
    latency = median_us(run, runs)
    return latency, (time.process_time() - began) / runs * 1e6


def _on_one_host() -> Report:
    report = Report(
        "A RESHAPE on the same host",
        "A RESHAPE from one Tensor to another, both in shared memory, or of arrays, which the client copies through"
        " shared memory; compared with one copy of as many bytes by NumPy in this process, between arrays that are"
        f" already in memory. {LARGE_ROUNDS} alternating rounds. ratio: run divided by copy, median over the rounds,"
        " with quartiles.",
        ("tensor", "backend", "inputs and outputs", "copy µs", "run µs", "ratio", "quartiles"),
    )
    for tensor in ("600 KB", "64 MB"):
        count, runs = SIZES[tensor], 50 if tensor == "600 KB" else 1
        model = Model()
        x = model.input((count,), name="x")
        model = finished(model, x, model.apply(OperationType.RESHAPE, x, [count // 1024, 1024]))
        source, target = np.ones(count, np.float32), np.ones(count, np.float32)
        for backend in ("reference", "onnxruntime"):
            with ExitStack() as stack:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                at, _ = stack.enter_context(device_daemon(f"unix:{folder}/device", "--backend", backend))
                device = stack.enter_context(Runtime([at])).device()
                executor = stack.enter_context(executor_of(model, device))
                tensors = [
                    stack.enter_context(Tensor(device, TensorDesc(DataType.FLOAT32, shape)))
                    for shape in ((count,), (count // 1024, 1024))
                ]
                tensors[0].numpy()[:] = source
                copy = partial(np.copyto, target, source)
                for given, run in (
                    ("Tensors", partial(executor.run_sync, tensors[:1], tensors[1:])),
                    ("arrays", partial(executor.run_sync, [source])),
                ):
                    report.add(tensor, backend, given, *pair_cells(alternate(copy, run, runs, LARGE_ROUNDS)))
    return report


def _over_tcp() -> Report:
    report = Report(
        "Large tensors over TCP",
        "64 MB in, 4 bytes out, over TCP loopback: a run, and bare gRPC-Python streams of several chunk sizes with raw"
        " bytes, whose server copies them into one buffer and configures malloc like the daemon."
        f" {LARGE_ROUNDS} rounds in random order. ratio: bandwidth divided by that of the bare stream with the best"
        " median, median over the rounds, with quartiles.",
        ("carrier", "GiB/s", "ratio", "quartiles"),
    )
    data = np.random.default_rng(0).random(SIZES["64 MB"], np.float32)
    model = Model()
    x = model.input((data.size,), name="x")
    model = finished(model, x, model.apply(OperationType.SLICE, x, np.zeros(1, np.int64), np.ones(1, np.int64)))
    with (
        bare.grpc_server() as channel,
        device_daemon("127.0.0.1:0", "--no-shared-memory") as (at, _),
        executor_of(model, at) as executor,
    ):
        raw = flat_bytes(data)
        ways: dict[str, Run] = {f"bare, {kib} KiB chunks": bare.sender(channel, raw, kib << 10) for kib in CHUNKS_KIB}
        ways["run"] = partial(executor.run_sync, [data])
        rounds = in_rounds({name: partial(_gib_per_s, send, raw.nbytes) for name, send in ways.items()}, LARGE_ROUNDS)
    best = max(list(rounds)[:-1], key=lambda name: statistics.median(rounds[name]))
    report.add_ways((), rounds, best)
    return report


def _gib_per_s(send: Run, size_bytes: int) -> float:
    return size_bytes / seconds(send) / 2**30
