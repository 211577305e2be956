"""Fifty clients that load the same model at once, beside one client alone."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from harness import Report, device_daemon, in_rounds, pair_cells
from memory import LAYERS, matrices

from nnrt_client import Compilation, Model, Origin, Runtime, from_onnx

CLIENTS, ROUNDS = 50, 5


def build_at_once(model: Model, backend: str, count: int) -> tuple[float, int, int]:
    """Build a model in so many sessions of a new daemon; return the seconds, the compilations and the bytes sent."""
    with (
        device_daemon("127.0.0.1:0", "--backend", backend, "--max-sessions", "128") as daemon,
        ThreadPoolExecutor(count) as threads,
        ExitStack() as stack,
    ):
        runtimes = [stack.enter_context(Runtime([daemon.address])) for _ in range(count)]
        compilations = [stack.enter_context(Compilation(model, runtime.device())) for runtime in runtimes]
        ready = threading.Barrier(count + 1)

        def build(compilation: Compilation) -> None:
            ready.wait()
            compilation.build()

        builds = [threads.submit(build, compilation) for compilation in compilations]
        ready.wait()
        began = time.perf_counter()
        for done in builds:
            done.result()
        seconds = time.perf_counter() - began
        origins = Counter(compilation.origin for compilation in compilations)
        return seconds, origins[Origin.COMPILED], sum(c.report.sent_bytes for c in compilations if c.report)


def measure() -> Iterator[Report]:
    report = Report(
        f"One model, {CLIENTS} clients at once",
        f"A model of {LAYERS} matrices (104 MB) is built in a new daemon: by one client, and by {CLIENTS} at the same"
        " time, in one process. The time ends when the last client has the model.",
        ("backend", "1 client ms", f"{CLIENTS} clients ms", "ratio", "quartiles", "compilations", "MB sent"),
    )
    model = from_onnx(matrices().SerializeToString())
    for backend in ("reference", "onnxruntime"):
        ways = {str(count): partial(build_at_once, model, backend, count) for count in (1, CLIENTS)}
        rounds = in_rounds(ways, ROUNDS)
        pairs = [(one[0], all_[0]) for one, all_ in zip(rounds["1"], rounds[str(CLIENTS)], strict=True)]
        _, compiled, sent = rounds[str(CLIENTS)][0]
        report.add(backend, *pair_cells(pairs, scale=1e3), str(compiled), f"{sent / 1e6:.0f}")
    yield report
