"""How fast large tensors travel over TCP beside the fastest gRPC transfer written by hand, and what memory that takes.

python benchmarks/transfers.py
"""

import multiprocessing as mp
import queue
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from report import Report
from small_run import device_daemon, opened_port

from nnrt_client import Compilation, Executor, Model, OperationType, Runtime
from nnrt_device_service.host.allocator import keep_freed_memory
from nnrt_hdi.chunks import CHUNK_BYTES
from nnrt_hdi.tensor import Array, flat_bytes

SIZE = 64 << 20
CHUNKS = tuple(kib << 10 for kib in (64, 256, 512, 1024, 2048, 8192))
ROUNDS = 25
MIDDLE = 4 << 20
FLIGHTS = (1, 2, 4, 6)
FLIGHT_ROUNDS = 9
RUNS_PER_FLIGHT = 24
PEAKS = (64 << 20, 256 << 20)


# ---- by hand


def serve_sink(pipe: Connection, pair: tuple[bytes, bytes] | None = None) -> None:
    """A server that copies what comes into place, and says so whenever the place is full; see `serve_echo`."""
    keep_freed_memory()

    def filled(requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        place = np.zeros(SIZE, np.uint8).data
        at = 0
        for data in requests:
            place[at : at + len(data)] = data
            at += len(data)
            if at == SIZE:
                at = 0
                yield b"full"

    class Sink(grpc.GenericRpcHandler):  # type: ignore[misc]
        def service(self, details: Any) -> Any:
            return grpc.stream_stream_rpc_method_handler(filled)

    server = grpc.server(ThreadPoolExecutor(2 * len(CHUNKS)), options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((Sink(),))
    pipe.send(opened_port(server, "127.0.0.1:0", pair))
    server.start()
    pipe.recv()
    server.stop(0).wait()


@contextmanager
def sink_server(pair: tuple[bytes, bytes] | None = None) -> Iterator[str]:
    context = mp.get_context("spawn")
    pipe, there = context.Pipe()
    process = context.Process(target=serve_sink, args=(there, pair))
    process.start()
    yield f"127.0.0.1:{pipe.recv()}"
    pipe.send(None)
    process.join()


@contextmanager
def sender(address: str, data: memoryview, chunk_bytes: int, ca: bytes | None = None) -> Iterator[Callable[[], Any]]:
    """A function that sends the data over a stream of its own, in chunks of raw bytes; with an authority over TLS."""
    turns: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def chunks() -> Iterator[bytes]:
        while turns.get():
            for start in range(0, len(data), chunk_bytes):
                yield bytes(data[start : start + chunk_bytes])

    def send() -> None:
        turns.put(True)
        next(replies)

    options = [("grpc.max_send_message_length", -1)]
    if ca is None:
        opened = grpc.insecure_channel(address, options=options)
    else:
        opened = grpc.secure_channel(address, grpc.ssl_channel_credentials(ca), options=options)
    with opened as channel:
        replies = channel.stream_stream("/sink/stream")(chunks())
        yield send
        turns.put(False)


# ---- runs


def first_of(count: int) -> Model:
    """The first of so many float32: as little work, and as small a reply, as a large input can have."""
    model = Model()
    x = model.input((count,), name="x")
    y = model.apply(OperationType.SLICE, x, np.zeros(1, np.int64), np.ones(1, np.int64))
    return _finished(model, x, y)


def sum_of(count: int) -> Model:
    """x + 0 over so many float32."""
    model = Model()
    x = model.input((count,), name="x")
    return _finished(model, x, model.apply(OperationType.ADD, x, np.zeros(1, np.float32)))


def _finished(model: Model, x: Any, y: Any) -> Model:
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


@contextmanager
def executor_of(runtime: Runtime, model: Model) -> Iterator[Executor]:
    with Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


def seconds(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def measure() -> list[Report]:
    with ExitStack() as stack:
        address, pid = stack.enter_context(device_daemon("127.0.0.1:0", "--no-shared-memory"))
        runtime = stack.enter_context(Runtime([address]))
        return [_bandwidth(runtime), _in_flight(runtime), _peaks(runtime, pid)]


def _bandwidth(runtime: Runtime) -> Report:
    report = Report(
        "Large tensors over TCP",
        f"{SIZE >> 20} MB in, 4 bytes out, over TCP loopback: a run, and streams of gRPC-Python written by hand, with"
        " raw bytes and a server that copies them into the same place each time, as a run's daemon does, and has malloc"
        f" set as one; by the size of their chunks (a run's are {CHUNK_BYTES >> 10} KiB). {ROUNDS} rounds, each in"
        " another order: the median, and the bandwidth as a ratio to that of the stream whose median is best, the"
        " median of the rounds' ratios with their quartiles.",
        ("carrier", "ms", "GiB/s", "of the best by hand", "quartiles"),
    )
    data = np.random.default_rng(0).random(SIZE // 4, np.float32)
    with ExitStack() as stack:
        sink = stack.enter_context(sink_server())
        executor = stack.enter_context(executor_of(runtime, first_of(data.size)))
        raw = flat_bytes(data)
        ways: dict[str, Callable[[], Any]] = {
            f"by hand, {size >> 10} KiB": stack.enter_context(sender(sink, raw, size)) for size in CHUNKS
        }
        ways["run"] = partial(executor.run_sync, [data])
        for send in ways.values():
            send()
        order = random.Random(0)  # noqa: S311
        rounds = [{name: seconds(ways[name]) for name in order.sample(list(ways), len(ways))} for _ in range(ROUNDS)]
    medians = {name: statistics.median(each[name] for each in rounds) for name in ways}
    best = min((name for name in ways if name != "run"), key=medians.__getitem__)
    for name, median in medians.items():
        low, middle, high = statistics.quantiles(each[best] / each[name] for each in rounds)
        speed = f"{SIZE / median / 2**30:.2f}"
        report.add(name, f"{median * 1e3:.0f}", speed, f"{middle:.2f}", f"{low:.2f}..{high:.2f}")
    return report


def _in_flight(runtime: Runtime) -> Report:
    report = Report(
        "Large runs in flight",
        f"{RUNS_PER_FLIGHT} runs of x + 0 with {MIDDLE >> 20} MB in and as much out, over TCP loopback, so many of one"
        f" executor at a time: copying in, computing and copying out overlap. Medians of {FLIGHT_ROUNDS} rounds in"
        " turns, and of the rounds' ratios of throughput, with their quartiles.",
        ("in flight", "runs/s", "of one at a time", "quartiles"),
    )
    data = np.random.default_rng(0).random(MIDDLE // 4, np.float32)
    with executor_of(runtime, sum_of(data.size)) as executor:
        ways = {count: partial(_flight, executor, data, count) for count in FLIGHTS}
        for fly in ways.values():
            fly()
        rounds = [{count: seconds(fly) for count, fly in ways.items()} for _ in range(FLIGHT_ROUNDS)]
    for count in FLIGHTS:
        rate = statistics.median(RUNS_PER_FLIGHT / each[count] for each in rounds)
        low, middle, high = statistics.quantiles(each[1] / each[count] for each in rounds)
        report.add(str(count), f"{rate:.0f}", f"{middle:.2f}", f"{low:.2f}..{high:.2f}")
    return report


def _flight(executor: Executor, data: Array, count: int) -> None:
    with ThreadPoolExecutor(count) as pool:
        for ended in [pool.submit(executor.run_sync, [data]) for _ in range(RUNS_PER_FLIGHT)]:
            ended.result()


def _peaks(runtime: Runtime, pid: int) -> Report:
    report = Report(
        "Peak memory of a large run",
        "x + 0 over TCP loopback, the first run of its size: how much the resident memory of each side was above what"
        " it was before at most, as a ratio to the bytes of the input and the output together, and to those of one.",
        ("in and out", "client", "daemon", "client, to one", "daemon, to one"),
    )
    for size in PEAKS:
        with executor_of(runtime, sum_of(size // 4)) as executor:
            grown = _grown_by(partial(_run_once, executor, size), ("self", str(pid)))
        whole = [f"{each / 2 / size:.2f}" for each in grown]
        report.add(f"{size >> 20} MiB", *whole, *(f"{each / size:.2f}" for each in grown))
    return report


def _run_once(executor: Executor, size: int) -> None:
    data = np.ones(size // 4, np.float32)
    (result,) = executor.run_sync([data])
    assert result[-1] == 1


def _grown_by(run: Callable[[], Any], pids: Sequence[str]) -> list[int]:
    """How far above its memory before each process came at most."""
    before = []
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # The peak begins anew.
        before.append(_status(pid, "VmRSS"))
    run()
    return [_status(pid, "VmHWM") - was for pid, was in zip(pids, before, strict=True)]


def _status(pid: str, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


if __name__ == "__main__":
    for report in measure():
        report.show()
