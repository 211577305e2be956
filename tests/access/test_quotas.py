"""What one identity may take: it keeps nobody else out."""

import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from conftest import StartDaemon
from freed_at_once import freed_at_once
from grpc_health.v1 import health_pb2, health_pb2_grpc
from networks import identity_model
from waiting import DEADLINE_S, until

from access.conftest import Access, refusal, start
from nnrt_client import (
    Compilation,
    DataType,
    Executor,
    OperationFailed,
    OutOfMemory,
    ResidentTensor,
    Runtime,
    Settings,
    TensorDesc,
)
from nnrt_device_service.scheduling.compile_quota import CompileQuota
from nnrt_device_service.sessions.registry import SessionRegistry
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings as DaemonSettings
from nnrt_hdi.access.callers import host_of
from nnrt_hdi.access.identity import Identity, Role

MIB = 1 << 20


def test_sessions(start_daemon: StartDaemon, access: Access, closing: ExitStack) -> None:
    """An identity has a part of the places, all have what is not reserved, and who administers gets in even then."""
    settings = {name: access.add(name, role) for name, role in (("a", "run"), ("b", "run"), ("c", "administer"))}
    daemon = start(start_daemon, access, "--max-sessions", "16")

    def open_session(name: str) -> None:
        closing.enter_context(Runtime([daemon.address], settings[name])).device()

    for _ in range(12):
        open_session("a")
    assert "a has 12 sessions, its limit (--identity-share of --max-sessions)" in refusal(daemon.address, settings["a"])
    for _ in range(3):
        open_session("b")
    assert "the daemon serves 15 clients, its limit (--max-sessions)" in refusal(daemon.address, settings["b"])
    open_session("c")


def test_a_host_that_nobody_knows_has_a_part(start_daemon: StartDaemon, closing: ExitStack) -> None:
    """Without an access file everybody administers, so that nothing is reserved for others than the others."""
    daemon = start_daemon("--max-sessions", "4")
    for _ in range(3):
        closing.enter_context(Runtime([daemon.address])).device()
    assert "host 127.0.0.1 has 3 sessions, its limit" in refusal(daemon.address, Settings())


def test_bytes(start_daemon: StartDaemon, access: Access, closing: ExitStack) -> None:
    """Of all sessions of an identity together."""
    a, b = access.add("a", "run"), access.add("b", "run")
    daemon = start(start_daemon, access, "--held-bytes", str(40 * MIB))
    first, second, other = (closing.enter_context(Runtime([daemon.address], its)).device() for its in (a, a, b))
    desc = TensorDesc(DataType.UINT8, [10 * MIB])
    for device in (first, second):
        closing.enter_context(ResidentTensor(device, desc)).write(np.zeros(10 * MIB, np.uint8))
    with pytest.raises(OutOfMemory, match=r"a's limit of .*--identity-share or --held-bytes"), ExitStack() as more:
        for device in (second, first):
            more.enter_context(ResidentTensor(device, desc)).write(np.zeros(10 * MIB, np.uint8))
    closing.enter_context(ResidentTensor(other, desc)).write(np.zeros(10 * MIB, np.uint8))


def test_compile_seconds(start_daemon: StartDaemon, access: Access, tmp_path: Path, closing: ExitStack) -> None:
    """Who has spent his compiles no more for now; others do, and what is prepared goes on."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    a, b = access.add("a", "compile"), access.add("b", "compile")
    flags = (
        "--backend",
        "building",
        "--option",
        f"gate={gate}",
        "--identity-compile-s",
        "0.5",
        "--share-models",
        "none",
    )
    daemon = start(start_daemon, access, *flags)

    def compilation(settings: Settings) -> Compilation:
        device = closing.enter_context(Runtime([daemon.address], settings)).device()
        return closing.enter_context(Compilation(identity_model(), device))

    def build(settings: Settings, least_s: float = 0.0) -> Compilation:
        """Takes as long at least."""
        made, began = compilation(settings), time.monotonic()
        future = pool.submit(made.build)
        with gate.open("wb"):
            until(lambda: time.monotonic() - began > least_s)
        future.result(DEADLINE_S)
        return made

    pool = closing.enter_context(ThreadPoolExecutor(1))
    built = build(a, least_s=0.6)
    for again in (compilation(a), compilation(a)):
        with pytest.raises(OperationFailed, match=r"--identity-compile-s\) is 0.5 s. Try again in \d+ s"):
            again.build()
    with Executor(built) as executor:
        assert executor.run_sync([np.ones(1, np.float32)])[0] == 1
    build(b)


def test_compile_seconds_come_back() -> None:
    """Within an hour, and evenly; who has them all again is forgotten."""
    now = 0.0
    quota = CompileQuota(100, lambda: now)
    for _ in range(2):
        quota.require_room("a")
        quota.spend("a", 75)
    quota.require_room("b")
    quota.spend("b", 1)
    with pytest.raises(OutOfMemory, match=r"a has had the daemon compile for 150.0 s .* Try again in 1801 s"):
        quota.require_room("a")
    now = 1799
    with pytest.raises(OutOfMemory):
        quota.require_room("a")
    now = 1801
    quota.require_room("a")
    quota.spend("a", 10)
    assert list(quota._repaid_at) == ["a"]
    with pytest.raises(OutOfMemory):
        quota.require_room("a")


def test_what_a_session_leaves_comes_back() -> None:
    """Also to the whole, where the identity has other sessions."""
    registry = SessionRegistry(DaemonSettings(), 100 * MIB, freed_at_once())
    alice = Identity("name", "alice", Role.RUN)
    sessions = [registry.open("client", lambda: None, alice) for _ in range(2)]
    for session in sessions:
        session.budget.reserve(30 * MIB)
    with pytest.raises(OutOfMemory):
        sessions[0].budget.reserve(30 * MIB)
    left = sessions.pop()
    registry.close(left)
    del left, session
    gc.collect()
    sessions[0].budget.reserve(30 * MIB)
    assert registry.budget.used_bytes == 60 * MIB


def test_an_identity_with_its_share_makes_nobody_else_go() -> None:
    """One of its own sessions that are not connected makes room, or none."""
    registry = SessionRegistry(DaemonSettings(max_sessions=4), 100 * MIB, freed_at_once())
    alice, bob = (Identity("name", name, Role.RUN) for name in ("alice", "bob"))

    def open_session(identity: Identity, is_away: bool = False) -> Session:
        def hang_up() -> None:
            """Its client is told nothing."""

        session = registry.open("client", hang_up, identity)
        if is_away:
            registry.detach(session, hang_up)
        return session

    away = open_session(bob, is_away=True)
    own = [open_session(alice) for _ in range(3)]
    with pytest.raises(OutOfMemory, match="the daemon serves 4 clients"):
        open_session(alice)
    registry.close(own.pop())
    gone = open_session(alice, is_away=True)
    open_session(alice)
    assert (away.is_open, gone.is_open) == (True, False)
    open_session(bob)
    assert not away.is_open


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.7:50000", "10.0.0.7"),
        ("ipv6:%5B::ffff:10.0.0.7%5D:50000", "10.0.0.7"),
        ("ipv6:%5B2001:db8:0:7:1234::1%5D:50000", "2001:db8:0:7::/64"),
        ("ipv6:[2001:db8:0:7:ffff:ffff:ffff:ffff]:50001", "2001:db8:0:7::/64"),
        ("ipv6:%5B2001:db8:0:8::1%5D:50000", "2001:db8:0:8::/64"),
        ("ipv6:%5Bfe80::1%25eth0%5D:50000", "fe80::/64"),
        ("ipv4:127.1.2.3:50000", "127.0.0.1"),
        ("ipv6:%5B::1%5D:50000", "127.0.0.1"),
        ("ipv6:%5B::ffff:127.0.0.2%5D:50000", "127.0.0.1"),
        ("unix:", "unix"),
        ("unix:/run/nnrt.sock", "unix"),
    ],
)
def test_addresses_of_one_host(peer: str, host: str) -> None:
    """Those that it may choose itself are no others."""
    assert host_of(peer) == host


def test_another_address_of_loopback_is_no_other_host(start_daemon: StartDaemon, closing: ExitStack) -> None:
    daemon = start_daemon("--max-sessions", "4", "--insecure", listen="[::]:0")
    port = daemon.address.rpartition(":")[2]
    for address in ("127.0.0.1", "[::1]", "127.0.0.2"):
        closing.enter_context(Runtime([f"{address}:{port}"])).device()
    assert "host 127.0.0.1 has 3 sessions, its limit" in refusal(f"127.0.0.3:{port}", Settings())


def test_connections_of_a_host(start_daemon: StartDaemon, tmp_path: Path, closing: ExitStack) -> None:
    """Each that has a call under way, of whatever service; calls on one of them are as many as they like."""
    log = tmp_path / "audit"
    daemon = start_daemon("--host-connections", "3", "--audit-log", str(log), "--listen", f"unix:{tmp_path}/s")
    at_tcp, at_unix = daemon.addresses
    device = closing.enter_context(Runtime([at_tcp], Settings(share_memory=False))).device()
    watches = [watching(at_tcp, closing) for _ in range(2)]
    for watch in watches:
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
    assert "host 127.0.0.1 has 3 connections with calls under way, its limit; use fewer, or raise" in refusal(
        at_tcp, Settings()
    )
    assert '"method": "DeviceSession/Open", "cause": "host 127.0.0.1 has 3 connections' in log.read_text()
    with pytest.raises(grpc.RpcError, match=r"host 127\.0\.0\.1 has 3 connections") as refused:
        next(watching(at_tcp, closing))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    device.status()
    closing.enter_context(Runtime([at_unix])).device().status()
    watches.pop().cancel()
    until(lambda: is_welcome(at_tcp))


def watching(address: str, closing: ExitStack) -> Any:
    """A call on a connection of its own, which lasts."""
    channel = closing.enter_context(grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]))
    return health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())


def is_welcome(address: str) -> bool:
    with Runtime([address]) as runtime:
        return bool(runtime.devices())
