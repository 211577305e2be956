"""The gain of leaving on the device what one model gives the next.

    python benchmarks/resident.py

A chain of models, run with round trips and with resident tensors in turns, against one daemon. Answers are compared.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import Report, pair_cells
from small_run import device_daemon

from nnrt_client import (
    Compilation,
    DataType,
    Executor,
    Model,
    OperationType,
    ResidentTensor,
    Runtime,
    Settings,
    TensorDesc,
)

MODELS = 5
SIDE = 1 << 10  # A matrix of 4 MB goes from each model to the next.
ROUNDS = 20


def link_model(first: bool, last: bool) -> Model:
    """y = x + 1: as little work as a model can be. The first begins with a row, which it repeats; the last ends with
    the greatest number of each."""
    model = Model()
    x = model.input((1, SIDE) if first else (SIDE, SIDE), name="x")
    ones = np.ones((SIDE, 1) if first else (1, 1), np.float32)
    y = model.apply(OperationType.ADD, x, ones)
    if last:
        y = model.apply(OperationType.REDUCE_MAX, y, [1])
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


@contextmanager
def chain(runtime: Runtime) -> Iterator[list[Executor]]:
    with ExitStack() as stack:
        executors = []
        for number in range(MODELS):
            model = link_model(first=not number, last=number == MODELS - 1)
            compilation = stack.enter_context(Compilation(model, runtime.device()))
            compilation.build()
            executors.append(stack.enter_context(Executor(compilation)))
        yield executors


def with_round_trips(executors: Sequence[Executor], row: NDArray[Any]) -> NDArray[Any]:
    for executor in executors:
        (row,) = executor.run_sync([row])
    return row


def resident(executors: Sequence[Executor], row: NDArray[Any], between: Sequence[ResidentTensor]) -> NDArray[Any]:
    executors[0].run_sync([row], [between[0]])
    for executor, x, y in zip(executors[1:-1], between, between[1:], strict=False):
        executor.run_sync([x], [y])
    (result,) = executors[-1].run_sync([between[-1]])
    return result


def _ms(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return (time.perf_counter() - started) * 1e3


def measure() -> list[Report]:
    report = Report(
        "Models whose results stay on the device",
        f"A chain of {MODELS} models that add one, 4 MB from each to the next, 4 KB in and out in the end;"
        f" {ROUNDS} rounds taken in turns on the ONNX Runtime backend, and the median of their ratios with its"
        " quartiles; the answers are the same. In shared memory nothing travels in either case.",
        ("way", "round trips ms", "resident ms", "times faster", "quartiles"),
    )
    with tempfile.TemporaryDirectory() as folder:
        for way, address, settings in (
            ("TCP loopback, gRPC only", "127.0.0.1:0", Settings(share_memory=False)),
            ("Unix socket, gRPC only", f"unix:{folder}/device", Settings(share_memory=False)),
            ("Unix socket, shared memory", f"unix:{folder}/shared", Settings()),
        ):
            _measure_way(way, address, settings, report)
    return [report]


def _measure_way(way: str, address: str, settings: Settings, report: Report) -> None:
    row = np.random.default_rng(0).standard_normal((1, SIDE), np.float32)
    with ExitStack() as stack:
        at, _ = stack.enter_context(device_daemon(address, "--backend", "onnxruntime"))
        runtime = stack.enter_context(Runtime([at], settings))
        executors = stack.enter_context(chain(runtime))
        desc = TensorDesc(DataType.FLOAT32, (SIDE, SIDE))
        between = [stack.enter_context(ResidentTensor(runtime.device(), desc)) for _ in range(MODELS - 1)]
        np.testing.assert_array_equal(resident(executors, row, between), with_round_trips(executors, row))
        times = [
            (_ms(lambda: with_round_trips(executors, row)), _ms(lambda: resident(executors, row, between)))
            for _ in range(ROUNDS)
        ]
    stays_ms, there_and_back_ms, *faster = pair_cells(((stays, both) for both, stays in times), ".1f")
    report.add(way, there_and_back_ms, stays_ms, *faster)


if __name__ == "__main__":
    for report in measure():
        report.show()
