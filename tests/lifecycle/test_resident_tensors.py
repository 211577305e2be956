"""Tensors that stay on the device: chains, states, repeated inputs, and how they end."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from observer import Observer
from recorder import Recorder
from tensor_runs import LONG_MS, refused
from waiting import until

from nnrt_client import (
    Compilation,
    DataType,
    Device,
    DynamicShape,
    Executor,
    InvalidParameter,
    Model,
    OperationFailed,
    OperationType,
    OutOfMemory,
    OutputTooSmall,
    ResidentTensor,
    Runtime,
    Settings,
    Tensor,
    TensorDesc,
    UnavailableDevice,
)

X = np.arange(3, dtype=np.float32)
FLOAT32 = DataType.FLOAT32


@pytest.fixture(scope="module", params=["reference over TCP", "onnxruntime over a Unix socket"])
def daemon(request: pytest.FixtureRequest) -> Iterator[DaemonProcess]:
    backend, _, _, *is_unix = request.param.split()
    with tempfile.TemporaryDirectory() as folder:
        listen = f"unix:{folder}/nnrt" if len(is_unix) > 1 else "127.0.0.1:0"
        daemon = DaemonProcess("--backend", backend, listen=listen)
        yield daemon
        daemon.kill()


@pytest.fixture
def device(daemon: DaemonProcess, closing: ExitStack) -> Device:
    return closing.enter_context(Runtime([daemon.address])).device()


def executor(closing: ExitStack, device: Device, model: Model | None = None) -> Executor:
    compilation = closing.enter_context(Compilation(model or identity_model(), device))
    compilation.build()
    return closing.enter_context(Executor(compilation))


def binary(operation: OperationType) -> Model:
    """Of two vectors of any length."""
    model = Model()
    a, b = model.input((-1,), name="a"), model.input((-1,), name="b")
    model.specify_inputs_and_outputs([a, b], [model.apply(operation, a, b)])
    model.finish()
    return model


def times(number: float) -> Model:
    model = Model()
    x = model.input((3,), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.MUL, x, np.full(1, number, np.float32))])
    model.finish()
    return model


def resident(
    closing: ExitStack, device: Device, shape: tuple[int, ...] = (3,), capacity_bytes: int | None = None
) -> ResidentTensor:
    return closing.enter_context(ResidentTensor(device, TensorDesc(FLOAT32, shape), capacity_bytes))


# ---- uses


def test_a_chain_of_five_models(closing: ExitStack, device: Device) -> None:
    """By every way to run."""
    chain = [executor(closing, device, times(number)) for number in (2, 3, 5, 7, 11)]
    between = [resident(closing, device) for _ in range(5)]
    recorder = Recorder()
    recorder.watch(chain[4])
    assert chain[0].run_sync([X], [between[0]]) == [between[0]]
    chain[1].submit([between[0]], [between[1]]).result()
    chain[2].run_sync({"x": between[1]}, [between[2]])
    (fetched,) = chain[3].run_sync([between[2]])
    np.testing.assert_array_equal(fetched, X * 210)
    chain[3].run_sync([between[2]], [between[3]])
    chain[4].run_async([between[3]], [between[4]], timeout_ms=LONG_MS, user_data="last")
    recorder.wait(1)
    assert recorder.outputs("last") == [between[4]]
    np.testing.assert_array_equal(between[4].numpy(), X * 2310)
    np.testing.assert_array_equal(between[1].numpy(), X * 6)


def test_a_state_is_replaced_in_place(closing: ExitStack, device: Device) -> None:
    """Input and output are one tensor; the other input is an array, sent each time."""
    add, state = executor(closing, device, binary(OperationType.ADD)), resident(closing, device)
    state.write(X)
    for number in range(20):
        add.run_sync([state, np.full(3, number, np.float32)], [state])
    np.testing.assert_array_equal(state.numpy(), X + 190)


@pytest.mark.parametrize("share_memory", [True, False])
def test_what_is_asked_for(closing: ExitStack, daemon: DaemonProcess, share_memory: bool) -> None:
    """It is mapped where memory can be shared, and comes over gRPC elsewhere; what one has it keeps."""
    runtime = closing.enter_context(Runtime([daemon.address], Settings(share_memory=share_memory)))
    tensor = closing.enter_context(ResidentTensor(runtime.device(), TensorDesc(FLOAT32, [3])))
    run = executor(closing, runtime.device(), identity_model(elements=3))
    for number in range(3):
        tensor.write(X + number)
        before = tensor.numpy()
        run.run_sync([tensor], [tensor])
        tensor.write(-X)
        assert (before == X + number).all()
        assert before.flags.writeable
    assert ("nnrt-buffer" in Path("/proc/self/maps").read_text()) is share_memory


def test_an_input_that_is_used_again(closing: ExitStack, device: Device) -> None:
    """Twice in one run, too; beside tensors of this process."""
    mul, x = executor(closing, device, binary(OperationType.MUL)), resident(closing, device)
    x.write(X)
    y = closing.enter_context(Tensor(device, TensorDesc(FLOAT32, (3,))))
    for _ in range(3):
        mul.run_sync([x, x], [y])
        np.testing.assert_array_equal(y.numpy(), X * X)
        mul.run_sync([y, x], [y])
        np.testing.assert_array_equal(y.numpy(), X * X * X)


def test_outputs_some_of_which_stay(closing: ExitStack, device: Device) -> None:
    model = Model()
    x = model.input((-1,), name="x")
    outputs = [model.apply(OperationType.ABS, x), model.apply(OperationType.NEG, x)]
    model.specify_inputs_and_outputs([x], outputs)
    model.finish()
    both = executor(closing, device, model)
    stays = resident(closing, device)
    comes = closing.enter_context(Tensor(device, TensorDesc(FLOAT32, (3,))))
    result = both.run_sync([-X], [stays, comes])
    np.testing.assert_array_equal(stays.numpy(), X)
    np.testing.assert_array_equal(comes.numpy(), X)
    assert result.shapes[0] == (3,)


def test_dimensions_that_are_known_when_the_model_runs(closing: ExitStack, device: Device) -> None:
    identity, y = executor(closing, device), resident(closing, device, (-1,), 20)
    z = resident(closing, device, (-1,), 16)
    with pytest.raises(OperationFailed, match="nothing has been written"):
        y.numpy()
    for count in (3, 5, 1):
        given = np.arange(count, dtype=np.float32)
        identity.run_sync([given], [y])
        assert (y.desc.shape, y.capacity_bytes) == ((count,), 20)
        np.testing.assert_array_equal(y.numpy(), given)
    y.write(np.arange(5, dtype=np.float32))
    with pytest.raises(OutputTooSmall, match=r"its memory has 16 bytes; the result \[5\] has 20") as refusal:
        identity.run_sync([y], [z])
    assert refusal.value.shapes == ((5,),)
    with pytest.raises(OperationFailed, match="the run that was to do so failed"):
        z.numpy()
    identity.run_sync([X], [z])
    np.testing.assert_array_equal(z.numpy(), X)


def test_more_than_fits_a_message(closing: ExitStack, start_daemon: StartDaemon) -> None:
    """They are sent and fetched in pieces, and don't count as inputs that travel."""
    daemon = start_daemon("--message-bytes", str(1 << 20))
    device = closing.enter_context(Runtime([daemon.address])).device()
    x, y = (resident(closing, device, (1_000_000,)) for _ in range(2))
    elements = np.arange(1_000_000, dtype=np.float32)
    x.write(elements)
    executor(closing, device).run_sync([x], [y])
    np.testing.assert_array_equal(y.numpy(), elements)


# ---- refusals


def test_what_is_refused(closing: ExitStack, device: Device) -> None:
    identity, x = executor(closing, device), resident(closing, device)
    assert refused(identity, [x], None) is OperationFailed, "nothing has been written"
    x.write(X)
    doubles = closing.enter_context(ResidentTensor(device, TensorDesc(DataType.FLOAT64, (3,))))
    assert refused(identity, [X], [doubles]) is InvalidParameter
    small = resident(closing, device, (2,))
    small.write(X[:2])
    assert refused(executor(closing, device, times(2)), [X], [small]) is InvalidParameter
    assert refused(executor(closing, device, times(2)), [small], None) is InvalidParameter
    for given in (X.astype(np.float64), X[:2], X[None]):
        with pytest.raises(InvalidParameter, match="the tensor takes FLOAT32"):
            x.write(given)
    with pytest.raises(DynamicShape):
        ResidentTensor(device, TensorDesc(FLOAT32, (-1,)))
    with pytest.raises(InvalidParameter, match="the capacity is 8 bytes"):
        ResidentTensor(device, TensorDesc(FLOAT32, (3,)), 8)
    with pytest.raises(InvalidParameter, match="it has 12 bytes; the tensor has room for 8"):
        resident(closing, device, (-1,), 8).write(X)
    x.close()
    x.close()
    for use in (x.numpy, lambda: x.write(X)):
        with pytest.raises(InvalidParameter, match="the tensor is closed"):
            use()
    assert refused(identity, [x], None) is InvalidParameter


def test_tensors_of_another_device(closing: ExitStack, device: Device, shared_daemon: DaemonProcess) -> None:
    other = closing.enter_context(Runtime([shared_daemon.address])).device()
    identity, theirs = executor(closing, device), resident(closing, other)
    theirs.write(X)
    assert refused(identity, [theirs], None) is InvalidParameter
    assert refused(identity, [X], [theirs]) is InvalidParameter
    np.testing.assert_array_equal(theirs.numpy(), X)


# ---- ends


def test_memory_is_counted_and_given_back(closing: ExitStack, start_daemon: StartDaemon) -> None:
    """When a tensor is closed, and with the session."""
    daemon = start_daemon("--session-bytes", str(1 << 20))
    with Observer(daemon.address) as observer, Runtime([daemon.address]) as runtime:
        device = runtime.device()
        for _ in range(3):
            with ResidentTensor(device, TensorDesc(FLOAT32, (200_000,))) as half:
                observer.wait_for(lambda state: state.held_bytes >= 800_000)
                with pytest.raises(OutOfMemory, match="--session-bytes"):
                    ResidentTensor(device, half.desc)
        left = ResidentTensor(device, TensorDesc(FLOAT32, (200_000,)))
        observer.wait_for(lambda state: state.held_bytes >= 800_000)
        runtime.close()
        observer.wait_for(lambda state: state.held_bytes < 800_000)
        left.close()


def test_a_tensor_closed_under_a_run(closing: ExitStack, start_daemon: StartDaemon, tmp_path: Path) -> None:
    """It lives until the run has ended."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    device = closing.enter_context(Runtime([daemon.address])).device()
    identity = executor(closing, device)
    observer = closing.enter_context(Observer(daemon.address))
    # More than the daemon keeps of the run.
    desc, size_bytes = TensorDesc(FLOAT32, (3,)), 1 << 16
    before_bytes = observer.state().held_bytes
    with ResidentTensor(device, desc, size_bytes) as x, ResidentTensor(device, desc, size_bytes) as y:
        x.write(X)
        run = identity.submit([x], [y])
        observer.wait_for(lambda state: state.running == 1)
    observer.wait_for(lambda state: state.held_bytes >= before_bytes + 2 * size_bytes)
    gate.write_bytes(b"")
    assert run.result(20) == [y]
    observer.wait_for(lambda state: state.held_bytes < before_bytes + size_bytes)


def test_death_of_the_daemon(closing: ExitStack, start_daemon: StartDaemon) -> None:
    """The elements are gone with it, also where another daemon has come in its place."""
    daemon = start_daemon()
    device = closing.enter_context(Runtime([daemon.address])).device()
    x = resident(closing, device)
    x.write(X)
    identity = executor(closing, device)
    daemon.kill()
    until(lambda: not device.is_connected, lambda: "its death is not noticed")
    for use in (x.numpy, lambda: x.write(X), lambda: identity.run_sync([x]), lambda: resident(closing, device)):
        with pytest.raises(UnavailableDevice):
            use()
    start_daemon(listen=daemon.address)
    again = executor(closing, device)
    assert refused(again, [x], None) is UnavailableDevice
    assert refused(again, [X], [x]) is UnavailableDevice
    (y,) = again.run_sync([X])
    np.testing.assert_array_equal(y, X)
