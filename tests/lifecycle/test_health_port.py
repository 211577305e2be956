"""What a supervisor that speaks no TLS learns of a daemon that speaks nothing else."""

import os
import re
import signal
import socket
from pathlib import Path

import grpc
import numpy as np
import pytest
import waiting
from click.testing import CliRunner
from conftest import StartDaemon
from daemon_process import DaemonProcess
from grpc_health.v1 import health_pb2, health_pb2_grpc
from networks import identity_model
from observer import Observer

from nnrt_client import Settings, load
from nnrt_device_service.cli import main
from nnrt_hdi.v2 import session_pb2, session_pb2_grpc

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def health_address(daemon: DaemonProcess) -> str:
    def told() -> re.Match[str] | None:
        return re.search(r"health service on (\S+)", daemon.log())

    found = waiting.until(told)
    assert found is not None
    return found[1]


def check(address: str, service: str = "") -> int:
    with grpc.insecure_channel(address) as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
        return int(reply.status)


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    folder = tmp_path / "keys"
    for arguments in (
        ["server", str(folder), "--host", "localhost"],
        ["token", str(folder), "me", "--role", "compile"],
    ):
        result = CliRunner().invoke(main, ["keys", *arguments])
        assert result.exit_code == 0, result.output
    return folder


def test_it_answers_beside_tls(start_daemon: StartDaemon, keys: Path) -> None:
    tls = ("--tls-cert", str(keys / "localhost.pem"), "--tls-key", str(keys / "localhost-key.pem"))
    daemon = start_daemon(
        *tls, "--access", str(keys / "access"), "--health-listen", "127.0.0.1:0", listen="localhost:0"
    )
    assert len(daemon.addresses) == 1  # Where the device is; the health port is none of them.
    assert check(health_address(daemon)) == SERVING
    assert check(health_address(daemon), "nnrt_hdi.v2.PreparedModel") == SERVING
    settings = Settings(tls_ca=str(keys / "ca.pem"), token_file=str(keys / "me.token"))
    with load(identity_model(), daemon.address, settings=settings) as session:
        np.testing.assert_array_equal(next(iter(session.run([np.ones(1, "f4")]).values())), [1])


def test_it_has_nothing_else(start_daemon: StartDaemon) -> None:
    daemon = start_daemon("--health-listen", "127.0.0.1:0")
    with grpc.insecure_channel(health_address(daemon)) as channel:
        with pytest.raises(grpc.RpcError) as watched:
            next(health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=5))
        assert watched.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(grpc.RpcError) as opened:
            next(session_pb2_grpc.DeviceSessionStub(channel).Open(iter([session_pb2.SessionRequest()]), timeout=5))
        assert opened.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_it_tells_of_a_drain(start_daemon: StartDaemon, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    daemon = start_daemon("--backend", "gated", "--option", f"gate={gate}", "--health-listen", "127.0.0.1:0")
    with Observer(daemon.address) as observer, load(identity_model(), daemon.address) as session:
        under_way = session.submit([np.ones(1, "f4")], timeout_ms=60_000)
        observer.wait_for(lambda state: state.running == 1)
        daemon.send(signal.SIGTERM)
        observer.wait_for(lambda state: state.draining)
        assert check(health_address(daemon)) == NOT_SERVING
        gate.write_bytes(b"")
        under_way.result(30)
        assert daemon.wait() == 0


@pytest.mark.parametrize("address", ["50052", "127.0.0.1:70000", "unix:/tmp/health", "nowhere.invalid:1"])
def test_an_address_that_is_none_is_refused(start_daemon: StartDaemon, address: str) -> None:
    with pytest.raises(RuntimeError, match=re.escape(address)):
        start_daemon("--health-listen", address)


def test_a_port_that_is_taken_is_refused(start_daemon: StartDaemon) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(RuntimeError, match="Address already in use"),
    ):
        start_daemon("--health-listen", f"127.0.0.1:{taken.getsockname()[1]}")
