"""Descriptions of runs: one travels with the first run of its kind, and runs are what they are with it or without."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from gate import Gate
from networks import identity_model
from observer import Observer
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
from nnrt_client.run.link import LocalLink
from nnrt_client.run.packet import Packet
from nnrt_client.run.reply import Reply
from nnrt_client.run.run import Run
from nnrt_client.session.device import session_of
from nnrt_hdi.limits import MAX_DESCRIPTIONS
from nnrt_hdi.v2 import prepared_model_pb2
from nnrt_hdi.wire.packet import Bytes, reply_head, request_head
from nnrt_hdi.wire.run_messages import Chunk, frames_message, read_message

DEADLINE_S = 20.0
WAYS = {"local socket": Settings(), "gRPC": Settings(share_memory=False)}
ways = pytest.mark.parametrize("settings", WAYS.values(), ids=WAYS)
Change = Callable[[bytes], bytes]


class Sent(list[tuple[int, bool]]):
    """The frames that were sent: the numbers of their descriptions, and whether these were with them."""

    @property
    def numbers(self) -> set[int]:
        return {number for number, _ in self}

    @property
    def described(self) -> list[int]:
        """The numbers of the descriptions that were sent."""
        return [number for number, is_described in self if is_described]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    frames, make = Sent(), Packet.frame

    def noted(packet: Packet, run: Run) -> bytes:
        frame = make(packet, run)
        *_, number, description_bytes = request_head.unpack_from(frame)
        frames.append((number, description_bytes > 0))
        return frame

    monkeypatch.setattr(Packet, "frame", noted)
    return frames


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
def test_one_description_for_all_runs_of_a_kind(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
    """The first says nothing of an output that may have any shape; the next one does, and is kept."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for number in range(5):
            assert_identity(executor, np.full(3, number, np.float32))
        kept = sent[1][0]
        assert sent == [(0, True), (kept, True), *[(kept, False)] * 3] and kept
        assert_identity(executor, np.ones(3, np.float32), timeout_ms=10_000)
        np.testing.assert_array_equal(
            executor.submit([np.array([1, 2, 3], np.float32)]).result(DEADLINE_S)[0], [1, 2, 3]
        )
        assert sent[5:] == [(kept, False)] * 2


@ways
def test_a_model_whose_shapes_are_known(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=3), settings)
        for _ in range(3):
            assert_identity(executor, np.ones(3, np.float32))
        (number,) = sent.numbers
        assert sent == [(number, True), (number, False), (number, False)] and number


@ways
def test_its_times_add_up(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for _ in range(3):
            times = executor.run_sync([np.ones(3, np.float32)]).times
            assert times is not None
            assert all(part >= 0 for part in times)
            assert times.computed_ns > 0
        assert not sent[-1][1]


@ways
def test_the_latest_kinds_are_kept(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
    """64 of them, each under one number; the oldest is described anew."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for length in range(1, 65):
            for _ in range(3):
                assert_identity(executor, np.arange(length, dtype=np.float32))
        assert len(sent.numbers - {0}) == 64
        sent.clear()
        for length in range(1, 65):
            assert_identity(executor, np.arange(length, dtype=np.float32))
        assert not sent.described
        for _ in range(2):
            assert_identity(executor, np.arange(65, dtype=np.float32))
        sent.clear()
        for length in (65, 64, 3, 2):
            assert_identity(executor, np.arange(length, dtype=np.float32))
        assert not sent.described
        assert_identity(executor, np.arange(1, dtype=np.float32))
        assert len(sent.described) == 1


@ways
def test_kinds_that_never_come_again(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
    """After some of them, one is kept only when it comes for the second time."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for length in range(1, 30):
            assert_identity(executor, np.arange(length, dtype=np.float32))
        assert sent.numbers == {0}
        sent.clear()
        for _ in range(4):
            assert_identity(executor, np.arange(29, dtype=np.float32))
        assert [number > 0 for number, _ in sent] == [False, True, True, True]
        assert len(sent.described) == 2  # The last two are known to the daemon.
        sent.clear()
        for _ in range(2):
            assert_identity(executor, np.arange(40, dtype=np.float32))
        assert len(sent.numbers) == 2  # A kind came again: the next one is kept at once.


@ways
def test_a_kind_whose_outputs_differ_each_time(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
    """Nothing is said of them any more, once they weren't what was said; other kinds are not concerned."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, first_elements(), settings)
        x = np.arange(16, dtype=np.float32)
        for count in (5, 5, 5, 7, 5, 1, 16, 7):
            (y,) = executor.run_sync([x, np.array([count], np.int32)])
            np.testing.assert_array_equal(y, x[:count])
        kept = sent[1][0]
        assert sent == [(0, True), (kept, True), (kept, False), (kept, False), *[(0, True)] * 4] and kept


@ways
def test_a_description_that_the_daemon_has_forgotten(
    shared_daemon: DaemonProcess, settings: Settings, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is sent again, with the same run, as 1024 later ones have taken its place."""
    monkeypatch.setattr("nnrt_client.run.descriptions._MOST_KINDS", 2000)
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for length in range(1, MAX_DESCRIPTIONS + 3):
            for _ in range(2):
                assert_identity(executor, np.zeros(length, np.float32))
        for length in (MAX_DESCRIPTIONS, 1):
            sent.clear()
            for _ in range(2):
                assert_identity(executor, np.arange(length, dtype=np.float32))
            (number,) = sent.numbers
            again = [(number, True)] if length == 1 else []
            assert sent == [(number, False), *again, (number, False)] and number


@ways
def test_links_that_overtake_each_other(
    start_daemon: StartDaemon, tmp_path: Path, settings: Settings, sent: Sent
) -> None:
    """A frame leaves out its description only once a run with it was answered, on whatever link."""
    gate = Gate(tmp_path)
    with ExitStack() as closing:
        daemon = start_daemon("--backend", "gated", "--option", f"gate={gate.path}", "--concurrent-runs", "4")
        _, executor = compiled(closing, daemon.address, identity_model(elements=3), settings)
        observer = closing.enter_context(Observer(daemon.address))
        gate.shut()
        runs = [executor.submit([np.full(3, number, np.float32)]) for number in range(3)]
        observer.wait_for(lambda state: state.running == 3)
        (number,) = sent.numbers
        assert sent == [(number, True)] * 3
        gate.release(lambda: all(run.done() for run in runs))
        assert [run.result(DEADLINE_S)[0][0] for run in runs] == [0, 1, 2]
        assert_identity(executor, np.ones(3, np.float32))
        assert sent[3:] == [(number, False)]


def test_one_in_shared_memory(shared_daemon: DaemonProcess, sent: Sent) -> None:
    """Inputs and outputs pass through memory of the pool, each run's own."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=60_000))
        kept = []
        for number in range(6):
            x = np.full(60_000, number, np.float32)
            kept.append((executor.run_sync([x])[0], x))
        for y, x in kept:
            np.testing.assert_array_equal(y, x)
        assert len(sent.described) == 1


@ways
def test_arrays_that_are_not_contiguous(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, settings=settings)
        for x in (np.ones(4, np.float32), np.arange(8, dtype=np.float32)[::2], np.arange(4, dtype=np.float32)[::-1]):
            assert_identity(executor, x)
        assert sent[-1] == (sent[1][0], False)


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
def test_tensors(shared_daemon: DaemonProcess, settings: Settings, sent: Sent, kind: Any, elements: int) -> None:
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
        assert len(sent) == 30 and sorted(sent.described) == sorted(sent.numbers)


def test_tensors_of_several_kinds_in_one_run(shared_daemon: DaemonProcess, sent: Sent) -> None:
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
        assert len(sent) == 8 and sorted(sent.described) == sorted(sent.numbers) and len(sent.numbers) == 2


def test_memory_that_no_daemon_can_have(shared_daemon: DaemonProcess, sent: Sent, tmp_path: Path) -> None:
    """A file that may be cut short is copied, in every run."""
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
        assert len(sent) == 8 and len(sent.described) == len(sent.numbers)


def _tensor_of(closing: ExitStack, device: Any, desc: TensorDesc, file: Any, size_bytes: int) -> Tensor:
    file.truncate(size_bytes)
    return closing.enter_context(Tensor.from_fd(device, desc, file.fileno(), size_bytes))


@ways
def test_room_of_outputs(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
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
        assert len(sent) == 12


@ways
def test_tensors_that_do_not_serve(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
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
        assert sorted(sent.described) == sorted(sent.numbers)


@ways
def test_descs_that_change(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
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


@ways
def test_a_tensor_that_a_failed_run_was_to_write(start_daemon: Any, settings: Settings, sent: Sent) -> None:
    """Is lost, also where the daemon had its description."""
    with ExitStack() as closing:
        daemon = start_daemon()
        device, executor = compiled(closing, daemon.address, identity_model(elements=3), settings)
        x, y = tensors(closing, ResidentTensor, device, 2)
        x.write(np.ones(3, np.float32))
        for _ in range(3):
            executor.run_sync([x], [y])
        assert not sent[-1][1]
        daemon.kill()
        with pytest.raises(UnavailableDevice):
            executor.run_sync([x], [y])
        assert not y._memory.is_written or not device.is_connected


@ways
def test_first_runs_of_several_threads(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
    """Each may bring its own description; all runs are right, and one is left afterwards."""
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
        assert len(sent) == 120 and len(sent.described) <= 6 * 4
        sent.clear()
        for _ in range(2):
            assert_identity(executor, np.ones(5, np.float32))
        assert not sent.described


@ways
def test_executors_of_one_session(shared_daemon: DaemonProcess, settings: Settings, sent: Sent) -> None:
    """Their descriptions have numbers of their own, and go with them."""
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, identity_model(elements=3), settings)
        for _ in range(2):
            with ExitStack() as sooner:
                other = _executor(sooner, device, identity_model(elements=4))
                for _ in range(3):
                    assert_identity(executor, np.ones(3, np.float32))
                    assert_identity(other, np.ones(4, np.float32))
        assert len(sent.numbers) == len(sent.described) == 3


@ways
def test_executors_of_one_model_share_its_descriptions(
    shared_daemon: DaemonProcess, settings: Settings, sent: Sent
) -> None:
    """However many are made, the daemon keeps one."""
    with ExitStack() as closing:
        device = closing.enter_context(Runtime([shared_daemon.address], settings)).device()
        compilation = closing.enter_context(Compilation(identity_model(), device))
        compilation.build()
        for _ in range(5):
            with Executor(compilation) as executor:
                assert_identity(executor, np.ones(3, np.float32))
        kept = sent[1][0]
        assert sent == [(0, True), (kept, True), *[(kept, False)] * 3]


def _executor(closing: ExitStack, device: Any, model: Any) -> Executor:
    compilation = closing.enter_context(Compilation(model, device))
    compilation.build()
    return closing.enter_context(Executor(compilation))


# ---- replies that make no sense


def other_run(reply: bytes) -> bytes:
    return reply[:8] + (2**40).to_bytes(8, "little") + reply[16:]


def shorter(reply: bytes) -> bytes:
    return reply[:-4]


def longer(reply: bytes) -> bytes:
    return reply + bytes(4)


def other_mark(reply: bytes) -> bytes:
    return b"\0\1" + reply[2:]


def other_length(reply: bytes) -> bytes:
    """Of the outcome."""
    return reply[:64] + (1 << 20).to_bytes(4, "little") + reply[68:]


def of_another_description(reply: bytes) -> bytes:
    """A sound frame, with fewer tensors than there should be."""
    return reply[:4] + reply_head.size.to_bytes(4, "little") + reply[8 : reply_head.size]


def forged(change: Change, data: bytes) -> bytes:
    reply: Bytes | Chunk = read_message(data)
    assert not isinstance(reply, Chunk)
    return frames_message(change(bytes(reply)))


CHANGES = [shorter, longer, other_mark, other_length]


@pytest.mark.parametrize("change", [other_run, *CHANGES])
def test_a_wrong_reply_of_a_stream(shared_daemon: DaemonProcess, change: Change) -> None:
    """It ends its stream and fails its run."""
    with Relay(shared_daemon.address) as relay, ExitStack() as closing:
        _, executor = compiled(closing, relay.address, identity_model(elements=3), WAYS["gRPC"])
        assert_identity(executor, np.ones(3, np.float32))
        relay.forgers["RunStream"] = partial(forged, change)
        error = executor.submit([np.ones(3, np.float32)]).exception(DEADLINE_S)
        assert isinstance(error, OperationFailed) and ("reply" in str(error) or "outcome" in str(error)), error
        relay.forgers.clear()
        assert_identity(executor, np.ones(3, np.float32))


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_reply_of_the_local_socket(
    shared_daemon: DaemonProcess, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends its connection; the run's reply is fetched."""
    take, changes, ended = LocalLink.take, [change], list[LocalLink]()

    def forged_once(link: LocalLink, packet: bytes) -> None:
        if changes:
            ended.append(link)
            take(link, changes.pop()(packet))
        else:
            take(link, packet)

    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=3))
        assert_identity(executor, np.ones(3, np.float32))
        monkeypatch.setattr(LocalLink, "take", forged_once)
        assert_identity(executor, np.ones(3, np.float32))
        (link,) = ended
        assert link.is_over
        assert_identity(executor, np.ones(3, np.float32))


@ways
def test_a_reply_of_another_length_than_promised(
    shared_daemon: DaemonProcess, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fails its run, and no other."""
    with ExitStack() as closing:
        _, executor = compiled(closing, shared_daemon.address, identity_model(elements=3), settings)
        assert_identity(executor, np.ones(3, np.float32))
        begin = Reply.__init__
        with monkeypatch.context() as patch:
            patch.setattr(Reply, "__init__", lambda reply, data: begin(reply, of_another_description(bytes(data))))
            with pytest.raises(OperationFailed):
                executor.run_sync([np.ones(3, np.float32)])
        assert_identity(executor, np.ones(3, np.float32))


def test_an_error_in_place_of_a_reply(shared_daemon: DaemonProcess, sent: Sent) -> None:
    with ExitStack() as closing:
        device, executor = compiled(closing, shared_daemon.address, identity_model(elements=3))
        for _ in range(2):
            assert_identity(executor, np.ones(3, np.float32))
        release = prepared_model_pb2.ReleaseRequest(model_id=1)  # The first of its session.
        session_of(device).call("PreparedModel.Release", release, DEADLINE_S)
        with pytest.raises(UnavailableDevice):
            executor.run_sync([np.ones(3, np.float32)])
        assert [is_described for _, is_described in sent] == [True, False, False, True]
