"""Soak test of models that clients share: processes load, run and close more models than fit, and are killed meanwhile.

PYTHONPATH=tests:tests/onnx_import python benchmarks/soak_models.py [--seconds 600]
"""

import argparse
import multiprocessing as mp
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
from daemon_process import DaemonProcess
from harness import Report
from networks import weighted_model
from residency import residency_of, zipf

from nnrt_client import Runtime, load
from nnrt_client.model.model import parts_of

PROCESSES, CLIENTS = 8, 4  # In each process.
MODELS, FIT, ELEMENTS = 40, 10, 250_000
# Seconds between two kills, and after the last client has left, until an idle daemon gives back its memory.
KILL_S, SETTLED_S = 5.0, 40.0
WARM = 0.25
MIB = 1 << 20


def use_models(address: str, seed: int, report: Connection) -> None:
    """Let several clients load, run and close models until the process is killed; report counts and errors."""
    models = [weighted_model(ELEMENTS, number) for number in range(MODELS)]
    weights = [next(iter(parts_of(model).graph.constants.values())).data for model in models]
    lock = threading.Lock()

    def client(number: int) -> None:
        rng = np.random.default_rng((seed, number))
        try:
            with Runtime([address]) as runtime:
                while True:
                    ranks = rng.choice(MODELS, 3, p=zipf(MODELS)).tolist()
                    sessions = [load(models[rank], runtime.device()) for rank in ranks]
                    for _ in range(rng.integers(1, 20)):
                        at = int(rng.integers(len(ranks)))
                        x = np.array([rng.random()], np.float32)
                        (made,) = sessions[at].run([x]).values()
                        expected = weights[ranks[at]]
                        assert expected is not None
                        if not np.array_equal(made, np.add(x, expected)):
                            raise AssertionError(f"model {ranks[at]} gave another answer")
                    for session in sessions:
                        session.close()
                    with lock:
                        report.send("")
        except BaseException as error:
            with lock:
                report.send(f"{error!r}")

    with ThreadPoolExecutor(CLIENTS) as threads:
        list(threads.map(client, range(CLIENTS)))


def soak(daemon: DaemonProcess, seconds: float, seed: int) -> list[str]:
    """Keep the clients busy, kill one process after the other, print a report, and return what was wrong."""
    context, rng = mp.get_context("spawn"), np.random.default_rng(seed)
    users: list[tuple[BaseProcess, Connection]] = []
    done, kills, wrong, sizes = 0, 0, list[str](), list[int]()

    def start() -> None:
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=use_models, args=(daemon.address, int(rng.integers(1 << 30)), theirs))
        process.start()
        theirs.close()
        users.append((process, ours))

    def read(connections: Sequence[Connection]) -> None:
        nonlocal done
        for connection in connections:
            with suppress(EOFError, OSError):
                while connection.poll():
                    error = connection.recv()
                    done += not error
                    wrong.extend([error] if error else [])

    idle, handles = daemon.memory_bytes(), _handles(daemon)
    for _ in range(PROCESSES):
        start()
    began, killed_at = time.monotonic(), time.monotonic()
    while (passed_s := time.monotonic() - began) < seconds and not wrong:
        read([connection for _, connection in users])
        if time.monotonic() - killed_at > KILL_S:
            process, connection = users.pop(int(rng.integers(PROCESSES)))
            read([connection])
            process.kill()
            process.join()
            connection.close()
            kills, killed_at = kills + 1, time.monotonic()
            start()
        if passed_s > seconds * WARM:
            sizes.append(daemon.memory_bytes())
        threading.Event().wait(0.2)
    residency = residency_of(daemon.address)
    for process, connection in users:
        read([connection])
        process.kill()
        process.join()
    while (left := residency_of(daemon.address)).models and time.monotonic() < killed_at + 60.0:
        threading.Event().wait(1.0)
    threading.Event().wait(SETTLED_S)
    if left.models or left.bytes:
        wrong.append(f"{left.models} models with {left.bytes} bytes are left")
    report = Report(
        f"{PROCESSES * CLIENTS} clients of {MODELS} models, {FIT} fit, {seconds:g} s", "", ("what", "count")
    )
    report.add("times that a client loaded three models, ran and closed them", f"{done:,}")
    report.add("processes killed", str(kills))
    report.add(
        "models that left, came back; runs that waited",
        f"{residency.evicted:,}, {residency.restored:,}; {residency.waits:,}",
    )
    half = max(len(sizes) // 2, 1)
    halves = ", ".join(f"{statistics.mean(part or [0]) / MIB:.1f}" for part in (sizes[:half], sizes[half:]))
    report.add("memory of the daemon, MiB, first and second half", halves)
    report.add("memory before and after, MiB", f"{idle / MIB:.1f}, {daemon.memory_bytes() / MIB:.1f}")
    report.add("open files before and after", f"{handles}, {_handles(daemon)}")
    report.add("wrong", str(len(wrong)))
    report.show()
    return wrong


def _handles(daemon: DaemonProcess) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend", default="onnxruntime")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as store:
        room = str(int((FIT + 0.5) * ELEMENTS * 4))
        options = ("--store-dir", store, "--resident-bytes", room, "--lease-s", "1", "--max-sessions", "128")
        daemon = DaemonProcess("--backend", given.backend, *options)
        try:
            wrong = soak(daemon, given.seconds, given.seed)
        finally:
            daemon.kill()
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
