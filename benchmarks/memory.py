"""Memory of a daemon whose clients load one model, also after they have left, and of a client that loads it.

All figures are resident memory, in MB or as ratios.
"""

import multiprocessing as mp
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
from harness import Report, at_most, device_daemon
from onnx import TensorProto
from onnx_models import Graph

from nnrt_client import load, wait_until_cached

MB = 1e6
SESSIONS = 8
# Seconds after a load or the last close until the memory is measured.
SETTLED_S = 3.0
WIDTH, LAYERS = 1000, 26  # 104 MB of float32.
LARGE_WIDTH, LARGE_LAYERS = 5000, 24  # 2.4 GB.


def matrices(layers: int = LAYERS, width: int = WIDTH, seed: int = 0) -> onnx.ModelProto:
    """Build a model of so many dense layers."""
    rng = np.random.default_rng(seed)
    g = Graph()
    x = g.input("x", [1, width])
    for _ in range(layers):
        x = g.op("Relu", g.op("MatMul", x, g.constant(rng.normal(size=(width, width)).astype("f4") / width)))
    return g.model(x)


def save_large(path: Path, layers: int) -> int:
    """Write a model of so many large dense layers, with external data, and return their bytes."""
    rng = np.random.default_rng(0)
    names = [f"w{layer}" for layer in range(layers)]
    weights = [TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[LARGE_WIDTH] * 2) for name in names]
    with path.with_suffix(".bin").open("wb") as file:
        for tensor in weights:
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", path.with_suffix(".bin").name), ("offset", str(file.tell()))):
                tensor.external_data.add(key=key, value=value)
            file.write(((rng.random([LARGE_WIDTH] * 2, "f4") - 0.5) / LARGE_WIDTH).data)
        size = file.tell()
    g = Graph()
    x = g.input("x", [1, LARGE_WIDTH])
    for name in names:
        x = g.op("Relu", g.op("MatMul", x, name))
    model = g.model(x)
    model.graph.initializer.extend(weights)
    onnx.save(model, path)
    return size


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
    yield measure_sessions()
    yield measure_weights()


def measure_weights() -> Report:
    report = Report(
        "Weights of one model",
        "A client loads a model, whose weights are uploaded, and runs it before and after the daemon has stored it."
        f" {SETTLED_S:g} s later the daemon's memory is measured. `Before` is what a process had before the load.",
        (
            "backend",
            "file MB",
            "store",
            "daemon above before / file",
            "client's peak above before, MB",
            "client after the load above before, MB",
        ),
    )
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # /tmp may be memory.
        small, large = Path(folder) / "small.onnx", Path(folder) / "large.onnx"
        onnx.save(matrices(), small)
        large_bytes = save_large(large, at_most(LARGE_LAYERS, 2))
        rows = [(backend, small, store) for backend in ("reference", "onnxruntime") for store in ("no", "yes")]
        for backend, path, store in (*rows, ("onnxruntime", large, "yes")):
            size, width = (large_bytes, LARGE_WIDTH) if path is large else (path.stat().st_size, WIDTH)
            directory = Path(folder) / "store"
            options = ("--backend", backend, *(("--store-dir", str(directory)) if store == "yes" else ()))
            with device_daemon("127.0.0.1:0", *options) as daemon:
                idle, before = resident_bytes(daemon.pid), resident_bytes()
                Path("/proc/self/clear_refs").write_text("5")  # Sets the peak to what is resident now.
                with load(path, device=daemon.address, cache=False) as session:
                    peak, after = peak_bytes(), resident_bytes()
                    session.run([np.zeros((1, width), np.float32)])
                    while store == "yes" and not list(directory.glob("*.nnrtmodel")):
                        threading.Event().wait(0.1)
                    session.run([np.zeros((1, width), np.float32)])
                    threading.Event().wait(SETTLED_S)
                    above = resident_bytes(daemon.pid) - idle
            shutil.rmtree(directory, ignore_errors=True)
            figures = (f"{figure / MB:.0f}" for figure in (peak - before, after - before))
            report.add(backend, f"{size / MB:.0f}", store, f"{above / size:.2f}", *figures)
    return report


def peak_bytes() -> int:
    """Return the most memory that this process has had since its peak was reset."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measure_sessions() -> Report:
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
    return report
