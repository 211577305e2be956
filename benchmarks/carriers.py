"""Carriers of a run, compared: the measurements behind docs/adr/0001-carrier-of-a-run.md.

    python benchmarks/carriers.py

Compares grpc's threaded and asyncio servers, and a unary call with a message on a long-lived stream, by the latency of
a 1 KB echo, the throughput of 8 client processes, and the memory of an idle stream. The handlers of the asyncio server
do their work in a thread, as anything that computes must.
"""

import asyncio
import multiprocessing as mp
import os
import queue
import statistics
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from report import Report

PAYLOAD = bytes(1024)
LATENCY_RUNS = 1500
THROUGHPUT_CLIENTS = 8
THROUGHPUT_S = 3.0
IDLE_STREAMS = 200
WORKERS = 512


# ---- servers


def _echo(data: bytes) -> bytes:
    return data


class ThreadedHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Threads: a stream holds one, and its runs are computed right there."""

    def service(self, details: Any) -> Any:
        if details.method == "/echo/unary":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: _echo(request))
        return grpc.stream_stream_rpc_method_handler(lambda requests, context: map(_echo, requests))


class AsyncHandlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """One event loop, and a pool of threads for the computing."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(8)

    def service(self, details: Any) -> Any:
        loop = asyncio.get_event_loop()

        async def unary(request: bytes, context: Any) -> bytes:
            return await loop.run_in_executor(self._pool, _echo, request)

        async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
            async for request in requests:
                yield await loop.run_in_executor(self._pool, _echo, request)

        if details.method == "/echo/unary":
            return grpc.unary_unary_rpc_method_handler(unary)
        return grpc.stream_stream_rpc_method_handler(stream)


def serve_threaded(pipe: Connection) -> None:
    server = grpc.server(ThreadPoolExecutor(WORKERS))
    server.add_generic_rpc_handlers((ThreadedHandlers(),))
    pipe.send(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    while pipe.recv():
        pipe.send(_resident_bytes())
    server.stop(0).wait()


def serve_asyncio(pipe: Connection) -> None:
    async def main() -> None:
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((AsyncHandlers(),))
        pipe.send(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        while await asyncio.to_thread(pipe.recv):
            pipe.send(_resident_bytes())
        await server.stop(0)

    asyncio.run(main())


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# ---- clients: each makes a function that echoes


def unary(channel: grpc.Channel) -> Callable[[bytes], bytes]:
    call: Callable[[bytes], bytes] = channel.unary_unary("/echo/unary")
    return call


def stream_read_by_caller(channel: grpc.Channel) -> Callable[[bytes], bytes]:
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    replies: Iterator[bytes] = channel.stream_stream("/echo/stream")(iter(outbox.get, None))

    def run(data: bytes) -> bytes:
        outbox.put(data)
        return next(replies)

    return run


def stream_read_by_thread(channel: grpc.Channel) -> Callable[[bytes], bytes]:
    """As the runtime does it: whoever waits for a result need not be who reads the stream."""
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    pending: queue.SimpleQueue[Future[bytes]] = queue.SimpleQueue()
    replies = channel.stream_stream("/echo/stream")(iter(outbox.get, None))

    def read() -> None:
        try:
            for reply in replies:
                pending.get().set_result(reply)
        except grpc.RpcError:
            return  # The channel was closed.

    threading.Thread(target=read, daemon=True).start()

    def run(data: bytes) -> bytes:
        future: Future[bytes] = Future()
        pending.put(future)
        outbox.put(data)
        return future.result()

    return run


def median_us(run: Callable[[bytes], bytes]) -> float:
    for _ in range(LATENCY_RUNS // 10):
        run(PAYLOAD)
    times = []
    for _ in range(LATENCY_RUNS):
        started = time.perf_counter()
        run(PAYLOAD)
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def _count_runs(address: str, carrier: Callable[[grpc.Channel], Callable[[bytes], bytes]], pipe: Connection) -> None:
    with grpc.insecure_channel(address) as channel:
        run = carrier(channel)
        run(PAYLOAD)
        pipe.send("ready")
        pipe.recv()
        count, end = 0, time.monotonic() + THROUGHPUT_S
        while time.monotonic() < end:
            run(PAYLOAD)
            count += 1
        pipe.send(count)


def runs_per_second(address: str, carrier: Callable[[grpc.Channel], Callable[[bytes], bytes]]) -> float:
    context = mp.get_context("spawn")
    pipes, processes = [], []
    for _ in range(THROUGHPUT_CLIENTS):
        here, there = context.Pipe()
        process = context.Process(target=_count_runs, args=(address, carrier, there))
        process.start()
        pipes.append(here)
        processes.append(process)
    for pipe in pipes:
        pipe.recv()
    for pipe in pipes:
        pipe.send("go")
    counts: list[int] = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join()
    return sum(counts) / THROUGHPUT_S


def idle_stream_kib(address: str, pipe: Connection) -> float:
    """Memory of the server per open stream that does nothing, each on a connection of its own."""

    def resident() -> int:
        pipe.send(True)
        size: int = pipe.recv()
        return size

    before = resident()
    channels = []
    for _ in range(IDLE_STREAMS):
        channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        stream_read_by_caller(channel)(PAYLOAD)
        channels.append(channel)
    grown = resident() - before
    for channel in channels:
        channel.close()
    return float(grown / IDLE_STREAMS / 1024)


def measure() -> list[Report]:
    report = Report(
        "Carriers of a run",
        f"An echo of 1 KB over TCP loopback with bare gRPC-Python: p50 of {LATENCY_RUNS} calls by one client,"
        f" calls per second of {THROUGHPUT_CLIENTS} client processes, and the server's memory per idle stream on a"
        " connection of its own."
        " The asyncio server hands each call to a thread, as a daemon that computes must.",
        ("server", "carrier", "p50 µs", "of threaded unary", "calls/s, 8 clients", "KiB per idle stream"),
    )
    context = mp.get_context("spawn")
    base = 0.0
    for server, serve in (("threaded", serve_threaded), ("asyncio", serve_asyncio)):
        pipe, there = context.Pipe()
        process = context.Process(target=serve, args=(there,))
        process.start()
        address = f"127.0.0.1:{pipe.recv()}"
        for carrier in (unary, stream_read_by_caller, stream_read_by_thread):
            with grpc.insecure_channel(address) as channel:
                latency = median_us(carrier(channel))
            base = base or latency
            rate = runs_per_second(address, carrier)
            idle = f"{idle_stream_kib(address, pipe):.0f}" if carrier is stream_read_by_caller else ""
            name = carrier.__name__.replace("_", " ")
            report.add(server, name, f"{latency:.0f}", f"{latency / base:.2f}", f"{rate:.0f}", idle)
        pipe.send(False)
        process.join()
    return [report]


if __name__ == "__main__":
    for report in measure():
        report.show()
