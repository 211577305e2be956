"""A daemon's orderly end, and its addresses."""

import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import warm
from blocked_call import BlockedCall
from conftest import StartDaemon
from daemon_process import DaemonProcess
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from networks import identity_model
from observer import Observer
from recorder import Recorder
from waiting import until

from nnrt_client import Compilation, DeviceStatus, Executor, NnrtError, Runtime, UnavailableDevice
from nnrt_client.session.device import session_of

ONE = np.ones(1, np.float32)
LONG_MS = 600_000
SERVICES = {"nnrt_hdi.v2.DeviceSession", "nnrt_hdi.v2.NnrtDevice", "nnrt_hdi.v2.PreparedModel", "nnrt_hdi.v2.Sequences"}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A run of the backend `gated` ends when this is opened for writing and closed."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def gated(start_daemon: StartDaemon, gate: Path, *arguments: str) -> DaemonProcess:
    return start_daemon("--backend", "gated", "--option", f"gate={gate}", *arguments)


def health_of(daemon: DaemonProcess) -> dict[str, int]:
    with grpc.insecure_channel(daemon.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return {
            name: stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5).status for name in ("", *SERVICES)
        }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_idle_daemon_ends_at_once(start_daemon: StartDaemon, number: signal.Signals) -> None:
    """With clients connected and nothing under way there is nothing to wait for."""
    daemon = start_daemon("--drain-timeout-s", "600")
    with Runtime([daemon.address]) as runtime:
        device = runtime.device()
        daemon.send(number)
        assert daemon.wait() == 0
        with pytest.raises(UnavailableDevice):
            device.status()
    assert "Traceback" not in daemon.log()


def test_drain_finishes_what_is_under_way(start_daemon: StartDaemon, gate: Path) -> None:
    """Health and sessions are told, new work is refused with UnavailableDevice, the result of the old work arrives."""
    daemon = gated(start_daemon, gate)
    assert set(health_of(daemon).values()) == {SERVING}
    recorder = Recorder()
    with (
        Observer(daemon.address) as observer,
        Runtime([daemon.address]) as runtime,
        Compilation(identity_model(), runtime.device()) as compilation,
        Compilation(identity_model(), runtime.device()) as unbuilt,
    ):
        device = runtime.device()
        compilation.build()
        with recorder.watch(Executor(compilation)) as executor:
            executor.run_async([ONE * 5], timeout_ms=LONG_MS, user_data="under way")
            observer.wait_for(lambda state: state.running == 1)
            daemon.send(signal.SIGTERM)
            state = observer.wait_for(lambda state: state.draining)
            assert DeviceStatus(state.status) is DeviceStatus.OFFLINE
            assert set(health_of(daemon).values()) == {NOT_SERVING}
            assert device.status() is DeviceStatus.OFFLINE
            assert runtime.devices() == []
            with pytest.raises(UnavailableDevice, match="shutting down"):
                executor.run_sync([ONE])
            for _ in range(2):  # A refused build may be tried again.
                with pytest.raises(UnavailableDevice, match="shutting down"):
                    unbuilt.build()
            executor.run_async([ONE], timeout_ms=LONG_MS, user_data="too late")
            recorder.wait(1)
            assert type(recorder.error("too late")) is UnavailableDevice
            gate.write_bytes(b"")
            recorder.wait(2)
            np.testing.assert_array_equal(recorder.outputs("under way"), [ONE * 5])
            assert daemon.wait() == 0
    assert not recorder.died
    assert "cut off" not in daemon.log()


def test_sessions_learn_of_the_drain(start_daemon: StartDaemon) -> None:
    """The client's own beats bring it, without a call."""
    daemon = start_daemon("--backend", "slow", "--heartbeat-timeout-s", "1")
    with Runtime([daemon.address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
        compilation.build()
        connection = session_of(runtime.device())
        with Executor(compilation) as executor, Observer(daemon.address) as observer:
            run = executor.submit([ONE])
            observer.wait_for(lambda state: state.running == 1)
            daemon.send(signal.SIGTERM)
            while not connection.state.is_draining:
                observer.wait_for(lambda state: state.draining)
            with pytest.raises(UnavailableDevice, match=rf"device at {daemon.address}: \w+ is shutting down"):
                runtime.device()
            assert run.cancel()
        assert daemon.wait() == 0


@pytest.mark.parametrize("backend", ["slow", "gated"])
def test_drain_time_is_over(start_daemon: StartDaemon, gate: Path, backend: str) -> None:
    """A run that doesn't end is cut off, whether it hears a cancellation or not; to its client that is a death."""
    arguments = ("--drain-timeout-s", "0.5", "--concurrent-runs", "2")
    daemon = (
        gated(start_daemon, gate, *arguments) if backend == "gated" else start_daemon("--backend", backend, *arguments)
    )
    recorder = Recorder()
    with Observer(daemon.address) as observer, Runtime([daemon.address]) as runtime:
        compilation = Compilation(identity_model(), runtime.device())
        compilation.build()
        executor = recorder.watch(Executor(compilation))
        for run in range(10):  # On the device, queued there, and queued here.
            executor.run_async([ONE], timeout_ms=LONG_MS, user_data=run)
        observer.wait_for(lambda state: (state.running, state.queued) == (2, 4))
        sent_at = time.monotonic()
        daemon.send(signal.SIGTERM)
        recorder.wait(10)
        assert recorder.last_at - sent_at > 0.5
        assert daemon.wait() == 0
    for run in range(6):
        assert recorder.died[run] == 1, recorder.done[run]
    # Those that waited here may have been refused in between; either way nobody hears anything twice.
    assert recorder.count == 10
    assert "is cut off" in daemon.log()


def test_run_sync_cut_off(start_daemon: StartDaemon) -> None:
    """It raises UnavailableDevice as after any other death."""
    daemon = start_daemon("--backend", "slow", "--drain-timeout-s", "0.1")
    with Observer(daemon.address) as observer, Runtime([daemon.address]) as runtime:
        compilation = Compilation(identity_model(), runtime.device())
        compilation.build()
        executor = Executor(compilation)
        calls = [BlockedCall(lambda: executor.run_sync([ONE])) for _ in range(4)]
        observer.wait_for(lambda state: (state.running, state.queued) == (1, 3))
        daemon.send(signal.SIGTERM)
        assert {type(call.wait().error) for call in calls} == {UnavailableDevice}
        assert daemon.wait() == 0


def test_a_client_that_waits_learns_of_the_end(start_daemon: StartDaemon) -> None:
    """A session without work ends with the daemon, and its error says what to do."""
    daemon = start_daemon()
    died: list[NnrtError] = []
    with Runtime([daemon.address]) as runtime:
        session_of(runtime.device()).on_death(died.append)
        daemon.send(signal.SIGTERM)
        assert daemon.wait() == 0
        until(lambda: died)
    assert re.search("it is gone: it (hung up|was shut down).*; load the model again, there or elsewhere", str(died[0]))


def test_drain_waits_for_a_build(start_daemon: StartDaemon) -> None:
    """Compiling is work under way too; one that doesn't end is cut off."""
    daemon = start_daemon("--backend", "compiling", "--drain-timeout-s", "0.5")
    with Runtime([daemon.address]) as runtime:
        begun = threading.Event()
        compilation = Compilation(identity_model(), runtime.device())
        call = BlockedCall(lambda: compilation.build(lambda *_: begun.set()))
        assert begun.wait(10)
        daemon.send(signal.SIGTERM)
        assert type(call.wait().error) is UnavailableDevice
        assert daemon.wait() == 0


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_at_once(
    start_daemon: StartDaemon, gate: Path, first: signal.Signals, second: signal.Signals
) -> None:
    """An operator who doesn't want to wait for the drain sends another SIGTERM, or types Ctrl-C twice."""
    daemon = gated(start_daemon, gate)
    with Observer(daemon.address) as observer, Runtime([daemon.address]) as runtime:
        compilation = Compilation(identity_model(), runtime.device())
        compilation.build()
        run = Executor(compilation).submit([ONE])
        observer.wait_for(lambda state: state.running == 1)
        daemon.send(first)
        observer.wait_for(lambda state: state.draining)
        daemon.send(second)
        assert daemon.wait() == -second
        assert isinstance(run.exception(10), UnavailableDevice)


# ---- addresses


def test_unix_socket_and_port_at_once(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """Every address that was asked for is served and printed, port 0 as the one it became."""
    unix = f"unix:{tmp_path}/nnrt.sock"
    daemon = start_daemon("--listen", unix)
    assert daemon.addresses[1:] == [unix]
    host, _, port = daemon.address.rpartition(":")
    assert host == "127.0.0.1"
    assert int(port) > 0
    for address in daemon.addresses:
        with Runtime([address]) as runtime, Compilation(identity_model(), runtime.device()) as compilation:
            compilation.build()
            with Executor(compilation) as executor:
                np.testing.assert_array_equal(executor.run_sync([ONE]), [ONE])
    with Runtime(daemon.addresses) as runtime:
        assert len(runtime.devices()) == 1  # One device, however it is reached.


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_ipv6(start_daemon: StartDaemon) -> None:
    """Brackets around the host, as in URLs."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this host has no IPv6: {error}")
    daemon = start_daemon(listen="[::1]:0")
    assert daemon.address.startswith("[::1]:")
    with Runtime([daemon.address]) as runtime:
        runtime.device()


def failed_start(*arguments: str) -> str:
    """Start a daemon that can't; what it says about it."""
    ended = warm.run(
        [sys.executable, "-m", "nnrt_device_service", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1] / "plugins")},
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    return ended.stderr


@pytest.fixture
def unix_listener(tmp_path: Path) -> Iterator[Path]:
    """A socket of somebody else."""
    path = tmp_path / "taken"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield path


def test_address_in_use(start_daemon: StartDaemon, tmp_path: Path, unix_listener: Path) -> None:
    """One line that names the address, no traceback; and who was there first stays."""
    daemon = start_daemon("--listen", f"unix:{tmp_path}/d")
    for address in (*daemon.addresses, f"unix:{unix_listener}"):
        said = failed_start("--listen", "127.0.0.1:0", "--listen", address)
        assert said.count("\n") == 1, said
        assert said.startswith(f"Error: address '{address}': ")
    for address in daemon.addresses:
        with Runtime([address]) as runtime:
            runtime.device()
    assert unix_listener.is_socket()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--listen", "nowhere"), "Error: --listen: address is 'nowhere'; use HOST:PORT or unix:PATH"),
        (
            ("--listen", "127.0.0.1:0", "--metrics-listen", "nowhere"),
            "Error: --metrics-listen 'nowhere': it has no port; use",
        ),
        (("--name", "caf\udce9"), "Error: --name: 'caf\\udce9' is not in UTF-8"),
        (("--listen", ":50999"), "Error: address ':50999': its host is empty; name one, for example 0.0.0.0"),
        (("--listen", "unix:"), "Error: address 'unix:': its path is empty; use unix:PATH"),
        (("--listen", "127.0.0.1:65536"), "Error: address '127.0.0.1:65536': port is '65536'; use 0..65535"),
        (("--listen", "127.0.0.1:http"), "Error: address '127.0.0.1:http': port is 'http'; use 0..65535"),
        (("--listen", "203.0.113.1:0"), "Error: address '203.0.113.1:0': can't listen there: Cannot assign"),
        (("--listen", "no.such.host.invalid:0"), "Error: address 'no.such.host.invalid:0': can't listen there: "),
        (("--listen", "unix:" + "x" * 108), f"Error: address 'unix:{'x' * 108}': its path has 108 bytes"),
        (
            ("--listen", "unix:/nonexistent/d"),
            "Error: address 'unix:/nonexistent/d': there is no directory '/nonexistent'",
        ),
        (
            ("--listen", "unix:a.sock.who"),
            "Error: address 'unix:a.sock.who': at that place the daemon of unix:a.sock asks clients who they are; use",
        ),
        (("--listen", f"unix:{__file__}"), f"Error: address 'unix:{__file__}': what is there is no socket"),
        (("--backend", "acme"), "Error: no backend named 'acme'; installed: accounting, "),
        (("--tls-cert", "a.pem"), "Error: TLS: --tls-cert is 'a.pem' and --tls-key ''; TLS needs both"),
        (("--backend", "skipped"), "Error: backend 'skipped' can't work here: there is no such accelerator"),
        (("--store-dir", __file__), f"Error: --store-dir '{__file__}': it can't be the model store: File exists"),
        (("--backend", "reference", "--option", "color=red"), "Error: the reference backend has no option 'color'"),
    ],
)
def test_daemon_that_cannot_start(arguments: tuple[str, ...], message: str) -> None:
    """One line that says what would be right, and exit code 1."""
    said = failed_start(*arguments)
    assert said.splitlines()[-1].startswith(message)
    assert "Traceback" not in said
    assert Path(__file__).is_file()


@pytest.mark.slow
def test_broken_backend_shows_its_traceback() -> None:
    """A vendor's mistake is not swallowed."""
    said = failed_start("--backend", "broken")
    assert "Traceback" in said
    assert "ZeroDivisionError: the vendor's mistake" in said
    assert said.splitlines()[-1].startswith("Error: backend 'broken' is broken: ZeroDivisionError(")


def test_stale_socket_is_taken_over(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """A killed daemon leaves nothing that keeps the next from starting; an orderly end leaves nothing at all."""
    path = tmp_path / "d"
    start_daemon(listen=f"unix:{path}").kill()
    assert {each.name for each in tmp_path.iterdir()} == {"d", "d.who"}
    with Runtime([f"unix:{path}.who"]) as runtime, pytest.raises(NnrtError) as refused:
        runtime.device()
    assert f"clients say there who they are; their daemon listens on unix:{path}, so use that" in str(refused.value)
    daemon = start_daemon(listen=f"unix:{path}")
    with Runtime([daemon.address]) as runtime:
        runtime.device()
    daemon.send(signal.SIGTERM)
    assert daemon.wait() == 0
    assert not list(tmp_path.iterdir())


def test_reflection_lists_the_services(shared_daemon: DaemonProcess) -> None:
    """Tools like grpcurl need no proto files."""
    with grpc.insecure_channel(shared_daemon.address) as channel:
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        (reply,) = stub.ServerReflectionInfo(iter([request]), timeout=5)
    names = {service.name for service in reply.list_services_response.service}
    assert names == SERVICES | {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
