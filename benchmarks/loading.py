"""Loads of one file by stage, beside ONNX Runtime in process, and by fifty clients at once, beside one client."""

import multiprocessing as mp
import os
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import harness
import numpy as np
import onnx
from harness import Report, at_most, device_daemon, in_rounds, pair_cells
from memory import LAYERS, WIDTH, matrices

from nnrt_client import Compilation, Model, Origin, Runtime, from_onnx, load, wait_until_cached

CLIENTS, ROUNDS = 50, 5
# Number and width of the matrices of each model.
SIZES = {"small": (1, 16), "12 MB": (3, WIDTH), "104 MB": (LAYERS, WIDTH)}
LARGE = {"2 GB": (500, WIDTH)}
# Stages of a load, and the stages of `BuildReport` that they consist of.
STAGES: Mapping[str, Sequence[str]] = {
    "check": ("checking",),
    "upload": ("uploading",),
    "compile": ("waiting", "compiling", "restoring"),
}
# A file that was written this recently isn't remembered.
SETTLED_S = 3


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


def load_once(path: str, address: str, cache: str) -> dict[str, float]:
    """Load a file and run it once, in a process that has loaded nothing before; return the ms of each stage."""
    os.environ["XDG_CACHE_HOME"] = cache
    times = [time.perf_counter()]
    with Runtime([address]) as runtime:
        device = runtime.device()
        times.append(time.perf_counter())
        with load(path, device) as session:
            times.append(time.perf_counter())
            session.run([np.zeros(session.inputs[0].shape, np.float32)])
            times.append(time.perf_counter())
            wait_until_cached()
            stages = {name: sum(session.report.stages_s.get(of, 0) for of in parts) for name, parts in STAGES.items()}
    connect, opened, run = (after - before for before, after in pairwise(times))
    all_stages = {"connect": connect, "read": opened - sum(stages.values()), **stages, "first run": run}
    return {name: seconds * 1e3 for name, seconds in all_stages.items()}


def in_process_once(path: str) -> float:
    """Open a file with ONNX Runtime and run it once; return the ms."""
    import onnxruntime

    began = time.perf_counter()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.zeros(session.get_inputs()[0].shape, np.float32)})
    return (time.perf_counter() - began) * 1e3


def in_new_process(function: Callable[..., Any], *arguments: str) -> Any:
    """Return the result of a function that a new process calls."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def measure_stages() -> Report:
    columns = ("connect", "read", *STAGES, "first run")
    report = Report(
        "A load by stage",
        "A file is loaded and run once, each time by a new process, after its imports. Cold: the daemon and the file"
        " are new. Known: the user has loaded the file before, and the daemon has the model in its store. *read*"
        " includes hashing, the import, and the import of the package onnx. Times are medians, in ms. The ratio is that"
        " of all stages to ONNX Runtime in process, which opens the same file and runs it once.",
        ("file", "backend", "load", *columns, "in process ms", "all ms", "ratio", "quartiles"),
    )
    sizes = SIZES | LARGE if harness.is_large else SIZES
    with tempfile.TemporaryDirectory() as folder:
        for size, (layers, width) in sizes.items():
            path = Path(folder) / "model.onnx"
            onnx.save(matrices(layers, width), path)
            time.sleep(SETTLED_S)
            for backend in ("reference", "onnxruntime"):
                for way, rounds in measure_loads(path, backend, Path(folder)).items():
                    cells = (f"{statistics.median(times[name] for _, times in rounds):.3g}" for name in columns)
                    pairs = pair_cells((bare, sum(times.values())) for bare, times in rounds)
                    report.add(size, backend, way, *cells, *pairs)
    return report


def measure_loads(path: Path, backend: str, folder: Path) -> dict[str, list[tuple[float, dict[str, float]]]]:
    """Return the ms in process, and those of each stage, of rounds of cold loads and of loads of a known file."""
    rounds: dict[str, list[tuple[float, dict[str, float]]]] = {"cold": [], "known": []}
    for _ in range(at_most(ROUNDS, 2)):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            store = ("--store-dir", f"{own}/store", "--store-bytes", str(8 << 30))
            with device_daemon("127.0.0.1:0", "--backend", backend, *store) as daemon:
                for way in rounds:
                    bare = in_new_process(in_process_once, str(path))
                    rounds[way].append((bare, in_new_process(load_once, str(path), daemon.address, f"{own}/cache")))
    return rounds


def measure() -> Iterator[Report]:
    yield measure_stages()
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
