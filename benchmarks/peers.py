"""Runs beside requests to a server that users know, KServe's, which `make peers` installs.

    python benchmarks/peers.py [TENSOR ...]

Servers and clients are processes; see peer_process.py. Where KServe is not installed, its rows say so.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO

from report import Report
from small_run import IMAGE, KILOBYTE, device_daemon

PROCESS = Path(__file__).with_name("peer_process.py")
# Beside the environment that this is run in; it has other versions of what both need.
PEERS = Path(sys.prefix).parent / ".venv-peers"
ABSENT = "not installed; make peers installs it"
TENSORS = {"1 KB": (KILOBYTE, 0.5), "600 KB": (IMAGE, 0.5), "64 MB": (16 << 20, 1.0)}
"""Elements, and how long a round takes in seconds."""
CLIENTS = (1, 8)
ROUNDS = 5
KSERVE, OVER_GRPC, LOCAL = "KServe, gRPC over TCP", "nnrt, gRPC over TCP", "nnrt, local socket"
KINDS = {KSERVE: "kserve", OVER_GRPC: "nnrt-grpc", LOCAL: "nnrt-local"}
Round = tuple[float, float]


def measure(tensors: Iterable[str] = TENSORS) -> list[Report]:
    report = Report(
        "Beside a server that users know",
        "y = x + 0 as a model of KServe's Python server, asked by KServe's own gRPC client, and on a daemon with the"
        " reference backend: as many bytes in as out, each client a process that sends one request after another."
        f" Medians of {ROUNDS} rounds taken in turns: p50 of a request, and requests per second of all clients; the"
        " ratio is the median of the rounds' requests per second to KServe's, with its quartiles.",
        ("tensor", "clients", "server", "p50 µs", "requests/s", "of KServe's", "quartiles"),
    )
    python = interpreter()
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        addresses = {
            OVER_GRPC: stack.enter_context(device_daemon("127.0.0.1:0"))[0],
            LOCAL: stack.enter_context(device_daemon(f"unix:{folder}/device"))[0],
        }
        if python is not None:
            addresses = {KSERVE: stack.enter_context(kserve_server(python)), **addresses}
        for tensor in tensors:
            elements, seconds = TENSORS[tensor]
            for count in CLIENTS:
                if python is None:
                    report.add(tensor, str(count), KSERVE, "", "", "", ABSENT)
                _add(report, (tensor, str(count)), _rounds(addresses, elements, count, seconds, python))
    return [report]


def interpreter() -> str | None:
    """The Python that has KServe; None where none has."""
    if (PEERS / "installed").exists():
        return str(PEERS / "bin" / "python")
    return sys.executable if find_spec("kserve") else None


@contextmanager
def kserve_server(python: str) -> Iterator[str]:
    with _process(python, "serve-kserve") as process:
        yield _line(process.stdout)


def _rounds(
    addresses: dict[str, str], elements: int, count: int, seconds: float, python: str | None
) -> dict[str, list[Round]]:
    """The median time of a request in µs, and the requests per second, of each round."""
    with ExitStack() as stack:
        crowds = {}
        for server, address in addresses.items():
            by = python if server == KSERVE and python else sys.executable
            arguments = (by, KINDS[server], address, str(elements))
            crowds[server] = [stack.enter_context(_process(*arguments)) for _ in range(count)]
        for process in (process for crowd in crowds.values() for process in crowd):
            _line(process.stdout)
        taken = [{server: _round(crowd, seconds) for server, crowd in crowds.items()} for _ in range(ROUNDS)]
    return {server: [one[server] for one in taken] for server in addresses}


def _round(crowd: list["subprocess.Popen[str]"], seconds: float) -> Round:
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write(f"{seconds}\n")
        process.stdin.flush()
    times, rates = zip(*(json.loads(_line(process.stdout)) for process in crowd), strict=True)
    return statistics.median(times), sum(rates)


def _add(report: Report, place: tuple[str, str], rounds: dict[str, list[Round]]) -> None:
    for server, taken in rounds.items():
        times, rates = zip(*taken, strict=True)
        cells = ["", ""]
        if KSERVE in rounds and server != KSERVE:
            low, middle, high = statistics.quantiles(
                rate / theirs for rate, (_, theirs) in zip(rates, rounds[KSERVE], strict=True)
            )
            cells = [f"{middle:.2f}", f"{low:.2f}..{high:.2f}"]
        report.add(*place, server, f"{statistics.median(times):.0f}", f"{statistics.median(rates):.1f}", *cells)


@contextmanager
def _process(python: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that ends with its standard input."""
    command = [python, str(PROCESS), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def _line(stream: IO[str] | None) -> str:
    assert stream is not None
    line = stream.readline().strip()
    if not line:
        raise RuntimeError(f"a process of {PROCESS.name} ended before it said anything")
    return line


if __name__ == "__main__":
    for report in measure(sys.argv[1:] or TENSORS):
        report.show()
