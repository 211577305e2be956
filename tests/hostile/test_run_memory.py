"""Runs that would make more than the daemon may, of models that take a few kilobytes to describe."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from observer import DEADLINE_S
from waiting import until

from nnrt_client import Compilation, Executor, Model, OperationType, OutOfMemory, Runtime
from nnrt_device_service.scheduling.run_memory import RunMemory
from nnrt_device_service.scheduling.run_watch import RunWatch
from nnrt_hdi.backend import Cancellation
from nnrt_hdi.errors import OperationFailed, TimedOut

MIB = 1 << 20
ELEMENTS = 2 * MIB
TENSOR_BYTES = 4 * ELEMENTS
OUTPUTS = 16
# A run makes 128 MiB.
ALLOWED_BYTES = 8 * TENSOR_BYTES


def wide_model(elements: int) -> Model:
    """y_i = x + i."""
    model = Model()
    x = model.input((elements,), name="x")
    outputs = [model.apply(OperationType.ADD, x, np.full(1, i, np.float32)) for i in range(OUTPUTS)]
    model.specify_inputs_and_outputs([x], outputs)
    model.finish()
    return model


def deep_model(elements: int) -> Model:
    """y = x + 1 + 1 + ..., of which few results live at a time."""
    model = Model()
    x = y = model.input((elements,), name="x")
    for _ in range(OUTPUTS):
        y = model.apply(OperationType.ADD, y, np.ones(1, np.float32))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


@contextmanager
def built(daemon: DaemonProcess, model: Model) -> Iterator[Executor]:
    with Runtime([daemon.address]) as runtime, Compilation(model, runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            yield executor


@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
@pytest.mark.parametrize("elements", [ELEMENTS, -1], ids=["known", "dynamic"])
@pytest.mark.parametrize("setting", ["--run-bytes", "--session-bytes", "--held-bytes"])
def test_what_a_run_makes_is_bounded(start_daemon: StartDaemon, backend: str, elements: int, setting: str) -> None:
    """A run is refused before it takes the memory; smaller ones of the same session are not."""
    daemon = start_daemon("--backend", backend, setting, str(ALLOWED_BYTES))
    x = np.zeros(ELEMENTS, np.float32)
    with built(daemon, wide_model(elements)) as executor:
        before = daemon.memory_bytes()
        for _ in range(3):
            with pytest.raises(OutOfMemory, match=setting):
                executor.run_sync([x])
        assert daemon.peak_memory_bytes() - before < ALLOWED_BYTES
    with built(daemon, deep_model(elements)) as executor:
        assert executor.run_sync([x])[0][0] == OUTPUTS


def test_runs_wait_for_the_memory_of_others() -> None:
    memory, go_on, inside = RunMemory(100), threading.Event(), threading.Barrier(2)

    def run() -> None:
        with memory.reserved(60, Cancellation()):
            inside.wait(DEADLINE_S)
            go_on.wait(DEADLINE_S)

    with ThreadPoolExecutor(2) as threads:
        running = threads.submit(run)
        inside.wait(DEADLINE_S)
        with memory.reserved(40, Cancellation()):
            pass
        cancelled = Cancellation()
        cancelled.cancel()
        with pytest.raises(OperationFailed), memory.reserved(60, cancelled):
            pass
        with pytest.raises(TimedOut), memory.reserved(60, Cancellation(deadline=0.0)):
            pass
        waiting = threads.submit(lambda: memory.reserved(60, Cancellation()).__enter__())
        go_on.set()
        running.result(DEADLINE_S)
        waiting.result(DEADLINE_S)


def test_who_waits_for_memory_first_is_first() -> None:
    """Smaller runs don't pass it, and it isn't on the device meanwhile."""
    memory, large = RunMemory(100), Cancellation()
    large.began_ns = 1

    def run() -> None:
        with memory.reserved(80, large):
            pass

    with ThreadPoolExecutor(1) as threads:
        with memory.reserved(60, Cancellation()):
            waiting = threads.submit(run)
            until(lambda: memory._waiting)
            with pytest.raises(TimedOut), memory.reserved(40, Cancellation(deadline=0.0)):
                pass
            assert RunWatch(max_run_s=0.001, stuck_s=0.001).look([large]) == ""
            assert not large.is_cancelled
        waiting.result(DEADLINE_S)
    with memory.reserved(100, Cancellation(deadline=0.0)):
        pass
