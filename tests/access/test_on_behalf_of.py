"""Runs of a server on behalf of its callers: each caller has its own share, limits and counters."""

import re
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from gate import Gate
from networks import identity_model
from waiting import DEADLINE_S, until

from access.conftest import Access, start
from nnrt_client import (
    Device,
    IdentityCounters,
    InvalidParameter,
    ModelSession,
    OperationForbidden,
    OutOfMemory,
    Pool,
    Runtime,
    Settings,
    load,
)
from nnrt_device_service.access.counters import MOST_AWAY, Counters
from nnrt_hdi.access.identity import Identity

SHARES = pytest.mark.parametrize("shares_memory", [True, False], ids=["one-host", "grpc"])
ONE = np.ones(1, np.float32)


def number(value: float) -> list[Any]:
    """Return the inputs of a run that the log shows by this value."""
    return [np.full(1, value, np.float32)]


def gated(gate: Gate) -> Sequence[str]:
    """Return the flags of a daemon whose runs wait at the gate, one after the other."""
    return "--backend", "gated", "--option", f"gate={gate.path}", "--concurrent-runs", "1"


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    gate = Gate(tmp_path)
    gate.shut()
    return gate


def with_shares(settings: Settings, shares_memory: bool) -> Settings:
    return Settings(token_file=settings.token_file, share_memory=shares_memory)


def loaded(daemon: DaemonProcess, settings: Settings, closing: ExitStack) -> ModelSession:
    return closing.enter_context(load(identity_model(), daemon.address, settings=settings, cache=False))


def counters_of(device: Device) -> dict[str, IdentityCounters]:
    return {each.identity: each for each in device.counters().identities}


@SHARES
def test_callers_share_the_device(
    start_daemon: StartDaemon, access: Access, gate: Gate, closing: ExitStack, shares_memory: bool
) -> None:
    """An identity that sends few runs doesn't wait for all runs of one that has sent many before."""
    server = access.add("server", "serve")
    access.add("compiler", "compile")
    daemon = start(start_daemon, access, *gated(gate))
    session = loaded(daemon, with_shares(server, shares_memory), closing)
    many = [session.submit(number(value), on_behalf_of="many") for value in range(1, 13)]
    until(lambda: "run started" in daemon.log())
    few = [session.submit(number(value), on_behalf_of="few") for value in (101, 102)]
    gate.release(lambda: all(run.done() for run in (*many, *few)))
    started = re.findall(r"run started with (\d+)", daemon.log())
    assert len(started) == 14
    assert started.index("102") < 11, started  # Links had taken some of the many before.


@SHARES
def test_limits_are_of_each_caller(
    start_daemon: StartDaemon, access: Access, gate: Gate, closing: ExitStack, shares_memory: bool
) -> None:
    """The queue refuses runs of one that has its share there, and takes those of others."""
    settings = access.add("server", "serve")
    daemon = start(start_daemon, access, *gated(gate), "--queued-runs", "4", "--identity-share", "0.5")
    session = loaded(daemon, with_shares(settings, shares_memory), closing)
    own = [session.submit(number(0), on_behalf_of="many")]
    until(lambda: "run started" in daemon.log())
    own += [session.submit(number(value), on_behalf_of="many") for value in (1, 2, 3)]
    until(lambda: any(future.done() for future in own))
    (refused,) = [future for future in own if future.done()]
    with pytest.raises(OutOfMemory, match="2 runs of this identity wait"):
        refused.result()
    other = session.submit(number(4), on_behalf_of="few")
    gate.release(lambda: all(run.done() for run in (*own, other)))
    assert other.result(DEADLINE_S)
    assert sum(future.exception() is None for future in own) == 3


@SHARES
def test_what_each_caller_has_had(
    start_daemon: StartDaemon, access: Access, closing: ExitStack, shares_memory: bool
) -> None:
    """The counters have callers with a session of their own, callers without one, and the server."""
    server, ada, root = (access.add(*who) for who in (("server", "serve"), ("ada", "compile"), ("root", "administer")))
    daemon = start(start_daemon, access)
    session = loaded(daemon, with_shares(server, shares_memory), closing)
    adas = closing.enter_context(Runtime([daemon.address], ada)).device()
    for caller in ("ada", "ada", "guest", None):
        session.run([ONE], on_behalf_of=caller)
        session.submit([ONE], on_behalf_of=caller).result(DEADLINE_S)
    known = counters_of(closing.enter_context(Runtime([daemon.address], root)).device())
    assert {name: known[name].runs.get("done", 0) for name in ("ada", "guest", "server")} == {
        "ada": 4,
        "guest": 2,
        "server": 2,
    }
    assert (known["guest"].sessions, known["guest"].in_bytes, known["guest"].models) == (0, 8, {})
    assert known["guest"].run_s > 0
    assert counters_of(adas)["ada"].runs == {"done": 4}


def test_who_may_not(start_daemon: StartDaemon, access: Access, closing: ExitStack) -> None:
    """Neither a client without the role, nor anybody for those who may not run models themselves."""
    server, client = access.add("server", "serve"), access.add("client", "restore")
    access.add("watcher", "observe")
    access.add("ada", "run")
    daemon = start(start_daemon, access)
    session, other = loaded(daemon, server, closing), loaded(daemon, client, closing)
    with pytest.raises(OperationForbidden, match="client has the role 'restore', and a run on behalf of another"):
        other.run([ONE], on_behalf_of="ada")
    other.run([ONE])
    with pytest.raises(OperationForbidden, match="watcher has the role 'observe', and a run on its behalf needs 'run'"):
        session.run([ONE], on_behalf_of="watcher")
    session.run([ONE], on_behalf_of="ada")
    access.write([line.replace("ada run", "ada observe") for line in access.path.read_text().splitlines()])

    def is_refused() -> bool:
        try:
            session.run([ONE], on_behalf_of="ada")
        except OperationForbidden:
            return True
        return False

    until(is_refused)
    session.run([ONE], on_behalf_of="guest")


@pytest.mark.parametrize("name", ["", "a b", "a\n", "-a", "x" * 65, "é", 7])
def test_names_that_nobody_has(runtime: Runtime, name: Any) -> None:
    with load(identity_model(), runtime.device(), cache=False) as session:
        with pytest.raises(InvalidParameter, match="give an identity's name"):
            session.run([ONE], on_behalf_of=name)
        session.run([ONE], on_behalf_of="x" * 64)


def test_a_pool_goes_on_elsewhere(start_daemon: StartDaemon, access: Access) -> None:
    """The repeated run is on behalf of the same."""
    server, root = access.add("server", "serve"), access.add("root", "administer")
    daemons = [
        start(start_daemon, access, "--name", f"d{at}", listen=f"unix:{access.folder / f's{at}'}") for at in (0, 1)
    ]
    with (
        Pool([daemon.address for daemon in daemons], settings=server) as pool,
        pool.load(identity_model(), cache=False) as session,
    ):
        for _ in range(4):
            session.run([ONE], on_behalf_of="ada")
        daemons[0].kill()
        for _ in range(4):
            session.run([ONE], on_behalf_of="ada")
            session.submit([ONE], on_behalf_of="ada").result(DEADLINE_S)
        with Runtime([daemons[1].address], root) as runtime:
            known = counters_of(runtime.device())
    assert known["ada"].runs["done"] >= 8
    assert not known["server"].runs


def test_counters_of_callers_that_are_gone_are_added_up() -> None:
    """Those of callers for whom runs may still come are kept."""

    class Holder:
        """Lets runs count."""

    counters, stays = Counters(), Holder()
    counters.hold(Identity("name", "stays"), stays)
    for at in range(MOST_AWAY + 10):
        counters.hold(Identity("name", f"caller{at}"), Holder()).count_run(1, 2, 3, in_bytes=4, out_bytes=5)
    told = counters.snapshot(None).identities
    assert len(told) <= MOST_AWAY + 3
    assert told[0].identity == "stays"
    assert sum(each.runs.get("done", 0) for each in told) == MOST_AWAY + 10
