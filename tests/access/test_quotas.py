"""What one identity may take: it keeps nobody else out."""

import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
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
from nnrt_device_service.access.identity import Identity, Role
from nnrt_device_service.scheduling.compile_quota import CompileQuota
from nnrt_device_service.sessions.registry import SessionRegistry
from nnrt_device_service.sessions.session import Session
from nnrt_device_service.settings import Settings as DaemonSettings

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
    flags = ("--backend", "building", "--option", f"gate={gate}", "--identity-compile-s", "0.5")
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
    assert list(quota._whole_again) == ["a"]
    with pytest.raises(OutOfMemory):
        quota.require_room("a")


def test_what_a_session_leaves_comes_back() -> None:
    """Also to the whole, where the identity has other sessions."""
    registry = SessionRegistry(DaemonSettings(), 100 * MIB)
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
    assert registry.held_bytes == 60 * MIB


def test_an_identity_with_its_share_makes_nobody_else_go() -> None:
    """One of its own sessions that are not connected makes room, or none."""
    registry = SessionRegistry(DaemonSettings(max_sessions=4), 100 * MIB)
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
