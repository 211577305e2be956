"""Runs whose tensors are too large for a message behave like small ones, also when something fails.

A message of these daemons holds 64 KiB, so that small tensors count as large, and they don't share memory.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import MakeTensor, StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from observer import Observer
from proxy import Proxy
from tensor_runs import LONG_MS, compiled
from waiting import until

from nnrt_client import (
    Compilation,
    ConnectionFailed,
    Device,
    Executor,
    Model,
    OperationType,
    OutOfMemory,
    OutputTooSmall,
    Runtime,
    Settings,
    TimedOut,
    UnavailableDevice,
)
from nnrt_client.session.device import session_of
from nnrt_hdi.v2 import prepared_model_pb2

MESSAGE = ("--message-bytes", "65536", "--no-shared-memory")
# Number of float32 elements that fill a message.
FULL = 65536 // 4
LARGE = 1 << 20
DEADLINE_S = 20.0
PATIENT = Settings(reconnect_timeout_s=DEADLINE_S)
rng = np.random.default_rng(0)


@pytest.fixture(scope="module")
def daemon() -> Iterator[DaemonProcess]:
    daemon = DaemonProcess(*MESSAGE)
    yield daemon
    daemon.kill()


@pytest.fixture(scope="module", params=["reference", "onnxruntime"])
def remote_daemon(request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    daemon = DaemonProcess("--backend", request.param, "--no-shared-memory")
    yield daemon
    daemon.kill()


@pytest.fixture
def identity(closing: ExitStack, daemon: DaemonProcess) -> tuple[Device, Executor]:
    return compiled(closing, daemon.address)


def random(count: int) -> Any:
    return rng.random(count, np.float32)


@pytest.mark.parametrize(
    "count", [0, 1, FULL - 1, FULL, FULL + 1, 2 * FULL, 2 * FULL + 1, (32 << 10) - 1, (32 << 10) + 1, 300_001]
)
def test_sizes_around_the_thresholds(identity: tuple[Device, Executor], tensor: MakeTensor, count: int) -> None:
    """With arrays and with Tensors."""
    device, executor = identity
    x = random(count)
    (result,) = executor.run_sync([x])
    np.testing.assert_array_equal(result, x)
    assert not result.flags.writeable and result.flags.aligned
    if count:
        source, target = tensor(device, [count]), tensor(device, [-1], 4 * count + 8, fill=9)
        source.numpy()[:] = x
        executor.run_sync([source], [target])
        np.testing.assert_array_equal(target.numpy(), x)
        assert target.desc.shape == (count,)
        assert bytes(target.data_buffer[-8:]) == np.full(2, 9, np.float32).tobytes()


@pytest.mark.parametrize("count", [(1 << 15) - 1, 1 << 15, 1 << 18, (1 << 18) + 1, 5 << 18])
def test_sizes_around_those_of_every_daemon(closing: ExitStack, remote_daemon: DaemonProcess, count: int) -> None:
    """With the default message size."""
    _, executor = compiled(closing, remote_daemon.address)
    x = random(count)
    np.testing.assert_array_equal(executor.run_sync([x])[0], x)


@pytest.mark.parametrize("count", [FULL, 40_000])
def test_inputs_that_are_not_contiguous(identity: tuple[Device, Executor], count: int) -> None:
    _, executor = identity
    for x in (random(2 * count)[::2], random(count)[::-1], np.broadcast_to(np.float32(3), (count,))):
        np.testing.assert_array_equal(executor.run_sync([x])[0], x)


def test_many_inputs_and_outputs(closing: ExitStack, daemon: DaemonProcess) -> None:
    """Of all sizes and in any order, some within the message and some in chunks."""
    model = Model()
    sizes = [1, 20_000, 7, 50_000, 0, 100, 8000, 8000, 17_000]
    inputs = [model.input((-1,), name=f"x{at}") for at in range(len(sizes))]
    outputs = [model.apply(OperationType.ADD, x, np.full(1, at, np.float32)) for at, x in enumerate(inputs)]
    model.specify_inputs_and_outputs(inputs, outputs[::-1])
    model.finish()
    _, executor = compiled(closing, daemon.address, model)
    arrays = [random(size) for size in sizes]
    for _ in range(3):
        for at, result in enumerate(reversed(executor.run_sync(arrays))):
            np.testing.assert_array_equal(result, arrays[at] + np.float32(at))


def test_several_at_a_time(identity: tuple[Device, Executor]) -> None:
    """Each run gets its own result, although large and small runs share streams and reused memory."""
    _, executor = identity
    arrays = [np.full(count, at, np.float32) for at, count in enumerate([10, 60_000, 60_000, 3, 90_000, 60_000] * 8)]
    for array, run in [(array, executor.submit([array])) for array in arrays]:
        np.testing.assert_array_equal(run.result(DEADLINE_S)[0], array)


def test_outputs_that_are_inputs(closing: ExitStack, start_daemon: StartDaemon) -> None:
    """The backend returns its input array: the memory isn't reused before the output has been sent."""
    daemon = start_daemon("--backend", "cached", *MESSAGE)
    model = Model()
    x = model.input((-1,))
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ABS, x)])
    model.finish()
    _, executor = compiled(closing, daemon.address, model)
    arrays = [np.full(60_000, at, np.float32) for at in range(30)]
    for array, run in [(array, executor.submit([array])) for array in arrays]:
        np.testing.assert_array_equal(run.result(DEADLINE_S)[0], array)


def test_a_result_too_large_for_its_tensor(identity: tuple[Device, Executor], tensor: MakeTensor) -> None:
    """Nothing is written, the executor reports the needed size, and the stream stays usable."""
    device, executor = identity
    target = tensor(device, [-1], 4 * 99_999, fill=9)
    before = bytes(target.data_buffer)
    with pytest.raises(OutputTooSmall, match=r"its memory has 399996 bytes; the result \[100000\] has 4") as refusal:
        executor.run_sync([random(100_000)], [target])
    assert bytes(target.data_buffer) == before
    assert refusal.value.shapes == ((100_000,),)
    x = random(99_999)
    executor.run_sync([x], [target])
    np.testing.assert_array_equal(target.numpy(), x)


def test_more_than_the_session_may_hold(closing: ExitStack, start_daemon: StartDaemon) -> None:
    """The client refuses the run before sending it; the stream takes the next run, and the memory is free again."""
    daemon = start_daemon(*MESSAGE, "--session-bytes", str(4 << 20))
    _, executor = compiled(closing, daemon.address)
    x = random(LARGE // 4)
    for _ in range(3):
        with pytest.raises(OutOfMemory, match="this session's limit"):
            executor.run_sync([random(2 * LARGE)])
        np.testing.assert_array_equal(executor.run_sync([x])[0], x)


def test_models_that_are_gone(identity: tuple[Device, Executor], daemon: DaemonProcess) -> None:
    """The daemon refuses the run while the client still sends chunks."""
    device, executor = identity
    connection = session_of(device)
    with Compilation(identity_model(), device) as compilation:
        compilation.build()
        with Executor(compilation) as gone:
            release = prepared_model_pb2.ReleaseRequest(model_id=2)  # The session's second run.
            connection.call("PreparedModel.Release", release, DEADLINE_S)
            for _ in range(5):
                with pytest.raises(UnavailableDevice, match="no model 2"):
                    gone.run_sync([random(LARGE)])
    x = random(LARGE)
    np.testing.assert_array_equal(executor.run_sync([x])[0], x)
    assert connection.is_alive


def test_a_timeout_while_chunks_are_on_their_way(closing: ExitStack, start_daemon: StartDaemon) -> None:
    """The timeout ends the run on both sides; other runs go on."""
    daemon = start_daemon(*MESSAGE)
    with Proxy(daemon.address) as proxy, Observer(daemon.address) as observer:
        _, executor = compiled(closing, proxy.address)
        x = random(2 * LARGE)
        np.testing.assert_array_equal(executor.run_sync([ONE])[0], ONE)
        proxy.swallow(new=True)
        with pytest.raises(TimedOut):
            executor.run_sync([x], timeout_ms=100)
        proxy.flow()
        np.testing.assert_array_equal(executor.run_sync([x], timeout_ms=LONG_MS)[0], x)
        executor.close()
        observer.wait_for(lambda state: not state.running)


ONE = np.ones(1, np.float32)


def test_cut_while_inputs_come(start_daemon: StartDaemon) -> None:
    """The run never began, so the client sends it again on the new connection."""
    daemon = start_daemon(*MESSAGE, "--lease-s", "60")
    x = random(2 * LARGE)
    with Proxy(daemon.address) as proxy, ExitStack() as closing, Observer(daemon.address) as observer:
        device = closing.enter_context(Runtime([proxy.address], PATIENT)).device()
        compilation = closing.enter_context(Compilation(identity_model(), device))
        compilation.build()
        executor = closing.enter_context(Executor(compilation))
        for _ in range(3):
            observer.wait_for(lambda state: state.held_bytes < x.nbytes)
            proxy.hold_after(x.nbytes // 4)
            run = executor.submit([x])
            observer.wait_for(lambda state: state.held_bytes >= x.nbytes)
            proxy.cut()
            with pytest.raises(ConnectionFailed, match="run it again"):
                run.result(DEADLINE_S)
        np.testing.assert_array_equal(executor.run_sync([x])[0], x)
        closing.close()
        observer.wait_until_empty()


@pytest.mark.parametrize("into", ["arrays", "tensors"])
def test_cut_while_outputs_come(start_daemon: StartDaemon, tmp_path: Path, tensor: MakeTensor, into: str) -> None:
    """The client fetches the outputs again."""
    daemon = start_daemon(*MESSAGE, "--lease-s", "60")
    x = random(2 * LARGE)
    with Proxy(daemon.address) as proxy, ExitStack() as closing:
        device = closing.enter_context(Runtime([proxy.address], PATIENT)).device()
        compilation = closing.enter_context(Compilation(identity_model(), device))
        compilation.build()
        executor = closing.enter_context(Executor(compilation))
        target = tensor(device, [x.size])
        for attempt in range(3):
            received, sent = proxy.received_bytes, proxy.sent_bytes
            run: Any = executor.submit([x]) if into == "arrays" else executor.submit([x], [target])
            wanted = received + x.nbytes * (attempt + 1) // 5
            until(lambda wanted=wanted: proxy.received_bytes >= wanted)  # type: ignore[misc]
            assert proxy.sent_bytes >= sent + x.nbytes
            proxy.cut()
            (result,) = run.result(DEADLINE_S)
            np.testing.assert_array_equal(result if into == "arrays" else target.numpy(), x)
            target.numpy()[:] = 0


@pytest.mark.parametrize("way", ["inputs", "outputs"])
def test_killed_in_the_middle(start_daemon: StartDaemon, tensor: MakeTensor, way: str) -> None:
    """The daemon is dead, and the run ends."""
    daemon = start_daemon(*MESSAGE)
    x = random(2 * LARGE)
    with Proxy(daemon.address) as proxy, ExitStack() as closing:
        device, executor = compiled(closing, proxy.address)
        target = tensor(device, [x.size])
        runs: list[Any] = [executor.submit([x]), executor.submit([x], [target])]
        until(lambda: (proxy.sent_bytes if way == "inputs" else proxy.received_bytes) >= x.nbytes // 4)
        daemon.kill()
        proxy.refuse()
        for run in runs:
            with pytest.raises(UnavailableDevice):
                run.result(DEADLINE_S)


@pytest.mark.slow
def test_closed_in_the_middle(daemon: DaemonProcess, closing: ExitStack, tensor: MakeTensor) -> None:
    """Nothing is written into tensors whose run has ended."""
    proxy = closing.enter_context(Proxy(daemon.address))
    device, executor = compiled(closing, proxy.address)
    x = random(4 * LARGE)
    target = tensor(device, [x.size])
    with ThreadPoolExecutor(1) as pool:
        for sent_part, received_part in ((0.0, 0.0), (0.5, 0.0), (1.0, 0.1), (1.0, 0.6)):
            sent = proxy.sent_bytes + sent_part * x.nbytes
            received = proxy.received_bytes + received_part * x.nbytes
            run = executor.submit([x], [target])
            until(lambda sent=sent, received=received: proxy.sent_bytes >= sent and proxy.received_bytes >= received)  # type: ignore[misc]
            if run.cancel():
                after = target.numpy().copy()
                pool.submit(executor.run_sync, [ONE]).result(DEADLINE_S)
                np.testing.assert_array_equal(target.numpy(), after)
            else:
                run.result(DEADLINE_S)
                np.testing.assert_array_equal(target.numpy(), x)
            target.numpy()[:] = 0
