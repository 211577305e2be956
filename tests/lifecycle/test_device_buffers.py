"""A device's own memory: what runs leave there, and who copies it."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gate import Gate
from networks import identity_model
from observer import Observer
from opaque_backend import ARRAYS_ONLY, STARTED
from opaque_device import OpaqueDevice
from waiting import until

from nnrt_client import (
    Batching,
    Compilation,
    DataType,
    Device,
    Executor,
    Model,
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
from nnrt_client.session.device import session_of
from nnrt_client.session.release import release_buffer
from nnrt_device_service.host.exit import ExitCode

X = np.arange(3, dtype=np.float32)
FLOAT32 = DataType.FLOAT32
# Extension configs of models.
KINDS: Sequence[Sequence[str]] = ((), (ARRAYS_ONLY,), (STARTED,), (ARRAYS_ONLY, STARTED))
StartOpaque = Callable[..., OpaqueDevice]


@pytest.fixture
def start_opaque(tmp_path: Path) -> Iterator[StartOpaque]:
    with ExitStack() as ending:

        def start(*flags: str, limit_bytes: int = 1 << 30) -> OpaqueDevice:
            started = OpaqueDevice(tmp_path, *flags, limit_bytes=limit_bytes)
            ending.callback(started.kill)
            return started

        yield start


@pytest.fixture(scope="module")
def shared_opaque(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpaqueDevice]:
    shared = OpaqueDevice(tmp_path_factory.mktemp("opaque"))
    yield shared
    shared.kill()


@pytest.fixture
def opaque(shared_opaque: OpaqueDevice) -> OpaqueDevice:
    """Shared device, whose journal begins anew. The previous tests' memory may still be being freed."""
    shared_opaque.mark()
    return shared_opaque


@pytest.fixture(params=[True, False], ids=["local socket", "gRPC"])
def device(request: pytest.FixtureRequest, closing: ExitStack, opaque: OpaqueDevice) -> Device:
    return connected(closing, opaque, share_memory=request.param)


def connected(closing: ExitStack, opaque: OpaqueDevice, *, share_memory: bool = True) -> Device:
    return closing.enter_context(Runtime([opaque.address], Settings(share_memory=share_memory))).device()


def compiled(
    closing: ExitStack,
    device: Device,
    model: Model | None = None,
    batching: Batching | None = None,
    *,
    extensions: Sequence[str] = (),
) -> Executor:
    compilation = closing.enter_context(Compilation(model or identity_model(), device))
    for extension in extensions:
        compilation.add_extension_config(extension, b"1")
    compilation.set_batching(batching)
    compilation.build()
    return closing.enter_context(Executor(compilation))


def resident(closing: ExitStack, device: Device, count: int = 3, capacity_bytes: int | None = None) -> ResidentTensor:
    return closing.enter_context(ResidentTensor(device, TensorDesc(FLOAT32, (count,)), capacity_bytes))


def sum_of_two() -> Model:
    model = Model()
    a, b = model.input((-1,), name="a"), model.input((-1,), name="b")
    model.specify_inputs_and_outputs([a, b], [model.apply(OperationType.ADD, a, b)])
    model.finish()
    return model


def chosen() -> Model:
    """Select elements of the first input by the indices in the second, which kernels check before they use them."""
    model = Model()
    x, indices = model.input((-1,), name="x"), model.input((-1,), DataType.INT32, name="indices")
    model.specify_inputs_and_outputs([x, indices], [model.apply(OperationType.GATHER, x, indices, 0)])
    model.finish()
    return model


# ---- who copies


@pytest.mark.parametrize("kind", [(), (STARTED,)], ids=["run", "start"])
def test_a_recurrent_chain_copies_nothing(
    closing: ExitStack, device: Device, opaque: OpaqueDevice, kind: Sequence[str]
) -> None:
    """In place and alternating, described or not; reading the state copies it once."""
    add = compiled(closing, device, sum_of_two(), extensions=kind)
    state, other = resident(closing, device), resident(closing, device)
    state.write(X)
    assert opaque.copied() == (0, 1)
    for number in range(50):
        add.run_sync([state, np.full(3, number, np.float32)], [state])
    for _ in range(25):
        add.run_sync([state, X], [other])
        add.submit([other, X], [state]).result()
    assert opaque.copied() == (0, 1)
    np.testing.assert_array_equal(state.numpy(), X + sum(range(50)) + 50 * X)
    assert opaque.copied() == (1, 1)
    assert opaque.bytes_of("read") == 12


def test_what_one_model_gives_the_next(closing: ExitStack, device: Device, opaque: OpaqueDevice) -> None:
    """Only the client's output is copied, by the backend itself."""
    first, second = compiled(closing, device, sum_of_two()), compiled(closing, device)
    between = resident(closing, device)
    for number in range(5):
        first.run_sync([X, X + number], [between])
        (fetched,) = second.run_sync([between])
        np.testing.assert_array_equal(fetched, X + X + number)
    assert opaque.copied() == (0, 0)


@pytest.mark.parametrize("kind", [(ARRAYS_ONLY,), (ARRAYS_ONLY, STARTED)], ids=["run", "start"])
def test_a_model_that_takes_arrays_only(
    closing: ExitStack, device: Device, opaque: OpaqueDevice, kind: Sequence[str]
) -> None:
    """It gets copies, and its outputs are copied to the device."""
    takes, state = compiled(closing, device, sum_of_two()), resident(closing, device)
    plain = compiled(closing, device, sum_of_two(), extensions=kind)
    state.write(X)
    for number in range(1, 6):
        plain.run_sync([state, X], [state])
        assert opaque.copied() == (number, number + 1)
        takes.run_sync([state, X], [state])
        assert opaque.copied() == (number, number + 1)
    np.testing.assert_array_equal(state.numpy(), 11 * X)


def test_elements_that_are_checked_before_they_are_used(
    closing: ExitStack, device: Device, opaque: OpaqueDevice
) -> None:
    """They are copied first, because another run may overwrite them; other inputs are not."""
    gather, x, y = compiled(closing, device, chosen()), resident(closing, device), resident(closing, device, 2)
    indices = closing.enter_context(ResidentTensor(device, TensorDesc(DataType.INT32, (2,))))
    x.write(X)
    indices.write(np.array([2, 0], np.int32))
    for number in range(1, 4):
        gather.run_sync([x, indices], [y])
        assert opaque.copied() == (number, 2)
    np.testing.assert_array_equal(y.numpy(), [2, 0])


def test_runs_that_are_joined(closing: ExitStack, device: Device, opaque: OpaqueDevice) -> None:
    """They get copies, because the host concatenates their inputs."""
    model = Model()
    x = model.input((-1, 3), name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.ABS, x)])
    model.finish()
    run = compiled(closing, device, model, Batching(4, max_delay_us=1))
    tensors = [closing.enter_context(ResidentTensor(device, TensorDesc(FLOAT32, (1, 3)))) for _ in range(4)]
    for tensor in tensors:
        tensor.write(-X[None])
    for future in [run.submit([tensor], [tensor]) for tensor in tensors]:
        future.result()
    for tensor in tensors:
        np.testing.assert_array_equal(tensor.numpy(), X[None])
    assert opaque.copied() == (8, 8)


def test_tensors_of_all_kinds_in_one_run(closing: ExitStack, device: Device, opaque: OpaqueDevice) -> None:
    """On the device, in shared memory, and in the request."""
    model = Model()
    a, b, c = (model.input((-1,), name=name) for name in "abc")
    total = model.apply(OperationType.ADD, model.apply(OperationType.ADD, a, b), c)
    outputs = [total, model.apply(OperationType.NEG, total), model.apply(OperationType.ABS, total)]
    model.specify_inputs_and_outputs([a, b, c], outputs)
    model.finish()
    run, stays = compiled(closing, device, model), resident(closing, device)
    ours = [closing.enter_context(Tensor(device, TensorDesc(FLOAT32, (3,)))) for _ in range(3)]
    stays.write(X)
    ours[0].numpy()[:] = 10 * X
    want = -X
    for _ in range(3):
        run.run_sync([stays, ours[0], 100 * X], [ours[1], stays, ours[2]])
        want = 110 * X - want
        np.testing.assert_array_equal(ours[1].numpy(), want)
        np.testing.assert_array_equal(ours[2].numpy(), np.abs(want))
    assert opaque.copied() == (0, 1)


# ---- sizes


def test_outputs_of_sizes_that_vary(closing: ExitStack, device: Device, opaque: OpaqueDevice) -> None:
    """Outputs of known size stay on the device; one that is too large does no harm."""
    identity = compiled(closing, device)
    y = closing.enter_context(ResidentTensor(device, TensorDesc(FLOAT32, (-1,)), 20))
    for count in (3, 5, 1):
        given = np.arange(count, dtype=np.float32)
        identity.run_sync([given], [y])
        assert y.desc.shape == (count,)
        np.testing.assert_array_equal(y.numpy(), given)
    assert opaque.copied() == (3, 0)
    with pytest.raises(OutputTooSmall):
        identity.run_sync([np.zeros(6, np.float32)], [y])
    identity.run_sync([X], [y])
    np.testing.assert_array_equal(y.numpy(), X)


def test_an_output_whose_size_the_run_finds_out(closing: ExitStack, device: Device, opaque: OpaqueDevice) -> None:
    """The backend returns an array, which the daemon copies to the device."""
    model = Model()
    x, half = model.input((1,), name="x"), model.input((1,), DataType.INT32, name="half")
    shape = model.apply(OperationType.ADD, half, half)
    model.specify_inputs_and_outputs([x, half], [model.apply(OperationType.TILE, x, shape)])
    model.finish()
    spread = compiled(closing, device, model)
    x_there = resident(closing, device, 1)
    y = closing.enter_context(ResidentTensor(device, TensorDesc(FLOAT32, (-1,)), 64))
    x_there.write(X[1:2])
    for number in range(1, 4):
        spread.run_sync([x_there, np.array([number], np.int32)], [y])
        assert opaque.copied() == (number - 1, number + 1)
        np.testing.assert_array_equal(y.numpy(), np.ones(2 * number))
    with pytest.raises(OutputTooSmall):
        spread.run_sync([x_there, np.array([9], np.int32)], [y])


def test_an_empty_tensor(closing: ExitStack, device: Device) -> None:
    identity = compiled(closing, device)
    x, y = (closing.enter_context(ResidentTensor(device, TensorDesc(FLOAT32, (-1,)), 4)) for _ in range(2))
    for _ in range(3):
        x.write(np.zeros(0, np.float32))
        identity.run_sync([x], [y])
        assert y.numpy().shape == (0,)


@pytest.mark.slow
def test_more_than_fits_a_message(closing: ExitStack, start_opaque: StartOpaque) -> None:
    """The tensor is copied in chunks, each once."""
    opaque = start_opaque("--message-bytes", str(1 << 20))
    for share_memory in (True, False):
        device = connected(closing, opaque, share_memory=share_memory)
        x, y = (resident(closing, device, 1_000_000) for _ in range(2))
        elements = np.arange(1_000_000, dtype=np.float32)
        x.write(elements)
        compiled(closing, device).run_sync([x], [y])
        np.testing.assert_array_equal(y.numpy(), elements)
    assert (opaque.bytes_of("read"), opaque.bytes_of("write")) == (8_000_000, 8_000_000)


# ---- ends


@pytest.mark.slow
def test_memory_is_counted_and_given_back(closing: ExitStack, start_opaque: StartOpaque) -> None:
    """The daemon and the device free it when the tensor or the session is closed."""
    opaque = start_opaque("--session-bytes", str(1 << 20), limit_bytes=1 << 20)
    observer = closing.enter_context(Observer(opaque.address))
    runtime = closing.enter_context(Runtime([opaque.address]))
    device = runtime.device()
    for _ in range(3):
        with ResidentTensor(device, TensorDesc(FLOAT32, (200_000,))) as most:
            observer.wait_for(lambda state: state.held_bytes >= 800_000)
            with pytest.raises(OutOfMemory, match="--session-bytes"):
                ResidentTensor(device, most.desc)
            with (
                pytest.raises(OutOfMemory, match="the chip has 1048576 bytes; 800000 are used"),
                Runtime([opaque.address]) as another,
            ):
                ResidentTensor(another.device(), most.desc)
    left = ResidentTensor(device, TensorDesc(FLOAT32, (200_000,)))
    runtime.close()
    opaque.wait_for("free", 4)
    observer.wait_for(lambda state: state.held_bytes < 800_000)
    left.close()
    assert opaque.bytes_of("free") == 3_200_000


def test_nobody_gets_the_bytes_of_another(closing: ExitStack, device: Device) -> None:
    with ResidentTensor(device, TensorDesc(FLOAT32, (3,))) as secret:
        secret.write(X + 1)
    fresh = resident(closing, device)
    compiled(closing, device).run_sync([X], [resident(closing, device)])
    region = fresh._memory.region
    (chunk,) = session_of(device).stream("NnrtDevice.ReadBuffer", region, 10)
    assert chunk.data == bytes(12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [(), (STARTED,)], ids=["run", "start"])
@pytest.mark.parametrize("end", ["closed", "session", "killed by SIGTERM"])
def test_a_tensor_that_goes_under_a_run(
    closing: ExitStack, start_opaque: StartOpaque, tmp_path: Path, end: str, kind: Sequence[str]
) -> None:
    """The device frees the memory only after the run has ended."""
    gate = Gate(tmp_path)
    opaque = start_opaque("--drain-timeout-s", "0.1")
    runtime = closing.enter_context(Runtime([opaque.address]))
    device = runtime.device()
    identity = compiled(closing, device, extensions=kind)
    x, y = resident(closing, device), resident(closing, device)
    x.write(X)
    identity.run_sync([x], [y])  # Later runs need no description.
    gate.shut()
    run = identity.submit([x], [y])
    opaque.wait_for("waiting", 2)
    if end == "closed":
        for tensor in (x, y):  # `close` would wait for the run.
            release_buffer(session_of(device), tensor._memory.id)
    elif end == "session":
        runtime.close()
    else:
        opaque.daemon.process.terminate()
        until(lambda: "draining" in opaque.daemon.log(), opaque.daemon.log)
    assert opaque.bytes_of("free") == 0
    gate.release(lambda: opaque.bytes_of("free") == 24)
    if end == "closed":
        assert run.result(20) == [y]
    if end == "killed by SIGTERM":
        opaque.daemon.wait()
        assert opaque.journal()[-1] == ("closed", 0)


# ---- faults


@pytest.mark.parametrize("share_memory", [True, False])
def test_a_device_that_fails(closing: ExitStack, opaque: OpaqueDevice, share_memory: bool) -> None:
    """The caller gets an error, the log has the details, and everything else goes on."""
    device, other = connected(closing, opaque, share_memory=share_memory), connected(closing, opaque)
    identity, theirs = compiled(closing, device), compiled(closing, other)
    plain = compiled(closing, device, extensions=[ARRAYS_ONLY])
    started = [compiled(closing, device, extensions=kind) for kind in KINDS[2:]]
    x, y, their_x = resident(closing, device), resident(closing, device), resident(closing, other)
    for tensor in (x, y, their_x):
        tensor.write(X)
    for run in (identity, plain, *started):  # So that later runs need no description.
        run.run_sync([x], [y])
        run.run_sync([x], [y])
    uses: dict[str, list[Callable[[], Any]]] = {
        "allocate": [lambda: resident(closing, device)],
        "read": [x.numpy, lambda: plain.run_sync([x], [y]), lambda: started[1].run_sync([x], [y])],
        "write": [lambda: y.write(X), lambda: plain.run_sync([X], [y]), lambda: started[1].run_sync([X], [y])],
        "run": [partial(run.run_sync, [x], [y]) for run in (identity, plain, started[0])],
    }
    for what, ways in uses.items():
        with opaque.failing(what):
            for way in ways:
                with pytest.raises(UnavailableDevice, match="RuntimeError"):
                    way()
            assert f"the chip can't {what}" in opaque.daemon.log()
            assert device.is_connected
        np.testing.assert_array_equal(theirs.run_sync([their_x])[0], X)
    identity.run_sync([X], [y])
    np.testing.assert_array_equal(y.numpy(), X)


@pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "BaseException"])
def test_what_ends_a_thread(closing: ExitStack, device: Device, opaque: OpaqueDevice, kind: str) -> None:
    """It is reported like any device fault, and ends no thread of the daemon."""
    observer = closing.enter_context(Observer(opaque.address))
    x = resident(closing, device)
    x.write(X)
    uses: dict[str, Callable[[], object]] = {
        "allocate": lambda: resident(closing, device),
        "read": x.numpy,
        "write": lambda: x.write(X),
    }
    for what, use in uses.items():
        with opaque.failing(f"{what} with {kind}"), pytest.raises(UnavailableDevice, match=f"{what} a buffer.*{kind}"):
            use()
    with opaque.failing(f"free with {kind}"):
        with ExitStack() as session:
            ResidentTensor(connected(session, opaque), x.desc)
        opaque.wait_for("free")
    x.close()
    observer.wait_for(lambda state: not state.held_bytes)


@pytest.mark.slow
def test_memory_that_can_not_be_freed(closing: ExitStack, start_opaque: StartOpaque) -> None:
    """It isn't counted any more, and the session ends normally."""
    opaque = start_opaque()
    observer = closing.enter_context(Observer(opaque.address))
    with opaque.failing("free"):
        with Runtime([opaque.address]) as runtime:
            tensors = [ResidentTensor(runtime.device(), TensorDesc(FLOAT32, (10_000,))) for _ in range(3)]
            tensors[0].close()
        opaque.wait_for("free", 3)
        observer.wait_for(lambda state: state.held_bytes < 40_000)
    assert "the chip can't free" in opaque.daemon.log()
    device = connected(closing, opaque)
    np.testing.assert_array_equal(compiled(closing, device).run_sync([X])[0], X)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["read", "write", "allocate", "free"])
def test_a_device_that_hangs(closing: ExitStack, start_opaque: StartOpaque, what: str) -> None:
    """As with a stuck run, only the end of the daemon helps."""
    opaque = start_opaque("--max-run-s", "0.5", "--stuck-s", "0.2")
    device = connected(closing, opaque, share_memory=False)
    x = resident(closing, device)
    x.write(X)
    ways: dict[str, Callable[[], object]] = {
        "read": x.numpy,
        "write": lambda: x.write(X),
        "allocate": lambda: resident(closing, device),
        "free": x.close,
    }
    with opaque.failing(f"hang in {what}"):
        with pytest.raises(UnavailableDevice) if what != "free" else nullcontext():
            ways[what]()
        assert opaque.daemon.wait() == ExitCode.STUCK
    assert f"an attempt to {what} a buffer that was to stop" in opaque.daemon.log()


@pytest.mark.slow
def test_a_model_that_does_not_close(closing: ExitStack, start_opaque: StartOpaque) -> None:
    """Nothing waits for it. Its memory counts, and a terminated daemon ends without closing the device."""
    opaque = start_opaque("--max-run-s", "0", "--drain-timeout-s", "0.1")
    observer = closing.enter_context(Observer(opaque.address))
    with opaque.failing("hang in close"):
        with ExitStack() as session:
            leaving = connected(session, opaque)
            compiled(session, leaving)
            ResidentTensor(leaving, TensorDesc(FLOAT32, (1000,)))
        opaque.wait_for("close")
        observer.wait_for(lambda state: state.sessions == 1)
        assert observer.state().held_bytes >= 4000
        device = connected(closing, opaque)
        np.testing.assert_array_equal(compiled(closing, device).run_sync([X])[0], X)
        opaque.daemon.process.terminate()
        assert opaque.daemon.wait() == 0
    assert ("closed", 0) not in opaque.journal()


@pytest.mark.slow
def test_many_sessions(start_opaque: StartOpaque) -> None:
    """Each has its own state, independent of other sessions and of how they end."""
    opaque = start_opaque()
    failures: list[BaseException] = []

    def go_on(number: int) -> None:
        try:
            with ExitStack() as mine:
                device = connected(mine, opaque, share_memory=number % 2 == 0)
                add = compiled(mine, device, sum_of_two(), extensions=KINDS[number % 4])
                for _ in range(3):
                    state = ResidentTensor(device, TensorDesc(FLOAT32, (3,)))
                    state.write(number * X)
                    for _ in range(10):
                        add.run_sync([state, X], [state])
                    np.testing.assert_array_equal(state.numpy(), (number + 10) * X)
                    if number % 2:
                        state.close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=go_on, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    opaque.wait_for("free", 24)
    assert opaque.bytes_of("free") == opaque.bytes_of("allocate") == 24 * 12
