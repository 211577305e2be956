"""Runs beside requests to a server that users know, KServe's, which `make peers` installs.

    python benchmarks/peers.py [TENSOR ...]

Servers and clients are processes; see peer_process.py. Where KServe is not installed, its rows say so.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

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
Process: TypeAlias = "subprocess.Popen[str]"


class Round(NamedTuple):
    """The median time of a request, and the requests of all clients per second."""

    time_us: float
    rate: float


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
        crowds = dict(_crowds(stack, folder, python))
        for tensor in tensors:
            elements, seconds = TENSORS[tensor]
            for count in CLIENTS:
                if python is None:
                    report.add(tensor, str(count), KSERVE, "", "", "", ABSENT)
                some = {server: crowd[:count] for server, crowd in crowds.items()}
                for crowd in some.values():
                    _round(crowd, 0, elements)
                rounds = [
                    {server: _round(crowd, seconds, elements) for server, crowd in some.items()} for _ in range(ROUNDS)
                ]
                _add(report, (tensor, str(count)), rounds)
    return [report]


def _crowds(stack: ExitStack, folder: str, python: str | None) -> Iterator[tuple[str, list[Process]]]:
    """The clients of each server, all of them started."""
    at = [
        (OVER_GRPC, "nnrt-grpc", sys.executable, device_daemon("127.0.0.1:0")),
        (LOCAL, "nnrt-local", sys.executable, device_daemon(f"unix:{folder}/device")),
    ]
    if python is not None:
        at.insert(0, (KSERVE, "kserve", python, kserve_server(python)))
    for server, kind, by, daemon in at:
        address = stack.enter_context(daemon)[0]
        crowd = [stack.enter_context(_process(by, kind, address)) for _ in range(max(CLIENTS))]
        for process in crowd:
            _line(process.stdout)
        yield server, crowd


def interpreter() -> str | None:
    """The Python that has KServe; None where none has."""
    if (PEERS / "installed").exists():
        return str(PEERS / "bin" / "python")
    return sys.executable if find_spec("kserve") else None


@contextmanager
def kserve_server(python: str) -> Iterator[tuple[str, int]]:
    """KServe's server: its address and process id."""
    with _process(python, "serve-kserve") as process:
        yield _line(process.stdout), process.pid


def _round(crowd: Sequence[Process], seconds: float, elements: int) -> Round:
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write(f"{seconds} {elements}\n")
        process.stdin.flush()
    times, rates = zip(*(json.loads(_line(process.stdout)) for process in crowd), strict=True)
    return Round(statistics.median(times), sum(rates))


def _add(report: Report, place: tuple[str, str], rounds: Sequence[Mapping[str, Round]]) -> None:
    for server in rounds[0]:
        cells = ["", ""]
        if KSERVE in rounds[0] and server != KSERVE:
            low, middle, high = statistics.quantiles(one[server].rate / one[KSERVE].rate for one in rounds)
            cells = [f"{middle:.2f}", f"{low:.2f}..{high:.2f}"]
        time_us, rate = (statistics.median(numbers) for numbers in zip(*(one[server] for one in rounds), strict=True))
        report.add(*place, server, f"{time_us:.0f}", f"{rate:.1f}", *cells)


@contextmanager
def _process(python: str, *arguments: str) -> Iterator[Process]:
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
