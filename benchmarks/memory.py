"""Memory of a daemon whose clients load one model: beside ONNX Runtime in process, and after they have left.

All figures are resident memory, in MB or as ratios.
"""

import multiprocessing as mp
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
from harness import Report, device_daemon
from onnx_models import Graph

from nnrt_client import load, wait_until_cached

MB = 1e6
SESSIONS = 8
# Seconds after a load or the last close until the memory is measured.
SETTLED_S = 3.0
WIDTH, LAYERS = 1000, 26  # 104 MB of float32.


def matrices(layers: int = LAYERS, seed: int = 0) -> onnx.ModelProto:
    """Build a model of so many dense layers."""
    rng = np.random.default_rng(seed)
    g = Graph()
    x = g.input("x", [1, WIDTH])
    for _ in range(layers):
        x = g.op("Relu", g.op("MatMul", x, g.constant(rng.normal(size=(WIDTH, WIDTH)).astype("f4") / WIDTH)))
    return g.model(x)


def resident_bytes(pid: int | str = "self") -> int:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def in_process(path: str) -> int:
    """Return what ONNX Runtime's session of a file adds to the memory of its process."""
    import onnxruntime

    before = resident_bytes()
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    session.run(None, {"x": np.zeros((1, WIDTH), np.float32)})
    return resident_bytes() - before


def measure() -> Iterator[Report]:
    report = Report(
        "One model in eight sessions",
        f"A model of {LAYERS} matrices is loaded by one session, then by {SESSIONS}, which all run it; then all close."
        f" The daemon's resident memory is measured {SETTLED_S:g} s after each step.",
        (
            "backend",
            "idle MB",
            "1 session MB",
            f"{SESSIONS} sessions MB",
            "ratio",
            "1 above idle / file",
            "after all closed MB",
            "of idle",
            "ONNX Runtime in process / file",
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "matrices.onnx"
        onnx.save(matrices(), path)
        size = path.stat().st_size
        with mp.get_context("spawn").Pool(1) as pool:
            bare = pool.apply(in_process, (str(path),))
        for backend in ("reference", "onnxruntime"):
            with device_daemon("127.0.0.1:0", "--backend", backend) as daemon, ExitStack() as stack:
                idle = resident_bytes(daemon.pid)
                sizes = list[int]()
                for _ in range(SESSIONS):
                    session = stack.enter_context(load(path, device=daemon.address))
                    session.run([np.zeros((1, WIDTH), np.float32)])
                    if len(sizes) in (0, SESSIONS - 1):
                        wait_until_cached()
                        threading.Event().wait(SETTLED_S)
                    sizes.append(resident_bytes(daemon.pid))
                stack.close()
                threading.Event().wait(SETTLED_S)
                after = resident_bytes(daemon.pid)
            one, all_of_them = sizes[0], sizes[-1]
            report.add(
                backend,
                *(f"{figure / MB:.0f}" for figure in (idle, one, all_of_them)),
                f"{all_of_them / one:.2f}",
                f"{(one - idle) / size:.2f}",
                f"{after / MB:.0f}",
                f"{after / idle:.2f}",
                f"{bare / size:.2f}",
            )
    yield report
