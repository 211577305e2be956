"""From a daemon that appears to its first run, by how its name is resolved.

    PYTHONPATH=tests:benchmarks python benchmarks/discovery.py [--rounds 10]

An application with a runtime listens to changes, and has no device. A daemon starts. From the moment that it is ready
it counts how long it takes until the application has loaded a model there and has an answer. Whoever keeps the list
writes it at that moment (file, dns); with mdns the daemon announces itself, on the loopback interface. The time without
finding it, for the address is known, is that of `address`.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from daemon_process import DaemonProcess
from report import Report
from resolvers.name_server import NameServer

from nnrt_client import AddressChange, Model, OperationType, Runtime, load

DEADLINE_S = 60.0
# Says to those who keep a list that a daemon is there.
Say = Callable[[str], object]


@contextmanager
def listed_in_file() -> Iterator[tuple[str, Say]]:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "devices")
        path.write_text("")
        yield f"file://{path}", lambda address: path.write_text(f"{address}\n")


@contextmanager
def served_by_dns() -> Iterator[tuple[str, Say]]:
    """As SRV records, which hold for a second."""

    def say(address: str) -> None:
        host, port = address.split(":")
        server.say("one.test", "A", host).say("_nnrt._tcp.test", "SRV", f"0 0 {port} one.test.")

    with NameServer() as server:
        yield f"dns://{server.address}/_nnrt._tcp.test", say


@contextmanager
def announced() -> Iterator[tuple[str, Say]]:
    yield "mdns:///?interface=127.0.0.1", lambda _: None


@contextmanager
def known_before() -> Iterator[tuple[str, Say]]:
    yield "", lambda _: None


WAYS = {"address": known_before, "file": listed_in_file, "dns": served_by_dns, "mdns": announced}


def small_model() -> Model:
    model = Model()
    x = model.input((4,), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.RELU, x)])
    model.finish()
    return model


def seconds_to_first_run(way: str) -> float:
    """Seconds from a daemon that is ready to an answer of it."""
    announcing = ("--announce", "--announce-interface", "127.0.0.1") if way == "mdns" else ()
    appeared: dict[str, threading.Event] = {}

    def listen(change: AddressChange) -> None:
        for address in change.added:
            appeared.setdefault(address, threading.Event()).set()

    with WAYS[way]() as (name, say), Runtime([name] if name else []) as runtime:
        runtime.watch(listen)
        daemon = DaemonProcess(*announcing)
        try:
            began = time.perf_counter()
            say(daemon.address)
            if name:
                assert appeared.setdefault(daemon.address, threading.Event()).wait(DEADLINE_S)
            used = runtime.device(daemon.address) if name else daemon.address
            with load(small_model(), used) as session:
                (answer,) = session.run([np.array([-1, 1, -2, 2], np.float32)]).values()
                seconds = time.perf_counter() - began
            assert answer.tolist() == [0, 1, 0, 2]
        finally:
            daemon.kill()
    return seconds


def discovery_table(rounds: int) -> Report:
    report = Report(
        "A daemon appears: seconds to its first run",
        f"Of {rounds} rounds, the ways in turns.",
        ("way", "median", "longest"),
    )
    taken: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, seconds in taken.items():
            seconds.append(seconds_to_first_run(way))
    for way, seconds in taken.items():
        report.add(way, f"{statistics.median(seconds):.2f}", f"{max(seconds):.2f}")
    return report


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    discovery_table(parser.parse_args().rounds).show()
