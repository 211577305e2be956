"""Measures what the library for C costs, beside the same calls in Python.

PYTHONPATH=tests python benchmarks/c_calls.py
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from report import Report, pair_cells
from small_run import device_daemon

from nnrt_client import Compilation, DataType, Executor, Model, OperationType, Runtime, Tensor, TensorDesc, oh_nn
from nnrt_client.c import INCLUDE, LIB, LIBRARY

HERE = Path(__file__).resolve().parent
NUMBERS = 256
CALLS = 500
ROUNDS = 9
STARTS = 5


def measure() -> list[Report]:
    report = Report(
        "Calls from C",
        f"1 KB in each of two inputs, TCP address on this host, through the local socket. Medians of {CALLS} calls, of"
        f" {ROUNDS} rounds taken in turns with a client in Python that makes the same calls; a ratio is the median of"
        f" the rounds', with its quartiles. The first result is counted from the start of main: the median of {STARTS}"
        " processes, which import the package, connect, build and run.",
        ("call", "C", "Python", "ratio", "quartiles"),
    )
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or not LIBRARY.exists():
        return []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address, _ = stack.enter_context(device_daemon("127.0.0.1:0"))
        program = _compiled(compiler, folder)
        environment = {**os.environ, "NNRT_DEVICES": address, "NNRT_PYTHON": sys.executable}
        starts = []
        for _ in range(STARTS):
            begun = subprocess.run([program], env=environment, input="", capture_output=True, text=True, check=True)
            starts.append(float(begun.stdout))
        report.add("start to the first result", f"{statistics.median(starts):.0f} ms", "", "", "")
        process = stack.enter_context(
            subprocess.Popen([program], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        run, set_type = _calls_in_python(stack, address)
        rounds = []
        for _ in range(ROUNDS):
            process.stdin.write("\n")
            process.stdin.flush()
            in_c = list(map(float, process.stdout.readline().split()))
            rounds.append((in_c, [_median_us(run), _median_us(set_type)]))
        process.stdin.close()
    for at, name in enumerate(("OH_NNExecutor_RunSync", "OH_NNTensorDesc_SetDataType")):
        python, c, *ratio = pair_cells(((python[at], c[at]) for c, python in rounds))
        report.add(name, f"{c} µs", f"{python} µs", *ratio)
    return [report]


def _compiled(compiler: str, folder: Path) -> Path:
    program = folder / "c_calls"
    flags = [f"-I{INCLUDE}", f"-I{HERE.parent / 'examples' / 'c'}", f"-L{LIB}", f"-Wl,-rpath,{LIB}"]
    command = [
        compiler,
        "-std=gnu11",
        "-O2",
        *flags,
        str(HERE / "c_calls.c"),
        "-lneural_network_runtime",
        "-o",
        str(program),
    ]
    subprocess.run(command, check=True)
    return program


def _calls_in_python(stack: ExitStack, address: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """A run of the same model with the same tensors by the object API, and the setter of `oh_nn`."""
    device = stack.enter_context(Runtime([address])).device()
    model = Model()
    operands = [model.input((1, NUMBERS)) for _ in range(2)]
    model.specify_inputs_and_outputs(operands, [model.apply(OperationType.ADD, *operands)])
    model.finish()
    compilation = stack.enter_context(Compilation(model, device))
    compilation.build()
    executor = stack.enter_context(Executor(compilation))
    desc = TensorDesc(DataType.FLOAT32, (1, NUMBERS))
    tensors = [stack.enter_context(Tensor(device, desc)) for _ in range(3)]
    for tensor in tensors:
        tensor.numpy()[:] = np.zeros((1, NUMBERS), np.float32)
    inputs, outputs = tensors[:2], tensors[2:]
    handle = oh_nn.OH_NNTensorDesc_Create()
    return (
        lambda: executor.run_sync(inputs, outputs),
        lambda: oh_nn.OH_NNTensorDesc_SetDataType(handle, oh_nn.OH_NN_FLOAT32),
    )


def _median_us(call: Callable[[], object]) -> float:
    took = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


if __name__ == "__main__":
    for report in measure():
        report.show()
