"""Runs of a plan: they are what other runs are, whatever comes in between."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from daemon_process import DaemonProcess
from networks import identity_model
from relay import Relay
from tensor_runs import compiled

from nnrt_client import (
    Compilation,
    Executor,
    InvalidParameter,
    Model,
    NnrtError,
    OperationFailed,
    OperationType,
    OutputTooSmall,
    ResidentTensor,
    Runtime,
    Settings,
    Tensor,
    TensorDesc,
    UnavailableDevice,
)
from nnrt_client.enums import DataType
from nnrt_client.run.plan import Plan
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.plans import planned_reply

DEADLINE_S = 20.0
WAYS = {"local socket": Settings(), "gRPC": Settings(share_memory=False)}
ways = pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
Change = Callable[[bytes], bytes]


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the plans that runs are packed by."""
    numbers: list[int] = []
    pack = Plan.packed

    def noted(plan: Plan, *arguments: Any) -> bytes:
        numbers.append(plan.number)
        return pack(plan, *arguments)

    monkeypatch.setattr(Plan, "packed", noted)
    return numbers


def sum_model(elements: int) -> Model:
    """z = x + y over so many float32."""
    model = Model()
    x, y = model.input((elements,), name="x"), model.input((elements,), name="y")
    model.specify_inputs_and_outputs([x, y], [model.apply(OperationType.ADD, x, y)])
    model.finish()
    return model


def first_elements() -> Model:
    """The first elements of 16, as many as the second input says."""
    model = Model()
    x, count = model.input((16,), name="x"), model.input((1,), DataType.INT32, name="count")
    y = model.apply(OperationType.SLICE, x, np.zeros(1, np.int32), count, axes=[0])
    model.specify_inputs_and_outputs([x, count], [y])
    model.finish()
    return model


def assert_identity(executor: Executor, x: Any, **how: Any) -> None:
    (y,) = executor.run_sync([x], **how)
    np.testing.assert_array_equal(y, x)
    assert y.shape == x.shape and y.dtype == x.dtype
    assert not y.flags.writeable


@ways
def test_the_second_run_is_of_a_plan(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for number in range(5):
            assert_identity(executor, np.full(3, number, np.float32))
        assert len(packed) == 4
        assert_identity(executor, np.ones(3, np.float32), timeout_ms=10_000)
        np.testing.assert_array_equal(
            executor.submit([np.array([1, 2, 3], np.float32)]).result(DEADLINE_S)[0], [1, 2, 3]
        )
        assert packed == packed[:1] * 6


@ways
def test_its_times_add_up(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for _ in range(3):
            times = executor.run_sync([np.ones(3, np.float32)]).times
        assert packed and times is not None
        assert all(part >= 0 for part in times)
        assert times.computed_ns > 0


@ways
def test_shapes_that_come_again_have_plans(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    """The first eight from their second run on, and then others, in the place of the oldest, from their third."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for length in (*range(1, 12), 8, 11, 11, 11, 11, 8, 1):
            assert_identity(executor, np.arange(length, dtype=np.float32))
        eighth, *eleventh, eighth_again = packed
        assert eighth == eighth_again and len(eleventh) == 3 and len(set(packed)) == 2
        for length in range(20, 300):  # More than the daemon is ever asked for, and than are remembered.
            for _ in range(2):
                assert_identity(executor, np.arange(length, dtype=np.float32))
        assert len(set(packed)) <= 64


def test_one_in_shared_memory(shared_daemon: DaemonProcess, packed: list[int]) -> None:
    """Inputs and outputs pass through memory of the pool, each run's own."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=60_000))
        kept = []
        for number in range(6):
            x = np.full(60_000, number, np.float32)
            kept.append((executor.run_sync([x])[0], x))
        for y, x in kept:
            np.testing.assert_array_equal(y, x)
        assert len(packed) == 5


@ways
def test_arrays_that_are_not_contiguous(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for x in (np.ones(4, np.float32), np.arange(8, dtype=np.float32)[::2], np.arange(4, dtype=np.float32)[::-1]):
            assert_identity(executor, x)
        assert len(packed) == 2


# ---- with tensors


def tensors(closing: ExitStack, kind: Any, device: Any, count: int, elements: int = 3) -> list[Any]:
    desc = TensorDesc(DataType.FLOAT32, (elements,))
    return [closing.enter_context(kind(device, desc)) for _ in range(count)]


def write(tensor: Any, array: Any) -> None:
    if isinstance(tensor, ResidentTensor):
        tensor.write(array)
    else:
        tensor.numpy()[:] = array


@ways
@pytest.mark.parametrize("kind", [Tensor, ResidentTensor])
@pytest.mark.parametrize("elements", [3, 60_000])
def test_tensors(shared_daemon: DaemonProcess, settings: Settings, packed: list[int], kind: Any, elements: int) -> None:
    """In and out, in one of both, in place, and whichever tensors of the kind they are."""
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, sum_model(elements), settings)
        x, y, z = tensors(closing, kind, device, 3, elements)
        total = np.zeros(elements, np.float32)
        write(x, total)
        one = np.ones(elements, np.float32)
        for _ in range(6):
            assert executor.run_sync([x, one], [y]) == [y]
            assert executor.run_sync([y, one], [z]).shapes == ((elements,),)
            executor.run_sync([z, one], [z])
            (total,) = executor.run_sync([z, one])
            executor.submit([one, z], [x]).result(DEADLINE_S)
            np.testing.assert_array_equal(x.numpy(), total)
        np.testing.assert_array_equal(total, np.full(elements, 24, np.float32))
        if elements == 3 or settings.share_memory:  # Else arrays have no room in a packet.
            assert len(packed) == 30 - len(set(packed))


def test_tensors_of_several_kinds_in_one_run(shared_daemon: DaemonProcess, packed: list[int]) -> None:
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, sum_model(60_000))
        x, y = tensors(closing, Tensor, device, 2, 60_000)
        (state,) = tensors(closing, ResidentTensor, device, 1, 60_000)
        state.write(np.zeros(60_000, np.float32))
        for number in range(1, 5):
            x.numpy()[:] = number
            executor.run_sync([x, state], [y])
            executor.run_sync([y, np.zeros(60_000, np.float32)], [state])
        np.testing.assert_array_equal(state.numpy(), np.full(60_000, 10, np.float32))
        assert len(packed) == 6 and len(set(packed)) == 2


def test_memory_that_no_daemon_can_have(shared_daemon: DaemonProcess, packed: list[int], tmp_path: Path) -> None:
    """A file that may be cut short is copied, also by a plan."""
    size_bytes = 4 * 60_000
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, sum_model(60_000))
        desc = TensorDesc(DataType.FLOAT32, (60_000,))
        files = [closing.enter_context((tmp_path / name).open("w+b")) for name in "xy"]
        x, y = (_tensor_of(closing, device, desc, file, size_bytes) for file in files)
        (sealed,) = tensors(closing, Tensor, device, 1, 60_000)
        for number in range(4):
            x.numpy()[:], sealed.numpy()[:] = number, 2
            for inputs in ([x, sealed], [sealed, x]):
                executor.run_sync(inputs, [y])
                np.testing.assert_array_equal(y.numpy(), np.full(60_000, number + 2, np.float32))
        assert len(packed) == 7


def _tensor_of(closing: ExitStack, device: Any, desc: TensorDesc, file: Any, size_bytes: int) -> Tensor:
    file.truncate(size_bytes)
    return closing.enter_context(Tensor.from_fd(device, desc, file.fileno(), size_bytes))


@ways
def test_room_of_outputs(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    """An output with room for more than the run before it gave gets more, one with less is refused, and lost."""
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, first_elements(), settings)
        desc = TensorDesc(DataType.FLOAT32, (-1,))
        large, small = (closing.enter_context(ResidentTensor(device, desc, size)) for size in (64, 8))
        for count in (2, 2, 16, 1, 16, 2):
            x, target = np.arange(count, dtype=np.float32), np.array([count], np.int32)
            executor.run_sync([np.pad(x, (0, 16 - count)), target], [large])
            np.testing.assert_array_equal(large.numpy(), x)
            if count <= 2:
                executor.run_sync([np.pad(x, (0, 16 - count)), target], [small])
                np.testing.assert_array_equal(small.numpy(), x)
            else:
                with pytest.raises(OutputTooSmall, match="its memory has 8 bytes") as refusal:
                    executor.run_sync([np.pad(x, (0, 16 - count)), target], [small])
                assert refusal.value.shapes == ((count,),)
                with pytest.raises(OperationFailed, match="nothing has been written"):
                    small.numpy()
        assert len(packed) == 11


@ways
def test_tensors_that_do_not_serve(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    """What is wrong with a tensor is found out in each run, and says which."""
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, identity_model(elements=3), settings)
        x, y, gone, empty = tensors(closing, ResidentTensor, device, 4)
        elsewhere = closing.enter_context(Runtime([shared_daemon.address], settings)).device()
        (theirs,) = tensors(closing, ResidentTensor, elsewhere, 1)
        shared, closed = tensors(closing, Tensor, device, 2)
        for each in (x, theirs, gone):
            each.write(np.arange(3, dtype=np.float32))
        for given in (gone, closed):
            given.close()
        for _ in range(3):
            for source, target in ((x, y), (x, shared), (shared, shared), (shared, y), (y, x)):
                executor.run_sync([source], [target])
                np.testing.assert_array_equal(target.numpy(), [0, 1, 2])
            for inputs, outputs, said in (
                ([gone], [y], "input 0 'x': the tensor is closed"),
                ([closed], [y], "input 0 'x': the tensor is closed"),
                ([x], [closed], "output 0.*: the tensor is closed"),
                ([empty], [y], "input 0 'x': nothing has been written"),
                ([theirs], [y], "input 0 'x': it is on the"),
                ([x], [theirs], "output 0.*: it is on the"),
            ):
                with pytest.raises(NnrtError, match=said):
                    executor.run_sync(inputs, outputs)
        assert len(packed) == 11


@ways
def test_descs_that_change(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    """Each run goes by what its tensors are then."""
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, settings=settings)
        x, y = (closing.enter_context(Tensor.with_size(device, TensorDesc(DataType.FLOAT32, (-1,)), 64)) for _ in "xy")
        for length in (3, 3, 16, 16, 17, 3, 16, 17, 3):
            x.desc.shape = (length,)
            y.desc.shape = (-1,)
            if 0 < length <= 16:
                x.numpy()[:] = np.arange(length)
                executor.run_sync([x], [y])
                np.testing.assert_array_equal(y.numpy(), np.arange(length))
            else:
                with pytest.raises(NnrtError):
                    executor.run_sync([x], [y])
        x.desc.shape = (3,)
        x.desc.data_type = DataType.INT32
        with pytest.raises(InvalidParameter, match="data type is INT32"):
            executor.run_sync([x], [y])
        assert len(packed) == 5


@ways
def test_a_tensor_that_a_failed_run_was_to_write(start_daemon: Any, settings: Settings, packed: list[int]) -> None:
    """Is lost, also where the run went by a plan."""
    with ExitStack() as closing:
        daemon = start_daemon()
        device, executor = compiled(closing, daemon.address, identity_model(elements=3), settings)
        x, y = tensors(closing, ResidentTensor, device, 2)
        x.write(np.ones(3, np.float32))
        for _ in range(3):
            executor.run_sync([x], [y])
        assert len(packed) == 2
        daemon.kill()
        with pytest.raises(UnavailableDevice):
            executor.run_sync([x], [y])
        assert not y._memory.is_written or not device.is_connected


@ways
def test_first_runs_of_several_threads(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    """Each may ask for a plan; all runs are right, and there is one afterwards."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        failures: list[BaseException] = []

        def make(value: int) -> None:
            try:
                for _ in range(20):
                    assert_identity(executor, np.full(5, value, np.float32))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=make, args=(value,)) for value in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not failures
        assert len(packed) >= 100


@ways
def test_executors_of_one_session(shared_daemon: DaemonProcess, settings: Settings, packed: list[int]) -> None:
    """Their plans have numbers of their own, and go with them."""
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, identity_model(elements=3), settings)
        for _ in range(2):
            with ExitStack() as sooner:
                other = _executor(sooner, device, identity_model(elements=4))
                for _ in range(3):
                    assert_identity(executor, np.ones(3, np.float32))
                    assert_identity(other, np.ones(4, np.float32))
        assert len(set(packed)) == 3


@ways
def test_executors_of_one_model_share_its_plans(
    shared_daemon: DaemonProcess, settings: Settings, packed: list[int]
) -> None:
    """However many are made, the daemon keeps one plan."""
    with ExitStack() as closing:
        device = closing.enter_context(Runtime([shared_daemon.address], settings)).device()
        compilation = closing.enter_context(Compilation(identity_model(), device))
        compilation.build()
        for _ in range(5):
            with Executor(compilation) as executor:
                assert_identity(executor, np.ones(3, np.float32))
        assert packed == packed[:1] * 4


def _executor(closing: ExitStack, device: Any, model: Any) -> Executor:
    compilation = closing.enter_context(Compilation(model, device))
    compilation.build()
    return closing.enter_context(Executor(compilation))


def test_a_daemon_that_keeps_no_plans(
    shared_daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch, packed: list[int]
) -> None:
    """As one of before: nobody asks it for a plan."""
    monkeypatch.setattr("nnrt_client.run.plan.FEATURE", "no such feature")
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address)
        for _ in range(3):
            assert_identity(executor, np.ones(3, np.float32))
        assert not packed


# ---- replies that make no sense


def other_run(reply: bytes) -> bytes:
    return reply[:8] + (2**40).to_bytes(8, "little") + reply[16:]


def shorter(reply: bytes) -> bytes:
    return reply[:-4]


def longer(reply: bytes) -> bytes:
    return reply + bytes(4)


def other_mark(reply: bytes) -> bytes:
    return b"\0\1" + reply[2:]


def forged(change: Change, data: bytes) -> bytes:
    reply = planned_reply(data)
    assert reply is not None
    return prepared_model_pb2.RunReply(planned=change(reply)).SerializeToString()


@pytest.mark.parametrize("change", [other_run, shorter, longer, other_mark])
def test_a_wrong_planned_reply_of_a_stream(shared_daemon: DaemonProcess, change: Change) -> None:
    """It ends its stream and fails its run."""
    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        _, executor = compiled(closing, relay.address, identity_model(elements=3), WAYS["gRPC"])
        assert_identity(executor, np.ones(3, np.float32))
        relay.forgers["RunStream"] = partial(forged, change)
        error = executor.submit([np.ones(3, np.float32)]).exception(DEADLINE_S)
        assert isinstance(error, OperationFailed) and "answers no run" in str(error), error
        relay.forgers.clear()
        assert_identity(executor, np.ones(3, np.float32))


@pytest.mark.parametrize("change", [shorter, longer, other_mark])
def test_a_wrong_planned_reply_of_the_local_socket(shared_daemon: DaemonProcess, change: Change) -> None:
    """It ends its connection; the run's reply is fetched."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=3))
        assert_identity(executor, np.ones(3, np.float32))
        lane: Any = executor._queue._local
        connection = lane.mains._connection
        receive = connection.receive
        connection.receive = lambda *arguments: change(receive(*arguments))
        assert_identity(executor, np.ones(3, np.float32))
        assert lane.mains is None or lane.mains._connection is not connection
        assert_identity(executor, np.ones(3, np.float32))


def test_an_error_in_place_of_a_planned_reply(shared_daemon: DaemonProcess, packed: list[int]) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=3))
        for _ in range(2):
            assert_identity(executor, np.ones(3, np.float32))
        session = executor._session
        session.call(
            "PreparedModel.Release",
            prepared_model_pb2.ReleaseRequest(model_id=executor._signature.model_id),
            DEADLINE_S,
        )
        with pytest.raises(NnrtError):
            executor.run_sync([np.ones(3, np.float32)])
        assert len(packed) == 2
