"""Nothing is left of what was given up, and nothing waits for what can't come."""

import os
import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from handlers import raised_when
from networks import identity_model
from observer import Observer
from proxy import Proxy
from relay import Relay

from nnrt_client import (
    Compilation,
    DataType,
    Device,
    Executor,
    Model,
    OperationType,
    ResidentTensor,
    Runtime,
    Settings,
    Tensor,
    TensorDesc,
)

ONE = np.ones(1, np.float32)
LONG_MS = 600_000


@pytest.fixture
def model() -> Model:
    return identity_model(elements=1)


def executor_of(closing: ExitStack, device: Device, model: Model) -> Executor:
    compilation = closing.enter_context(Compilation(model, device))
    compilation.build()
    return closing.enter_context(Executor(compilation))


def test_a_build_given_up_when_its_answer_had_been_sent(start_daemon: StartDaemon, model: Model) -> None:
    """By its progress callback, more often than a session has room for models."""
    daemon = start_daemon("--session-models", "2")
    with Runtime([daemon.address]) as runtime, Observer(daemon.address) as observer:

        def change_of_mind(stage: str, fraction: float) -> None:
            if stage == "compiling":
                observer.state()  # Ask the daemon something else meanwhile, so that its answer is on its way.
                raise KeyError("not this one")

        for _ in range(6):
            with pytest.raises(KeyError):
                Compilation(model, runtime.device()).build(change_of_mind)
        with Compilation(model, runtime.device()) as compilation:
            compilation.build()


def test_callbacks_that_wait_for_who_closes_another_executor(
    closing: ExitStack, runtime: Runtime, model: Model
) -> None:
    """More of them than there are threads for callbacks."""
    waiting, other = (executor_of(closing, runtime.device(), model) for _ in range(2))
    applications_own = threading.Lock()
    called = list[Any]()

    def wait(user_data: Any, *_: object) -> None:
        with applications_own:
            called.append(user_data)

    waiting.set_on_run_done(wait)
    other.set_on_run_done(lambda user_data, *_: called.append(user_data))
    with applications_own:
        for number in range(8):
            waiting.run_async([ONE], timeout_ms=LONG_MS, user_data=number + 1)
        other.run_async([ONE], timeout_ms=LONG_MS, user_data="other")
        other.close()
        assert called == ["other"]
    waiting.close()
    assert sorted(called[1:]) == [1, 2, 3, 4, 5, 6, 7, 8]


class _Alarm(Exception):
    pass


@pytest.mark.parametrize("error", [_Alarm, KeyboardInterrupt, TimeoutError])
def test_an_interrupted_run_writes_nothing(
    closing: ExitStack, start_daemon: StartDaemon, tmp_path: Any, error: type[BaseException]
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    device = closing.enter_context(Runtime([daemon.address])).device()
    executor = executor_of(closing, device, identity_model(elements=1))
    x, y = (closing.enter_context(Tensor(device, TensorDesc(DataType.FLOAT32, (1,)))) for _ in range(2))
    x.numpy()[:] = 5
    with raised_when(lambda: "run started with 5" in daemon.log(), error), pytest.raises(error):
        executor.run_sync([x], [y])
    y.numpy()[:] = -8
    gate.write_bytes(b"")
    with Observer(daemon.address) as observer:
        observer.wait_for(lambda state: not state.running)
    assert y.numpy() == [-8]


def test_an_allocation_given_up_when_its_answer_had_been_sent(closing: ExitStack, start_daemon: StartDaemon) -> None:
    """The daemon doesn't keep memory that nobody can name."""
    daemon, size_bytes = start_daemon(), 1 << 20
    has_answered, given_up = threading.Event(), threading.Event()
    relay = closing.enter_context(Relay(daemon.address))
    observer = closing.enter_context(Observer(daemon.address))
    device = closing.enter_context(Runtime([relay.address])).device()

    def answered_late(reply: bytes) -> bytes:
        observer.wait_for(lambda state: state.held_bytes >= size_bytes)
        has_answered.set()
        assert given_up.wait(20)
        return reply

    relay.forgers["AllocateBuffer"] = answered_late
    with raised_when(has_answered.is_set, _Alarm), pytest.raises(_Alarm):
        ResidentTensor(device, TensorDesc(DataType.FLOAT32, (size_bytes // 4,)))
    given_up.set()
    observer.wait_for(lambda state: state.held_bytes < size_bytes)


def test_replies_that_have_come_are_not_kept(start_daemon: StartDaemon) -> None:
    """When connections break on which nothing is under way."""
    daemon = start_daemon()
    elements = 1 << 18
    model = Model()
    x = model.input((elements,))
    y = model.apply(OperationType.RELU, x)
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    with Proxy(daemon.address) as proxy, Observer(daemon.address) as observer, ExitStack() as closing:
        runtime = closing.enter_context(Runtime([proxy.address], settings=Settings(share_memory=False)))
        executor = executor_of(closing, runtime.device(), model)
        for _ in range(3):
            executor.run_sync([np.zeros(elements, np.float32)])
            proxy.cut()
            runtime.device().status()  # Waits until the daemon is found again.
        observer.wait_for(lambda state: state.held_bytes < elements)
