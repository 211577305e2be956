"""The cost of TLS and of an identity, beside the same over a plain connection, and beside TLS written by hand.

python benchmarks/tls.py
"""

import multiprocessing as mp
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from report import Report, pair_cells
from small_run import KILOBYTE, device_daemon, echo_server, identity_model, in_turns, median_us
from transfers import SIZE, executor_of, first_of, sender, sink_server

from nnrt_client import Compilation, Executor, Runtime, Settings
from nnrt_device_service.access.identity import Identity, Role
from nnrt_device_service.access.keys import CA, Authority
from nnrt_device_service.access.tokens import issue_token

HOST = "127.0.0.1"
SIZES = {"1 KB": 256, "1 MB": 1 << 18, "64 MB": 1 << 24}
RUNS = {"1 KB": 200, "1 MB": 20, "64 MB": 1}
SESSIONS = 3
# Transfers of each size of chunks before the best is known.
CHOICES = 5


class Files:
    """Certificates and tokens of a daemon and a client."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = Authority(folder).issue_server("daemon", [HOST], days=1)
        self.ca = str(folder / CA)
        access = folder / "access"
        token = issue_token(folder, access, Identity("name", "alice", Role.COMPILE))
        self.settings = Settings(tls_ca=self.ca, token_file=str(token), share_memory=False)
        self.flags = ["--tls-cert", str(self.certificate), "--tls-key", str(self.key), "--access", str(access)]

    @property
    def pair(self) -> tuple[bytes, bytes]:
        return self.key.read_bytes(), self.certificate.read_bytes()

    @property
    def ca_bytes(self) -> bytes:
        return Path(self.ca).read_bytes()


@contextmanager
def runner(runtime: Runtime, elements: int) -> Iterator[Callable[[], Any]]:
    """Runs that give back what they get."""
    with Compilation(identity_model(elements), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield partial(executor.run_sync, [np.zeros(elements, np.float32)])


def open_session(address: str, settings: Settings) -> None:
    with Runtime([address], settings) as runtime:
        runtime.device()


def serve_socket(pipe: Connection, certificate: str, key: str) -> None:
    """A server that receives into place over TLS sockets of Python, and says so whenever the place is full."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    place = np.zeros(SIZE, np.uint8).data
    with socket.create_server((HOST, 0)) as listener:
        pipe.send(listener.getsockname()[1])
        with context.wrap_socket(listener.accept()[0], server_side=True) as connection:
            at = 0
            while count := connection.recv_into(place[at:]):
                at = (at + count) % SIZE
                if not at:
                    connection.sendall(b"full")


@contextmanager
def socket_sender(files: Files, data: memoryview) -> Iterator[Callable[[], Any]]:
    """A function that sends the data over a TLS socket."""
    context = mp.get_context("spawn")
    pipe, there = context.Pipe()
    process = context.Process(target=serve_socket, args=(there, str(files.certificate), str(files.key)))
    process.start()
    trusting = ssl.create_default_context(cafile=files.ca)
    with trusting.wrap_socket(socket.create_connection((HOST, pipe.recv())), server_hostname=HOST) as connection:

        def send() -> None:
            connection.sendall(data)
            connection.recv(4)

        yield send
    process.join()


def measure() -> list[Report]:
    with ExitStack() as stack:
        files = Files(Path(stack.enter_context(tempfile.TemporaryDirectory()), "keys"))
        plain_at, _ = stack.enter_context(device_daemon(f"{HOST}:0"))
        tls_at, _ = stack.enter_context(device_daemon(f"{HOST}:0", *files.flags))
        unguarded = Settings(share_memory=False)
        plain = stack.enter_context(Runtime([plain_at], unguarded))
        tls = stack.enter_context(Runtime([tls_at], files.settings))
        beside_plain = Report(
            "TLS and a token beside a plain connection",
            "Runs over gRPC on TCP loopback that give back what they get, and the opening and closing of a session with"
            " all its threads, by one client on two daemons in turns: rounds, and the median of their ratios"
            " with its quartiles. Who a client is is looked up when its session opens: a run costs what encryption"
            " costs.",
            ("what", "plain µs", "TLS µs", "ratio", "quartiles"),
        )
        for name, elements in SIZES.items():
            with runner(plain, elements) as one, runner(tls, elements) as other:
                beside_plain.add(f"a run of {name}", *pair_cells(in_turns(one, other, RUNS[name])))
        opens = partial(open_session, plain_at, unguarded), partial(open_session, tls_at, files.settings)
        beside_plain.add("a session", *pair_cells(in_turns(*opens, SESSIONS)))
        return [beside_plain, _by_hand(files, tls)]


def _by_hand(files: Files, tls: Runtime) -> Report:
    report = Report(
        "Runs over TLS beside what can be written by hand",
        "On TCP loopback, in turns in one process: a run of 1 KB on a session over TLS and a bare unary call of"
        f" gRPC-Python whose handler returns its request; and a run that takes {SIZE >> 20} MB and gives back 4 bytes,"
        " beside a stream of gRPC-Python over TLS, in chunks of the size that is best, and a TLS socket of Python."
        " Rounds, and the median of their ratios with its quartiles.",
        ("run over TLS", "by hand", "by hand µs", "run µs", "ratio", "quartiles"),
    )
    one_kb, data = np.ones(KILOBYTE, np.float32), np.zeros(SIZE, np.uint8).data
    with ExitStack() as stack:
        run = stack.enter_context(runner(tls, KILOBYTE))
        for how, pair in (("unary call, plain", None), ("unary call over TLS", files.pair)):
            address = stack.enter_context(echo_server(f"{HOST}:0", pair))
            credentials = grpc.ssl_channel_credentials(files.ca_bytes)
            opened = grpc.secure_channel(address, credentials) if pair else grpc.insecure_channel(address)
            echo = stack.enter_context(opened).unary_unary("/echo/unary")
            report.add("1 KB", how, *pair_cells(in_turns(partial(echo, one_kb.tobytes()), run, RUNS["1 KB"])))
    with ExitStack() as stack:
        executor = stack.enter_context(executor_of(tls, first_of(SIZE // 4)))
        large = partial(executor.run_sync, [np.frombuffer(data, np.float32)])
        address = stack.enter_context(sink_server(files.pair))
        senders = {
            size: stack.enter_context(sender(address, data, size, files.ca_bytes))
            for size in (1 << 18, 1 << 20, 1 << 22)
        }
        best = min(senders, key=lambda size: median_us(senders[size], CHOICES))
        by_hand = {
            f"stream over TLS, {best >> 10} KiB": senders[best],
            "TLS socket": stack.enter_context(socket_sender(files, data)),
        }
        for how, send in by_hand.items():
            report.add(f"{SIZE >> 20} MB in", how, *pair_cells(in_turns(send, large, 1)))
    return report


if __name__ == "__main__":
    for report in measure():
        report.show()
