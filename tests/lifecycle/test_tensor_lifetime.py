"""Runs with tensors that fail, and how long tensors live."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blocked_call import BlockedCall
from conftest import MakeTensor, StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from observer import Observer
from recorder import Recorder
from shared_memory import held, wait_until_held
from tensor_runs import LONG_MS, compiled, refused
from waiting import until

from nnrt_client import (
    Compilation,
    DataType,
    Device,
    Executor,
    InvalidParameter,
    NnrtError,
    NullPointer,
    OperationFailed,
    OperationForbidden,
    Runtime,
    Tensor,
    TensorDesc,
    TimedOut,
    UnavailableDevice,
)

ONE = np.ones(1, np.float32)


pytestmark = pytest.mark.usefixtures("gives_all_memory_back")


@pytest.fixture(scope="module")
def slow_daemon() -> Iterator[DaemonProcess]:
    """One run at a time, which ends only by cancellation or by its deadline."""
    daemon = DaemonProcess("--backend", "slow")
    yield daemon
    daemon.kill()


@pytest.fixture
def cached(closing: ExitStack, cached_daemon: DaemonProcess) -> tuple[Device, Executor]:
    return compiled(closing, cached_daemon.address)


@pytest.fixture
def slow(closing: ExitStack, slow_daemon: DaemonProcess) -> tuple[Device, Executor]:
    return compiled(closing, slow_daemon.address)


# ---- failure


def test_a_dead_executor(closing: ExitStack, start_daemon: StartDaemon, tensor: MakeTensor) -> None:
    """Says UnavailableDevice before it looks at a tensor; tensors go on with a new one."""
    daemon = start_daemon("--backend", "cached", listen="127.0.0.1:0")
    device, executor = compiled(closing, daemon.address)
    source, target = tensor(device, [4], fill=3), tensor(device, [4])
    executor.run_sync([source], [target])
    daemon.kill()
    until(lambda: not device.is_connected, lambda: device)
    assert refused(executor, [None], [None]) is UnavailableDevice
    assert refused(executor, [None], [None, None]) is InvalidParameter
    start_daemon("--backend", "cached", listen=daemon.address)
    compilation = closing.enter_context(Compilation(identity_model(), device))
    compilation.build()
    again = closing.enter_context(Executor(compilation))
    source.numpy()[:] = 8
    again.run_sync([source], [target])
    np.testing.assert_array_equal(target.numpy(), [8, 8, 8, 8])
    assert refused(executor, [source], [target]) is UnavailableDevice


@pytest.mark.parametrize("died", [True, False])
def test_service_death_with_tensors(
    closing: ExitStack, start_daemon: StartDaemon, tensor: MakeTensor, died: bool
) -> None:
    """One on_service_died for each run in flight, or else on_run_done with the outputs; nothing is written."""
    daemon = start_daemon("--backend", "slow")
    device, executor = compiled(closing, daemon.address)
    recorder = Recorder()
    recorder.watch(executor, died=died)
    targets = [tensor(device, [-1], 16, fill=9) for _ in range(5)]
    for run, target in enumerate(targets):
        executor.run_async([ONE], [target], timeout_ms=LONG_MS, user_data=run)
    blocked = BlockedCall(lambda: executor.run_sync([ONE], [targets[0]]))
    blocked.require_blocked()
    daemon.kill()
    assert type(blocked.wait().error) is UnavailableDevice
    recorder.wait(5)
    if died:
        assert recorder.died == dict.fromkeys(range(5), 1)
        assert not recorder.done
    else:
        for run, target in enumerate(targets):
            ((outputs, error),) = recorder.done[run]
            assert outputs == [target]
            assert type(error) is UnavailableDevice
    for target in targets:
        assert bytes(target.data_buffer) == np.full(4, 9, np.float32).tobytes()


def test_a_late_result_is_not_written(
    closing: ExitStack, start_daemon: StartDaemon, tmp_path: Path, tensor: MakeTensor
) -> None:
    """The device finishes a run after its time: neither memory nor desc nor output_shape change."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    observer = closing.enter_context(Observer(daemon.address))
    device, executor = compiled(closing, daemon.address)
    target = tensor(device, [-1], 16, fill=9)
    recorder = Recorder()
    recorder.watch(executor).run_async([ONE], [target], timeout_ms=100, user_data="late")
    recorder.wait(1)
    ((outputs, error),) = recorder.done["late"]
    assert outputs == [target]
    assert type(error) is TimedOut
    observer.wait_for(lambda state: state.running == 1)
    gate.write_bytes(b"")
    observer.wait_for(lambda state: state.running == 0)
    after = BlockedCall(lambda: executor.run_sync([ONE * 2]))
    gate.write_bytes(b"")
    after.wait()
    assert bytes(target.data_buffer) == np.full(4, 9, np.float32).tobytes()
    assert target.desc.shape == (-1,)
    assert recorder.count == 1


def test_failed_runs_write_nothing(slow: tuple[Device, Executor], tensor: MakeTensor) -> None:
    """Timed out, cancelled or closed: the outputs are as they were, and are passed back."""
    device, executor = slow
    targets = [tensor(device, [-1], 16, fill=9) for _ in range(3)]
    with pytest.raises(TimedOut):
        executor.run_sync([ONE], [targets[0]], timeout_ms=50)
    assert executor.submit([ONE], [targets[1]]).cancel()
    recorder = Recorder()
    recorder.watch(executor).run_async([ONE], [targets[2]], timeout_ms=LONG_MS, user_data="closed")
    executor.close()
    ((outputs, error),) = recorder.done["closed"]
    assert outputs == [targets[2]]
    assert type(error) is OperationFailed
    for target in targets:
        assert bytes(target.data_buffer) == np.full(4, 9, np.float32).tobytes()
        assert target.desc.shape == (-1,)


@pytest.mark.parametrize(
    ("timeout_ms", "user_data", "error"),
    [
        (None, "run", InvalidParameter),
        (0, "run", InvalidParameter),
        (1, None, InvalidParameter),
        (1, "run", OperationForbidden),
    ],
)
def test_asynchronous_runs_that_never_begin(
    cached: tuple[Device, Executor], tensor: MakeTensor, timeout_ms: Any, user_data: Any, error: type[NnrtError]
) -> None:
    """They hold no tensor; the fixture looks. What is wrong with the tensors is said first."""
    device, executor = cached
    one = tensor(device, [1])
    with pytest.raises(error):
        executor.run_async([one], [one], timeout_ms=timeout_ms, user_data=user_data)
    with pytest.raises(NullPointer):
        executor.run_async([None], [one], timeout_ms=timeout_ms, user_data=user_data)  # type: ignore[list-item]


def test_an_interrupted_run_writes_nothing(
    slow: tuple[Device, Executor], slow_daemon: DaemonProcess, closing: ExitStack, tensor: MakeTensor
) -> None:
    """Ctrl-C while run_sync waits ends the run, on the device too."""
    device, executor = slow
    observer = closing.enter_context(Observer(slow_daemon.address))
    target = tensor(device, [1], fill=9)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        observer.wait_for(lambda state: state.running == 1)
        signal.pthread_kill(main, signal.SIGINT)

    with ThreadPoolExecutor(1) as pool:
        interrupted = pool.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            executor.run_sync([ONE], [target])
        interrupted.result(20)
    observer.wait_for(lambda state: state.running == 0)
    assert target.numpy() == 9


# ---- lifetime


def test_tensors_closed_while_a_run_is_in_flight(closing: ExitStack, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """They live until the callback has returned: it finds the result in them. Then their memory goes."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    device, executor = compiled(closing, daemon.address)
    before = held()
    source, target = (Tensor(device, TensorDesc(DataType.FLOAT32, [4])) for _ in range(2))
    source.numpy()[:] = [1, 2, 3, 4]
    seen: Future[Any] = Future()
    executor.set_on_run_done(lambda user_data, outputs, error: seen.set_result(outputs[0].numpy().copy()))
    executor.run_async([source], [target], timeout_ms=LONG_MS, user_data="run")
    source.close()
    target.close()
    assert refused(executor, [ONE], [target]) is InvalidParameter
    gate.write_bytes(b"")
    np.testing.assert_array_equal(seen.result(20), [1, 2, 3, 4])
    executor.close()
    wait_until_held(before)
    with pytest.raises(InvalidParameter, match="closed"):
        target.numpy()


def test_many_overlapping_runs(closing: ExitStack, cached_daemon: DaemonProcess) -> None:
    """Eight threads, each with tensors of its own, by all ways to run: everybody gets their own results."""
    device, executor = compiled(closing, cached_daemon.address)
    results: dict[int, threading.Event] = {}
    executor.set_on_run_done(lambda user_data, outputs, error: results[user_data].set() if error is None else None)
    desc = TensorDesc(DataType.FLOAT32, [-1])

    def run(caller: int) -> None:
        rng = np.random.default_rng(caller)
        with Tensor.with_size(device, desc, 256) as source, Tensor.with_size(device, desc, 256) as target:
            for turn in range(40):
                values = rng.standard_normal(int(rng.integers(1, 65)), np.float32)
                source.desc.shape = [values.size]
                source.numpy()[:] = values
                if turn % 3 == 0:
                    executor.run_sync([source], [target])
                elif turn % 3 == 1:
                    executor.submit([source], [target]).result(20)
                else:
                    results[caller] = threading.Event()
                    executor.run_async([source], [target], timeout_ms=LONG_MS, user_data=caller)
                    assert results[caller].wait(20)
                assert target.desc.shape == (values.size,)
                np.testing.assert_array_equal(target.numpy(), values)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))


def test_closing_races_with_runs(cached: tuple[Device, Executor]) -> None:
    """A tensor is closed before a run takes it, or after the run."""
    device, executor = cached
    with ThreadPoolExecutor(1) as closer:
        for _ in range(150):
            one = Tensor(device, TensorDesc(DataType.FLOAT32, [4]))
            closing = closer.submit(one.close)
            try:
                executor.run_sync([one], [one])
            except InvalidParameter as error:
                assert "the tensor is closed" in error.message
            closing.result(20)


def test_memory_does_not_grow(closing: ExitStack, runtime: Runtime) -> None:
    """Runs of 4 MB keep none of it, whether the garbage collector has looked or not."""
    device = runtime.device()
    compilation = closing.enter_context(Compilation(identity_model(elements=1 << 20), device))
    compilation.build()
    executor = closing.enter_context(Executor(compilation))

    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with Tensor(device, TensorDesc(DataType.FLOAT32, [1 << 20])) as one:
        for _ in range(20):
            executor.run_sync([one], [one])
        before = resident_bytes()
        for _ in range(60):
            executor.run_sync([one], [one])
        assert resident_bytes() - before < 40 << 20
