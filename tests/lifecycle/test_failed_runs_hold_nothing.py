"""A run that failed holds no memory: without the garbage collector, which would only hide that an error does."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from conftest import MakeTensor, StartDaemon
from daemon_process import DaemonProcess
from observer import Observer
from shared_memory import descriptors_of, held, wait_until_held
from waiting import until

from nnrt_client import (
    Compilation,
    Device,
    Executor,
    InvalidParameter,
    Model,
    OperationFailed,
    OperationType,
    Runtime,
    Settings,
    TimedOut,
    UnavailableDevice,
)

# Too large for a packet, so that memory is shared.
ELEMENTS = 1 << 15
DEADLINE_S = 20.0

on_each_carrier = pytest.mark.parametrize("share_memory", [True, False], ids=["local", "grpc"])


@dataclass
class Running:
    """An executor of a model that takes a tensor and an array, and what may end its runs."""

    address: str
    device: Device
    executor: Executor
    kill: Callable[[], None]

    def wait_until_under_way(self, count: int = 1) -> None:
        with Observer(self.address) as observer:
            observer.wait_for(lambda state: state.running + state.queued == count)

    def close(self) -> None:
        self.wait_until_under_way()
        self.executor.close()

    def kill_daemon(self) -> None:
        self.wait_until_under_way()
        self.kill()


@dataclass(frozen=True)
class Failure:
    """A way to fail: on which backend, with which error, because of what is done meanwhile."""

    backend: str
    error: type[BaseException]
    timeout_ms: int | None = None
    meanwhile: Callable[[Running], None] = lambda running: None
    # -1 for any number of elements, of which the output has not enough.
    elements: int = ELEMENTS


FAILURES = {
    "output too small": Failure("cached", InvalidParameter, elements=-1),
    "refused": Failure("faulty", UnavailableDevice),
    "timed out": Failure("slow", TimedOut, timeout_ms=50),
    "closed": Failure("slow", OperationFailed, meanwhile=Running.close),
    "killed": Failure("slow", UnavailableDevice, meanwhile=Running.kill_daemon),
}


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


Start = Callable[[bool, str, int], Running]


@pytest.fixture
def start(start_daemon: StartDaemon, closing: ExitStack) -> Start:
    def started(share_memory: bool, backend: str, elements: int) -> Running:
        daemon: DaemonProcess = start_daemon("--backend", backend, "--session-streams", "3")
        device = closing.enter_context(Runtime([daemon.address], Settings(share_memory=share_memory))).device()
        model = Model()
        x, y = model.input((elements,)), model.input((abs(elements),))
        model.specify_inputs_and_outputs([x, y], [model.apply(OperationType.ADD, x, y)])
        model.finish()
        compilation = closing.enter_context(Compilation(model, device))
        compilation.add_extension_config("fault", b"run")
        compilation.build()
        return Running(daemon.address, device, closing.enter_context(Executor(compilation)), daemon.kill)

    return started


def fail(running: Running, failure: Failure, is_sync: bool, inputs: list[Any], outputs: list[Any]) -> None:
    """Have a run fail, and keep nothing of it."""
    meanwhile = threading.Thread(target=failure.meanwhile, args=(running,))
    meanwhile.start()
    try:
        if is_sync:
            running.executor.run_sync(inputs, outputs, timeout_ms=failure.timeout_ms)
        else:
            running.executor.submit(inputs, outputs, timeout_ms=failure.timeout_ms).result(DEADLINE_S)
    except failure.error:
        return
    finally:
        meanwhile.join()
    raise AssertionError("the run did not fail")


@on_each_carrier
@pytest.mark.parametrize("is_sync", [True, False], ids=["run_sync", "submit"])
@pytest.mark.parametrize("failure", list(FAILURES.values()), ids=list(FAILURES))
def test_failed_runs(start: Start, tensor: MakeTensor, failure: Failure, is_sync: bool, share_memory: bool) -> None:
    """Tensors are free when they are closed, arrays when nobody refers to them."""
    running = start(share_memory, failure.backend, failure.elements)
    before = held()
    source = tensor(running.device, [abs(failure.elements) + 4])
    source.desc.shape = [failure.elements if failure.elements > 0 else 5]
    target = tensor(running.device, [failure.elements], 8 if failure.elements < 0 else 4 * failure.elements)
    array = np.ones(abs(failure.elements), np.float32)
    known = weakref.ref(array)
    fail(running, failure, is_sync, [source, array], [target])
    del array
    source.close()
    target.close()
    wait_until_held(before)
    until(lambda: known() is None, lambda: gc.get_referrers(known()))


@on_each_carrier
@pytest.mark.parametrize("is_under_way", [True, False], ids=["under way", "waiting"])
def test_cancelled_runs(start: Start, tensor: MakeTensor, share_memory: bool, is_under_way: bool) -> None:
    """Tell if the device works on it, or it waits for the one stream."""
    running = start(share_memory, "slow", ELEMENTS)
    small = np.zeros(ELEMENTS, np.float32)
    other = None if is_under_way else running.executor.submit([small, small])
    running.wait_until_under_way(0 if other is None else 1)
    before = held()
    source, target = (tensor(running.device, [ELEMENTS]) for _ in range(2))
    array = np.ones(ELEMENTS, np.float32)
    known = weakref.ref(array)
    future: Any = running.executor.submit([source, array], [target])
    running.wait_until_under_way()
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(DEADLINE_S)
    del array, future
    source.close()
    target.close()
    wait_until_held(before)
    until(lambda: known() is None, lambda: gc.get_referrers(known()))
    if other is not None:
        other.cancel()


def test_memory_that_arrays_go_through(start: Start) -> None:
    """There is no more of it after many runs that failed than two of them need."""
    running = start(True, "slow", ELEMENTS)
    array = np.ones(ELEMENTS, np.float32)
    for _ in range(8):
        with pytest.raises(TimedOut):
            running.executor.run_sync([array, array], timeout_ms=30)
        running.wait_until_under_way(0)
    # Two inputs and an output, and of each a descriptor of its own, and one of its mapping.
    until(lambda: descriptors_of("nnrt-staged") <= 2 * 3 * 2, lambda: descriptors_of("nnrt-staged"))
