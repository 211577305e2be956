"""A daemon whose host lets it start no more threads."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import grpc
import numpy as np
import pytest
from cgroups import cgroup
from conftest import StartDaemon
from daemon_process import DaemonProcess
from grpc_health.v1 import health_pb2, health_pb2_grpc
from networks import identity_model
from raw_client import DEADLINE_S, METHODS, Conversation, RawClient
from waiting import until

from nnrt_client import Compilation, Executor, Runtime
from nnrt_hdi.errors import NnrtError, OutOfMemory

STREAMS = 8
ONE = np.ones(1, np.float32)


@contextmanager
def few_threads(daemon: DaemonProcess, more: int) -> Iterator[Callable[[], None]]:
    """Let a daemon start so many threads more; what is yielded lifts the limit."""
    with cgroup("pids") as group:
        group.add(daemon.pid)
        group.set("pids.max", group.get("pids.current") + more)
        try:
            yield lambda: group.set("pids.max", "max")
        finally:
            daemon.kill()


def runs_once(address: str) -> None:
    with Runtime([address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        with Executor(compilation) as executor:
            assert executor.run_sync([ONE])[0] == ONE


def open_streams(client: RawClient) -> list[Conversation]:
    method = METHODS["PreparedModel.RunStream"]
    return [Conversation(client.channel, method, client.metadata) for _ in range(STREAMS)]


def test_calls_without_a_thread_are_refused(start_daemon: StartDaemon) -> None:
    """With a typed error, while those that have one are served; and all are served when there are threads again."""
    daemon = start_daemon()
    with few_threads(daemon, more=30) as lift, ExitStack() as honest:
        runtime = honest.enter_context(Runtime([daemon.address]))
        compilation = honest.enter_context(Compilation(identity_model(), runtime.device()))
        compilation.build()
        executor = honest.enter_context(Executor(compilation))
        assert executor.run_sync([ONE])[0] == ONE
        with ExitStack() as attackers:
            clients: list[RawClient] = []
            with pytest.raises((NnrtError, grpc.RpcError)):
                for _ in range(30):
                    client = attackers.enter_context(RawClient(daemon.address))
                    clients.append(client)
                    for stream in open_streams(client):
                        attackers.callback(stream.cancel)
            refused = Conversation(clients[0].channel, METHODS["NnrtDevice.GetDeviceStatus"], clients[0].metadata)
            attackers.callback(refused.cancel)
            refused.send(METHODS["NnrtDevice.GetDeviceStatus"].request())
            with pytest.raises(OutOfMemory, match="start no more threads"):
                refused.receive()
            with grpc.insecure_channel(daemon.address) as channel, pytest.raises(grpc.RpcError) as health:
                health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE_S)
            assert health.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert executor.run_sync([ONE])[0] == ONE
        lift()
        runs_once(daemon.address)
        assert executor.run_sync([ONE])[0] == ONE
        assert "calls are refused" in daemon.log()


def test_those_that_stay_are_served_after_the_others_have_gone(start_daemon: StartDaemon) -> None:
    """The threads of calls that have ended answer others, though the limit stays."""
    daemon = start_daemon("--no-shared-memory")
    with few_threads(daemon, more=30):
        for _ in range(3):
            with ExitStack() as attackers, pytest.raises((NnrtError, grpc.RpcError)):
                for _ in range(30):
                    client = attackers.enter_context(RawClient(daemon.address))
                    for stream in open_streams(client):
                        attackers.callback(stream.cancel)
            until(lambda: _is_served(daemon.address))


def test_a_daemon_without_threads_ends(start_daemon: StartDaemon) -> None:
    """In time, though gRPC starts a thread to end its calls."""
    daemon = start_daemon("--drain-timeout-s", "0.1")
    with RawClient(daemon.address) as client, few_threads(daemon, more=0):
        streams = open_streams(client)
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
        for stream in streams:
            stream.cancel()


def _is_served(address: str) -> bool:
    try:
        runs_once(address)
    except NnrtError:
        return False
    return True
