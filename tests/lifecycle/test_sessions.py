"""A client that dies, stops or falls silent takes everything it had with it; and nothing grows."""

import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from client_process import BUFFER_BYTES, WEIGHTS, ClientProcess
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model, weighted_model
from observer import Observer
from part import examples
from waiting import until

from nnrt_client import (
    Compilation,
    Executor,
    Runtime,
    Settings,
    TimedOut,
    UnavailableDevice,
)
from nnrt_client.build.compilation import prepared_of
from nnrt_client.session import channel
from nnrt_client.session.device import session_of
from nnrt_device_service.transport import server
from nnrt_hdi.v2 import device_pb2, device_pb2_grpc, prepared_model_pb2, session_pb2, session_pb2_grpc
from nnrt_hdi.wire import SESSION_METADATA

ONE = np.ones(1, np.float32)
WEIGHT_BYTES = WEIGHTS * 4
MIB = 1 << 20
# In the tables of /proc/net.
_ESTABLISHED = "01"

HEARTBEAT_S = 1.0
LEASE_S = 0.2


def wait_for_log(daemon: DaemonProcess, text: str, times: int = 1) -> None:
    """Wait until the daemon has logged this that many times."""
    until(lambda: daemon.log().count(text) >= times, daemon.log)


def wait_for_descriptors(daemon: DaemonProcess, most: int) -> None:
    """Wait until the daemon has that many descriptors or fewer: a socket closes shortly after its session."""
    until(lambda: daemon.descriptor_count() <= most, daemon.descriptor_count)


def connections_to(daemon: DaemonProcess) -> int:
    """Connections that the daemon has, beside the socket on which it listens."""
    port = f":{int(daemon.address.rpartition(':')[2]):04X}"
    tables = Path("/proc/net/tcp").read_text(), Path("/proc/net/tcp6").read_text()
    rows = [line.split() for table in tables for line in table.splitlines()[1:]]
    return sum(row[1].endswith(port) and row[3] == _ESTABLISHED for row in rows)


# ---- idle


def test_a_session_has_one_thread(shared_daemon: DaemonProcess) -> None:
    """It reads the session's stream. The loop, which all sessions have, beats and watches for silence."""
    address = shared_daemon.address
    with Runtime([address]) as runtime:
        device = runtime.device()
        last_heard = session_of(device).state
        until(lambda: session_of(device).state is not last_heard)  # A beat was answered.
        names = [thread.name for thread in threading.enumerate() if address in thread.name]
        assert names == [f"nnrt-session {address}"]


def test_a_client_closes_the_connection_that_it_does_not_use(
    start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the daemon does, of which gRPC tells on the client's stderr. gRPC may take twice as long as it is told."""
    assert 2 * channel._IDLE_MS < server._IDLE_S * 1000
    monkeypatch.setattr(channel, "_IDLE_MS", 100)
    daemon = start_daemon("--no-shared-memory")
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        session = session_of(device)
        until(lambda: connections_to(daemon) == 1)
        device.status()
        assert session_of(device) is session


# ---- killed


@pytest.mark.parametrize(
    ("what", "held_bytes", "runs", "models"),
    [
        pytest.param("idle", WEIGHT_BYTES + BUFFER_BYTES, (0, 0), 1, id="idle"),
        pytest.param("run", WEIGHT_BYTES, (1, 5), 1, id="during runs"),
        pytest.param("upload", WEIGHT_BYTES, (0, 0), 0, id="during an upload"),
    ],
)
def test_killed_client_is_cleaned_up(
    start_daemon: StartDaemon, what: str, held_bytes: int, runs: tuple[int, int], models: int
) -> None:
    """Session, runs, models, uploads and buffers of a client that is killed are freed when its lease is over."""
    daemon = start_daemon("--backend", "slow", "--lease-s", str(LEASE_S))
    with ClientProcess(daemon.address, what) as client, Observer(daemon.address) as observer:
        observer.wait_for(
            lambda state: (state.sessions, state.running, state.queued) == (2, *runs) and state.held_bytes >= held_bytes
        )
        client.kill()
        observer.wait_until_empty()
    wait_for_log(daemon, "model closed", models)


def test_client_that_leaves_without_closing(start_daemon: StartDaemon) -> None:
    """A program that ends with a run in flight and everything open ends at once, and the daemon notices."""
    daemon = start_daemon("--backend", "slow")
    with ClientProcess(daemon.address, "leave") as client, Observer(daemon.address) as observer:
        assert client.wait() == 0
        observer.wait_until_empty()


def test_death_of_a_client_leaves_others_alone(start_daemon: StartDaemon) -> None:
    """The run of another client that waits behind the dead one's gets its turn."""
    daemon = start_daemon("--backend", "slow", "--lease-s", str(LEASE_S))
    with (
        ClientProcess(daemon.address, "run") as client,
        Observer(daemon.address) as observer,
        Runtime([daemon.address]) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
    ):
        compilation.build()
        with Executor(compilation) as executor:
            observer.wait_for(lambda state: state.running == 1)
            waiting = executor.submit([ONE * 7])
            observer.wait_for(lambda state: state.queued == 6)
            assert "run started with 7.0" not in daemon.log()
            client.kill()
            observer.wait_for(lambda state: (state.sessions, state.running, state.queued) == (2, 1, 0))
            wait_for_log(daemon, "run started with 7.0")
            assert waiting.cancel()


# ---- silent


def test_stopped_client_is_hung_up(start_daemon: StartDaemon) -> None:
    """SIGSTOP: nothing ends by itself, so the daemon ends the session after its heartbeat timeout and the lease."""
    daemon = start_daemon("--backend", "slow", "--heartbeat-timeout-s", str(HEARTBEAT_S), "--lease-s", str(LEASE_S))
    with ClientProcess(daemon.address, "run") as client, Observer(daemon.address) as observer:
        observer.wait_for(lambda state: (state.sessions, state.running) == (2, 1))
        client.send(signal.SIGSTOP)
        stopped_at = time.monotonic()
        observer.wait_until_empty()
        # Its last beat may be a quarter of the timeout old when it stops.
        assert time.monotonic() - stopped_at > HEARTBEAT_S * 0.7
    assert "has been silent for too long" in daemon.log()


@contextmanager
def raw_session(daemon: DaemonProcess, *requests: Any) -> Iterator[Any]:
    """A session's stream that sends these messages and then nothing."""
    outbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for request in requests:
        outbox.put(request)
    with grpc.insecure_channel(daemon.address) as channel:
        try:
            yield session_pb2_grpc.DeviceSessionStub(channel).Open(iter(outbox.get, None), timeout=60)
        finally:
            outbox.put(None)


@pytest.mark.parametrize(
    "requests",
    [
        pytest.param([], id="no Hello"),
        pytest.param([session_pb2.SessionRequest(hello=session_pb2.Hello())], id="Hello and no Beat"),
    ],
)
def test_silent_client_is_hung_up(start_daemon: StartDaemon, requests: list[Any]) -> None:
    """A client whose gRPC answers but which sends no Beat is ended by the daemon, even before Hello."""
    daemon = start_daemon("--heartbeat-timeout-s", str(HEARTBEAT_S), "--lease-s", str(LEASE_S))
    opened_at = time.monotonic()
    with raw_session(daemon, *requests) as replies:
        with pytest.raises(grpc.RpcError) as ended:
            for reply in replies:
                assert reply.HasField("welcome")
        assert ended.value.code() is grpc.StatusCode.CANCELLED
        assert time.monotonic() - opened_at > HEARTBEAT_S * 0.9
    with Observer(daemon.address) as observer:
        observer.wait_until_empty()


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        ([session_pb2.SessionRequest(beat=session_pb2.Beat())], "the first message of a session must be Hello"),
        ([session_pb2.SessionRequest()], "the first message of a session must be Hello"),
        (
            [session_pb2.SessionRequest(hello=session_pb2.Hello()), session_pb2.SessionRequest()],
            "after Welcome comes Beat or Goodbye, not nothing",
        ),
        ([session_pb2.SessionRequest(hello=session_pb2.Hello())] * 2, "after Welcome comes Beat or Goodbye, not hello"),
    ],
)
def test_wrong_order_of_messages(shared_daemon: DaemonProcess, requests: list[Any], message: str) -> None:
    """The daemon says what should have come, and ends the session."""
    with raw_session(shared_daemon, *requests) as replies:
        with pytest.raises(grpc.RpcError) as ended:
            list(replies)
        assert ended.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert message in ended.value.details()


def test_every_call_keeps_a_session_alive(start_daemon: StartDaemon) -> None:
    """A client that only calls is not silent."""
    daemon = start_daemon("--heartbeat-timeout-s", "1.5", "--lease-s", "0")
    hello = session_pb2.SessionRequest(hello=session_pb2.Hello())
    with raw_session(daemon, hello) as replies, grpc.insecure_channel(daemon.address) as channel:
        metadata = ((SESSION_METADATA, next(replies).welcome.session_id),)
        stub = device_pb2_grpc.NnrtDeviceStub(channel)
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            stub.GetDeviceStatus(device_pb2.GetDeviceStatusRequest(), metadata=metadata)
        with pytest.raises(grpc.RpcError) as ended:
            next(replies)  # Now it is silent.
        assert ended.value.code() is grpc.StatusCode.CANCELLED
        with pytest.raises(grpc.RpcError) as refused:
            stub.GetDeviceStatus(device_pb2.GetDeviceStatusRequest(), metadata=metadata)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.parametrize("metadata", [(), ((SESSION_METADATA, b"guess"),)])
def test_calls_need_a_session(shared_daemon: DaemonProcess, metadata: Any) -> None:
    """Without one, or with a guessed one, nothing works."""
    with grpc.insecure_channel(shared_daemon.address) as channel:
        stub = device_pb2_grpc.NnrtDeviceStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.AllocateBuffer(device_pb2.AllocateBufferRequest(length=1), metadata=metadata)
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND


def test_handles_are_the_sessions_own(shared_daemon: DaemonProcess) -> None:
    """Model ids of one session mean nothing in another."""
    with (
        Runtime([shared_daemon.address]) as mine,
        Runtime([shared_daemon.address]) as theirs,
        Compilation(identity_model(), mine.device()) as compilation,
    ):
        compilation.build()
        other = session_of(theirs.device())
        request = prepared_model_pb2.GetInputDimRangesRequest(model_id=prepared_of(compilation).model_id)
        with pytest.raises(UnavailableDevice, match="this session has no model"):
            other.call("PreparedModel.GetInputDimRanges", request, 5)


def test_too_many_clients(start_daemon: StartDaemon) -> None:
    """The one too many is told so; when another leaves there is room."""
    daemon = start_daemon("--max-sessions", "2")
    with Observer(daemon.address) as observer, Runtime([daemon.address]) as first:
        first.device()
        with Runtime([daemon.address]) as second:
            assert second.devices() == []
        first.close()
        observer.wait_for(lambda state: state.sessions == 1)
        with Runtime([daemon.address]) as third:
            third.device()


# ---- left over


def test_build_given_up_leaves_no_model(start_daemon: StartDaemon) -> None:
    """A model that is ready when its client has stopped waiting for it is released."""
    daemon = start_daemon("--backend", "late", "--session-models", "1")
    with Runtime([daemon.address], Settings(build_timeout_s=0.3)) as runtime:
        device = runtime.device()
        for build in range(3):
            with pytest.raises(TimedOut), Compilation(identity_model(), device) as compilation:
                compilation.build()
            wait_for_log(daemon, "model closed", build + 1)


def test_release_frees_a_place(start_daemon: StartDaemon) -> None:
    """Models beyond the limit are refused with the reason; closing one makes room."""
    daemon = start_daemon("--session-models", "2")
    with Runtime([daemon.address]) as runtime, ExitStack() as stack:
        device = runtime.device()
        compilations = [stack.enter_context(Compilation(identity_model(), device)) for _ in range(4)]
        compilations[0].build()
        compilations[1].build()
        with pytest.raises(Exception, match="this session has 2 prepared models, its limit"):
            compilations[2].build()
        compilations[0].close()
        compilations[3].build()


def test_memory_is_flat_over_runs(start_daemon: StartDaemon) -> None:
    """A thousand runs that each move 128 KiB leave nothing behind."""
    daemon = start_daemon()
    x = np.zeros(1 << 14, np.float32)
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:

            def run(times: int) -> None:
                for _ in range(times):
                    executor.run_sync([x])

            run(200)
            before = daemon.memory_bytes(), daemon.descriptor_count()
            run(1000)
            assert daemon.memory_bytes() - before[0] < 8 * MIB
            wait_for_descriptors(daemon, before[1])


def test_memory_is_flat_over_sessions(start_daemon: StartDaemon) -> None:
    """Many clients that each bring 1 MiB of weights, run and go leave nothing behind."""
    daemon = start_daemon()
    model = weighted_model(1 << 18)

    def serve(clients: int) -> None:
        for _ in range(clients):
            with Runtime([daemon.address]) as runtime:
                compilation = Compilation(model, runtime.device())
                compilation.build()
                Executor(compilation).run_sync([ONE])
        with Observer(daemon.address) as observer:
            observer.wait_until_empty()

    serve(20)
    before = daemon.memory_bytes(), daemon.descriptor_count()
    serve(examples(200))
    assert daemon.memory_bytes() - before[0] < 16 * MIB
    wait_for_descriptors(daemon, before[1])
