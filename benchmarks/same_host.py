"""The cost of large tensors on one host beside a copy in memory, and what they leave behind in the daemon.

python benchmarks/same_host.py
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import Report, pair_cells
from small_run import device_daemon

from nnrt_client import Compilation, DataType, Executor, Model, OperationType, Runtime, Tensor, TensorDesc

ELEMENTS = 16 << 20  # 64 MB of float32
ROUNDS = 25
MEMORY_RUNS = 1000
MEMORY_WARM = 50
BACKENDS = ("reference", "onnxruntime")
MIB = 1 << 20


def reshape_model() -> Model:
    """Build a model that gives its elements another shape: not to be computed, only to be moved."""
    model = Model()
    x = model.input((ELEMENTS,), name="x")
    y = model.apply(OperationType.RESHAPE, x, [ELEMENTS // 1024, 1024])
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


@contextmanager
def identity(backend: str, folder: str) -> Iterator[tuple[Executor, Tensor, Tensor, int]]:
    """The model on a daemon of its own, a Tensor for its input and one for its output, and the daemon's process id."""
    with (
        device_daemon(f"unix:{folder}/{backend}", "--backend", backend) as (address, pid),
        Runtime([address]) as runtime,
        Compilation(reshape_model(), runtime.device()) as compilation,
        Tensor(runtime.device(), TensorDesc(DataType.FLOAT32, (ELEMENTS,))) as x,
        Tensor(runtime.device(), TensorDesc(DataType.FLOAT32, (ELEMENTS // 1024, 1024))) as y,
    ):
        compilation.build()
        x.numpy()[:] = np.arange(ELEMENTS, dtype=np.float32)
        with Executor(compilation) as executor:
            executor.run_sync([x], [y])
            np.testing.assert_array_equal(y.numpy().ravel(), x.numpy())
            yield executor, x, y, pid


def measure() -> list[Report]:
    identities = Report(
        "An identity of 64 MB on the same host",
        f"A RESHAPE from one Tensor into another, both in memory that the daemon has too, and one copy of as many bytes"
        f" by numpy in this process, between arrays that are in memory already: {ROUNDS} rounds taken in turns,"
        " and the median of their ratios with its quartiles.",
        ("backend", "copy ms", "run ms", "ratio", "quartiles"),
    )
    memory = Report(
        "The daemon's memory over many large runs",
        f"Before and after {MEMORY_RUNS} runs of 64 MB in and out (after {MEMORY_WARM} to warm up): with the same two"
        " Tensors, and with arrays that pass through the staging pool.",
        ("backend", "tensors", "resident MiB before", "after", "shared of it MiB before", "after"),
    )
    with tempfile.TemporaryDirectory() as folder:
        for backend in BACKENDS:
            with identity(backend, folder) as (executor, x, y, pid):
                source, target = np.ones(ELEMENTS, np.float32), np.ones(ELEMENTS, np.float32)
                _measure_identity(
                    backend, partial(np.copyto, target, source), partial(executor.run_sync, [x], [y]), identities
                )
                for what, run in (
                    ("Tensors", partial(executor.run_sync, [x], [y])),
                    ("arrays", partial(executor.run_sync, [source])),
                ):
                    _measure_memory(backend, what, run, pid, memory)
    return [identities, memory]


def _measure_identity(backend: str, copy: Callable[[], Any], run: Callable[[], Any], report: Report) -> None:
    _ms(copy), _ms(run)
    times = [(_ms(copy), _ms(run)) for _ in range(ROUNDS)]
    report.add(backend, *pair_cells(times))


def _measure_memory(backend: str, what: str, run: Callable[[], Any], pid: int, report: Report) -> None:
    for _ in range(MEMORY_WARM):
        run()
    before = memory_bytes(pid)
    for _ in range(MEMORY_RUNS):
        run()
    after = memory_bytes(pid)
    pairs = zip(before, after, strict=True)
    report.add(backend, what, *(f"{number / MIB:.1f}" for pair in pairs for number in pair))


def memory_bytes(pid: int) -> tuple[int, int]:
    """Resident memory of a process, and what of it is shared."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    resident, shared = (int(status[name].split()[0]) * 1024 for name in ("VmRSS", "RssShmem"))
    return resident, shared


def _ms(run: Callable[[], NDArray[Any] | Any]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    for report in measure():
        report.show()
