"""Refusals of a daemon, so that one client, one mistake or its own shutdown harms nobody else."""

import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from blocked_call import BlockedCall
from click.testing import CliRunner
from conftest import StartDaemon
from freed_at_once import freed_at_once, loaded_alone, lone_model
from networks import identity_model
from observer import Observer
from waiting import DEADLINE_S

from nnrt_client import Compilation, Executor, Runtime, Settings, UnavailableDevice
from nnrt_client.build.compilation import prepared_of
from nnrt_client.session.device import session_of
from nnrt_client.session.session import Session as ClientSession
from nnrt_device_service.cli import main
from nnrt_device_service.device import Device
from nnrt_device_service.memory.constants import ConstantPool
from nnrt_device_service.memory.memory_budget import MemoryBudget
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings as DaemonSettings
from nnrt_device_service.transport.grpc.builds import Builds
from nnrt_hdi import wire
from nnrt_hdi.backend import Backend, Cancellation, Capabilities, DeviceInfo, PreparedModel
from nnrt_hdi.enums import DataType, DeviceType
from nnrt_hdi.errors import InvalidParameter, OperationFailed, OutOfMemory
from nnrt_hdi.graph import Constant, Graph
from nnrt_hdi.tensor import Array, TensorSpec
from nnrt_hdi.v2 import (
    device_pb2,
    model_pb2,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)

ONE = np.ones(1, np.float32)
FLOAT = TensorSpec(DataType.FLOAT32, (1,))
KIB = 1024
LONG_S = 60.0


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A run of the backend `gated` ends when this is opened for writing and closed."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@contextmanager
def built(address: str, elements: int = -1) -> Iterator[tuple[ClientSession, int]]:
    """A client with a model; its connection and the model's id."""
    with Runtime([address]) as runtime, Compilation(identity_model(elements=elements), runtime.device()) as compilation:
        compilation.build()
        yield session_of(runtime.device()), prepared_of(compilation).model_id


def run_request(model_id: int, array: Array = ONE, **fields: Any) -> "prepared_model_pb2.RunRequest":
    return prepared_model_pb2.RunRequest(model_id=model_id, inputs=[wire.io_tensor_message(FLOAT, array)], **fields)


def region(buffer_id: int, size_bytes: int) -> "model_pb2.IOTensor":
    place = model_pb2.BufferRegion(buffer_id=buffer_id, data_size=size_bytes)
    return model_pb2.IOTensor(
        data_type=wire.number(DataType.FLOAT32), dimensions=[1], data=model_pb2.SharedBuffer(region=place)
    )


def allocate(connection: ClientSession, length: int) -> int:
    request = device_pb2.AllocateBufferRequest(length=length)
    reply = connection.call("NnrtDevice.AllocateBuffer", request, LONG_S)
    return int(reply.buffer.region.buffer_id)


def write(connection: ClientSession, buffer_id: int, data: bytes) -> None:
    chunks = iter([device_pb2.BufferChunk(buffer_id=buffer_id, data=data)])
    connection.call("NnrtDevice.WriteBuffer", chunks, LONG_S)


# ---- calls


def test_one_client_does_not_take_the_daemon(start_daemon: StartDaemon) -> None:
    """Its calls beyond the limit are refused for what they are, and others have their places."""
    daemon = start_daemon("--backend", "slow", "--max-sessions", "2", "--session-streams", "2", "--session-calls", "5")
    with grpc.insecure_channel(daemon.address) as channel, built(daemon.address) as (connection, model_id):
        models = prepared_model_pb2_grpc.PreparedModelStub(channel)
        ended: queue.SimpleQueue[Any] = queue.SimpleQueue()
        runs = [
            models.Run.future(run_request(model_id), timeout=LONG_S, metadata=connection.metadata) for _ in range(60)
        ]
        for run in runs:
            run.add_done_callback(ended.put)
        for _ in range(55):
            error = wire.error_detail_of(ended.get(timeout=DEADLINE_S).exception())
            assert type(error) is OutOfMemory
            assert "this session has 5 calls under way, its limit" in error.message
        with Runtime([daemon.address]) as other, Compilation(identity_model(), other.device()) as compilation:
            compilation.build()
            with Executor(compilation) as executor:
                assert executor.submit([ONE]).cancel()
        for run in runs:
            run.cancel()


def test_a_call_that_never_sends_its_request_counts(start_daemon: StartDaemon) -> None:
    """And ends with its session."""
    daemon = start_daemon("--session-calls", "2")
    silent: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    with grpc.insecure_channel(daemon.address) as channel, Runtime([daemon.address]) as runtime:
        device = runtime.device()
        unary = channel.stream_unary("/nnrt_hdi.v2.PreparedModel/Run")
        metadata = session_of(device).metadata
        refused: queue.SimpleQueue[grpc.Future] = queue.SimpleQueue()
        calls = [unary.future(iter(silent.get, None), metadata=metadata, timeout=LONG_S) for _ in range(3)]
        for call in calls:
            call.add_done_callback(refused.put)
        third = refused.get(timeout=DEADLINE_S)
        assert third.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        with pytest.raises(OutOfMemory, match="2 calls under way"):
            device.status()
        runtime.close()
        for call in calls:
            assert call is third or call.code() is grpc.StatusCode.CANCELLED
            silent.put(None)


def test_calls_with_no_request(start_daemon: StartDaemon) -> None:
    daemon = start_daemon()
    with grpc.insecure_channel(daemon.address) as channel, Runtime([daemon.address]) as runtime:
        unary = channel.stream_unary("/nnrt_hdi.v2.PreparedModel/Run")
        with pytest.raises(grpc.RpcError, match="ended without a request") as refusal:
            unary(iter(()), metadata=session_of(runtime.device()).metadata, timeout=LONG_S)
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT


# ---- shutdown


def test_everything_new_is_refused_while_draining(start_daemon: StartDaemon, gate: Path) -> None:
    """Except what asks how the device is, or gives something back."""
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    with (
        grpc.insecure_channel(daemon.address) as channel,
        Observer(daemon.address) as observer,
        built(daemon.address) as (connection, model_id),
    ):
        buffer_id = allocate(connection, 4)
        models = prepared_model_pb2_grpc.PreparedModelStub(channel)
        run = models.Run.future(run_request(model_id), timeout=LONG_S, metadata=connection.metadata)
        observer.wait_for(lambda state: state.running == 1)
        daemon.send(signal.SIGTERM)
        observer.wait_for(lambda state: state.draining)
        place = model_pb2.BufferRegion(buffer_id=buffer_id, data_size=4)
        new: list[tuple[str, Any]] = [
            ("NnrtDevice.GetSupportedOperation", device_pb2.GetSupportedOperationRequest()),
            ("NnrtDevice.AllocateBuffer", device_pb2.AllocateBufferRequest(length=1)),
            ("NnrtDevice.UploadConstants", iter(())),
            ("NnrtDevice.WriteBuffer", iter(())),
            ("PreparedModel.Run", run_request(model_id)),
            ("PreparedModel.GetInputDimRanges", prepared_model_pb2.GetInputDimRangesRequest(model_id=model_id)),
            ("PreparedModel.ExportModelCache", prepared_model_pb2.ExportModelCacheRequest(model_id=model_id)),
        ]
        for method, request in new:
            with pytest.raises(UnavailableDevice, match="shutting down"):
                connection.call(method, request, LONG_S)
        for method, request in (
            ("NnrtDevice.PrepareModel", device_pb2.PrepareModelRequest()),
            ("NnrtDevice.PrepareModelFromModelCache", device_pb2.PrepareFromBuffersRequest()),
            ("NnrtDevice.ReadBuffer", place),
        ):
            with pytest.raises(UnavailableDevice, match="shutting down"):
                list(connection.stream(method, request, LONG_S))
        hello = session_pb2.SessionRequest(hello=session_pb2.Hello())
        with grpc.insecure_channel(daemon.address) as channel, pytest.raises(grpc.RpcError, match="shutting down"):
            next(session_pb2_grpc.DeviceSessionStub(channel).Open(iter([hello]), timeout=LONG_S))
        for method, request in (
            ("NnrtDevice.GetDeviceStatus", device_pb2.GetDeviceStatusRequest()),
            ("NnrtDevice.ReleaseBuffer", device_pb2.ReleaseBufferRequest(buffer_id=buffer_id)),
            ("PreparedModel.Release", prepared_model_pb2.ReleaseRequest(model_id=model_id)),
        ):
            connection.call(method, request, LONG_S)
        gate.write_bytes(b"")
        assert wire.io_array(run.result(DEADLINE_S).outputs[0]).tolist() == [1]
        assert daemon.wait() == 0


class StubBackend(Backend):
    def __init__(self) -> None:
        self.closed = 0

    def describe(self) -> DeviceInfo:
        return DeviceInfo("stub", "test", DeviceType.OTHER, Capabilities(), "stub", "0")

    def supported(self, graph: Graph) -> list[Any]:
        return []

    def prepare(self, *_: Any) -> PreparedModel:
        raise NotImplementedError

    def close(self) -> None:
        self.closed += 1


def test_the_accelerator_is_let_go_when_all_work_has_ended() -> None:
    backend = StubBackend()
    device = Device(backend, DaemonSettings())
    with device.gate.admit():
        assert not device.close(0.0)
    assert backend.closed == 0
    assert device.close(0.0)
    assert backend.closed == 1


class StubContext:
    def add_callback(self, callback: Callable[[], object]) -> bool:
        return True


def test_a_compilation_counts_until_it_has_ended() -> None:
    """The call of a client that has gone keeps its place as long as the device works for it."""
    device, may_end = Device(StubBackend(), DaemonSettings()), threading.Event()

    def prepare(progress: Callable[[str, float], None]) -> Any:
        progress("compiling", 0.0)
        may_end.wait(DEADLINE_S)
        raise OperationFailed("the client gave up")

    session = Session(DaemonSettings(), "client", freed_at_once())
    replies = Builds(device, DaemonSettings())._compile(session, StubContext(), prepare)
    assert next(replies).progress.stage == "compiling"
    closing = BlockedCall(replies.close)  # type: ignore[attr-defined]  # It is a generator.
    closing.require_blocked()
    may_end.set()
    assert closing.wait().error is None
    assert device.close(DEADLINE_S)


# ---- sessions


def test_a_daemon_that_stood_still_blames_no_client(start_daemon: StartDaemon) -> None:
    """While it was stopped, the beats of its clients lay unread."""
    daemon = start_daemon("--heartbeat-timeout-s", "0.4")
    with (
        Runtime([daemon.address], Settings(heartbeat_timeout_s=1.0)) as hasty,
        Runtime([daemon.address], Settings(heartbeat_timeout_s=60)) as patient,
        Compilation(identity_model(), patient.device()) as compilation,
    ):
        compilation.build()
        waiting = hasty.device()
        daemon.stop()
        with pytest.raises(UnavailableDevice, match="silent"):  # More than two timeouts of the daemon later.
            waiting.status()
        daemon.send(signal.SIGCONT)
        with Observer(daemon.address) as observer, Executor(compilation) as executor:
            observer.wait_for(lambda state: state.sessions == 2)
            np.testing.assert_array_equal(executor.run_sync([ONE]), [ONE])
    assert "has been silent" not in daemon.log()


class Unclosable(PreparedModel):
    inputs = outputs = ()

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return list(inputs)

    def close(self) -> None:
        raise ZeroDivisionError("the vendor's mistake")


def test_a_model_that_cannot_be_closed(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; everything else is freed all the same."""
    closed: list[int] = []
    loaded_alone(Unclosable(), lambda: closed.append(0)).close()
    session = Session(DaemonSettings(), "client", freed_at_once())
    for number in (1, 2):
        session.add_model(lone_model(Unclosable(), partial(closed.append, number)))
    session.buffers.allocate(KIB)
    session.close()
    assert closed == [0, 1, 2]
    assert session.budget.used_bytes == 0
    assert caplog.text.count("ZeroDivisionError: the vendor's mistake") == 3


# ---- constants


def test_a_broken_upload_makes_room() -> None:
    """Unless somebody still writes it, and after the constants that no model uses."""
    budget = MemoryBudget(8 * KIB)
    pool = ConstantPool(budget)
    unused = Constant.of(np.zeros(KIB // 2, np.float32))
    assert pool.write(unused.sha256, 2 * KIB, 0, bytes(2 * KIB))
    pool.write(b"w" * 32, 2 * KIB, 0, b"some")
    pool.write(b"b" * 32, 2 * KIB, 0, b"some")
    pool.pause([b"b" * 32])
    pool.write(b"c" * 32, 4 * KIB, 0, b"some")
    pool.write(b"b" * 32, 2 * KIB, 4, b"more")  # The broken one is still there; the unused one went.
    pool.pause([b"b" * 32])
    pool.write(b"d" * 32, 2 * KIB, 0, b"some")
    pool.write(b"w" * 32, 2 * KIB, 4, b"more")
    with pytest.raises(OutOfMemory):
        pool.write(b"b" * 32, 2 * KIB, 0, b"some")
    assert budget.used_bytes == 8 * KIB


def test_a_wrong_size_does_not_poison_a_constant() -> None:
    """Neither for a model that has it in its right size, nor for its upload."""
    pool, array = ConstantPool(MemoryBudget(1 << 20)), np.arange(512, dtype=np.float32)
    entry = Constant.of(array)
    by_digest = Constant(entry.sha256, entry.size_bytes)
    through = TensorSpec(DataType.FLOAT32, (512,))
    graph = Graph(tensors=(through, through), nodes=(), inputs=(1,), outputs=(1,), constants={0: by_digest})
    pool.write(entry.sha256, 100_000, 0, b"some")
    missing: Any = pool.acquire(graph)
    assert missing.received_bytes == {entry.sha256: 0}
    with pytest.raises(InvalidParameter, match="before it was 100000"):
        pool.write(entry.sha256, entry.size_bytes, 4, b"more")
    assert pool.write(entry.sha256, entry.size_bytes, 0, array.tobytes())
    assert isinstance(pool.acquire(graph), Graph)


# ---- runs


def test_inputs_are_those_of_the_moment(start_daemon: StartDaemon, gate: Path) -> None:
    """A client may write its buffer again while the run that reads it goes on."""
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}")
    with Observer(daemon.address) as observer, built(daemon.address) as (connection, model_id):
        buffer_id = allocate(connection, 4)
        write(connection, buffer_id, (ONE * 5).tobytes())
        request = prepared_model_pb2.RunRequest(model_id=model_id, inputs=[region(buffer_id, 4)])
        with ThreadPoolExecutor(1) as pool:
            run = pool.submit(connection.call, "PreparedModel.Run", request, LONG_S)
            observer.wait_for(lambda state: state.running == 1)
            write(connection, buffer_id, (ONE * 7).tobytes())
            gate.write_bytes(b"")
            assert wire.io_array(run.result(DEADLINE_S).outputs[0]).tolist() == [5]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [((4, 4), "2 regions for outputs were given; the model has 1"), ((3,), "it has 4 bytes, its reg")],
)
def test_places_of_outputs_are_checked_before_the_run(
    start_daemon: StartDaemon, sizes: tuple[int, ...], said: str
) -> None:
    daemon = start_daemon("--backend", "slow")
    with built(daemon.address, elements=1) as (connection, model_id):
        buffer_id = allocate(connection, 8)
        request = run_request(model_id, outputs=[region(buffer_id, size) for size in sizes])
        with pytest.raises(InvalidParameter, match=said):
            connection.call("PreparedModel.Run", request, LONG_S)
    assert "run started" not in daemon.log()


# ---- settings


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("heartbeat-timeout-s", "nan"),
        ("heartbeat-timeout-s", "inf"),
        ("heartbeat-timeout-s", "5000000"),
        ("drain-timeout-s", "nan"),
        ("drain-timeout-s", "-1"),
        ("session-models", str(1 << 32)),
        ("session-streams", "1"),
        ("session-streams", str(1 << 32)),
        ("session-calls", "0"),
        ("max-sessions", str(1 << 64)),
        ("session-bytes", str(1 << 63)),
        ("tensor-bytes", str(1 << 63)),
        ("message-bytes", str((1 << 31) - 1)),
    ],
)
def test_settings_out_of_range(flag: str, value: str) -> None:
    """A line that says what would be right, not a traceback."""
    ended = CliRunner().invoke(main, ["serve", f"--{flag}", value])
    assert ended.exit_code == 2
    assert f"Invalid value for '--{flag}'" in ended.output
    assert f"{value} is not in the range" in ended.output or f"{float(value)} is not in the range" in ended.output


@pytest.mark.parametrize(
    ("flag", "value", "said"),
    [
        ("lease-s", "abc", "'abc' is not a valid number of 0 to 86,400."),
        ("max-sessions", "1.5", "'1.5' is not a valid whole number of 1 to 65,536."),
    ],
)
def test_settings_that_are_no_numbers(flag: str, value: str, said: str) -> None:
    ended = CliRunner().invoke(main, ["serve", f"--{flag}", value])
    assert ended.exit_code == 2
    assert said in ended.output


def test_the_most_of_everything_starts(start_daemon: StartDaemon) -> None:
    """Values in range work."""
    most = {
        "heartbeat-timeout-s": "86400",
        "max-sessions": str(1 << 16),
        "session-streams": str(1 << 16),
        "session-models": str(1 << 16),
        "session-bytes": str((1 << 63) - 1),
        "tensor-bytes": str((1 << 63) - 1),
        "message-bytes": str((1 << 31) - (1 << 20)),
    }
    daemon = start_daemon(*(part for flag, value in most.items() for part in (f"--{flag}", value)))
    with built(daemon.address) as (connection, model_id):
        reply = connection.call("PreparedModel.Run", run_request(model_id), LONG_S)
        assert wire.io_array(reply.outputs[0]).tolist() == [1]
