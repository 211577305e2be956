"""Bare servers without nnrt, in processes of their own, that echo or store bytes, and functions that call them.

They show the minimum cost of a run; the difference to a run is the cost of nnrt.
"""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any

import grpc
from harness import Run, call_in_process

from nnrt_device_service.host.allocator import keep_freed_memory

_ANY_LENGTH = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Echo handlers for unary and stream calls, and a sink: the minimum that a gRPC-Python server can do."""

    def service(self, details: Any) -> Any:
        if details.method == "/bare/unary":
            return grpc.unary_unary_rpc_method_handler(lambda request, _: request)
        if details.method == "/bare/stream":
            return grpc.stream_stream_rpc_method_handler(lambda requests, _: requests)
        return grpc.stream_stream_rpc_method_handler(_fill)


def _fill(requests: Iterator[bytes], _: Any) -> Iterator[bytes]:
    """Copy messages into a buffer and reply whenever it is full. The first message is the buffer's size."""
    buffer = memoryview(bytearray(int(next(requests))))
    at = 0
    for data in requests:
        buffer[at : at + len(data)] = data
        at += len(data)
        if at == len(buffer):
            at = 0
            yield b"full"


def _serve_grpc(pipe: Connection, address: str) -> None:
    """Serve at an address until the pipe is closed. The pipe gets the port."""
    keep_freed_memory()  # As the daemon does.
    server = grpc.server(ThreadPoolExecutor(16), options=_ANY_LENGTH)
    server.add_generic_rpc_handlers((_Handlers(),))
    pipe.send(server.add_insecure_port(address))
    server.start()
    with suppress(EOFError):
        pipe.recv()
    server.stop(0).wait()


def _repeat_bytes(pipe: Connection) -> None:
    """Echo all messages until the pipe is closed: the minimum that a Python process can do."""
    with suppress(EOFError):
        while True:
            pipe.send_bytes(pipe.recv_bytes())


@contextmanager
def grpc_server(address: str = "127.0.0.1:0") -> Iterator[grpc.Channel]:
    """Start a bare gRPC server in another process and yield a channel to it."""
    with call_in_process(_serve_grpc, address) as pipe:
        port = pipe.recv()
        target = address if address.startswith("unix:") else f"127.0.0.1:{port}"
        with grpc.insecure_channel(target, _ANY_LENGTH) as channel:
            yield channel


@contextmanager
def connection_echo(data: bytes) -> Iterator[Callable[[], bytes]]:
    """Start a process that echoes over a multiprocessing.Connection; yield a function that makes one round trip."""
    with call_in_process(_repeat_bytes) as pipe:

        def echo() -> bytes:
            pipe.send_bytes(data)
            return pipe.recv_bytes()

        yield echo


def stream_read_by_caller(channel: grpc.Channel, data: bytes) -> Run:
    """Return a function that sends the data over one long stream and reads the reply in the same thread."""
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    replies = channel.stream_stream("/bare/stream")(iter(outbox.get, None))

    def run() -> Any:
        outbox.put(data)
        return next(replies)

    return run


def stream_read_by_thread(channel: grpc.Channel, data: bytes) -> Run:
    """Return a function that sends the data over one long stream and waits for a thread that reads the reply.

    nnrt's client does the same, so that a waiting thread can be interrupted.
    """
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    pending: queue.SimpleQueue[Future[bytes]] = queue.SimpleQueue()
    replies = channel.stream_stream("/bare/stream")(iter(outbox.get, None))

    def read() -> None:
        with suppress(grpc.RpcError):  # Raised when the channel is closed.
            for reply in replies:
                pending.get().set_result(reply)

    threading.Thread(target=read, daemon=True).start()

    def run() -> bytes:
        future: Future[bytes] = Future()
        pending.put(future)
        outbox.put(data)
        return future.result()

    return run


def sender(channel: grpc.Channel, data: memoryview, chunk_bytes: int) -> Run:
    """Return a function that sends the data in chunks over one stream and waits until the server has stored them."""
    turns: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def chunks() -> Iterator[bytes]:
        yield str(len(data)).encode()
        while turns.get():
            for start in range(0, len(data), chunk_bytes):
                yield bytes(data[start : start + chunk_bytes])

    replies = channel.stream_stream("/bare/sink")(chunks())

    def send() -> None:
        turns.put(True)
        next(replies)

    return send
