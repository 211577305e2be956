"""Pools whose client is refused: that is no outage."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model
from waiting import until

from access.conftest import Access, start
from nnrt_client import ConnectionFailed, NnrtError, Pool, PooledSession, Settings, load

ONE = np.ones(1, np.float32)
# A run that waits for a replica takes longer than any test.
LONG_S = 600.0


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def named(start_daemon: StartDaemon, access: Access, number: int) -> DaemonProcess:
    return start(start_daemon, access, "--name", f"d{number}", listen=f"unix:{access.folder / f's{number}'}")


def outcomes(session: PooledSession) -> list[NnrtError | None]:
    """What becomes of two runs, of which no thread waits for the second."""
    ends: list[NnrtError | None] = []
    runs: list[Callable[[], object]] = [lambda: session.run([ONE]), lambda: session.submit([ONE]).result(LONG_S)]
    for run in runs:
        try:
            run()
            ends.append(None)
        except NnrtError as error:
            ends.append(error)
    return ends


def test_a_token_that_is_revoked(start_daemon: StartDaemon, access: Access) -> None:
    """Runs fail with what the daemons say, and work again as soon as the token counts again."""
    settings = access.add("alice", "compile")
    access.add("bob", "compile")
    daemons = [named(start_daemon, access, number) for number in range(2)]
    lines = access.path.read_text().splitlines()
    with (
        Pool([daemon.address for daemon in daemons], settings=settings) as pool,
        pool.load(identity_model(), patience_s=LONG_S) as session,
    ):
        assert outcomes(session) == [None, None]
        access.write(lines[1:])
        until(lambda: not session.devices)
        for error in outcomes(session):
            assert isinstance(error, ConnectionFailed), repr(error)
            for daemon in daemons:
                assert f"{daemon.address}: the daemon knows no such token" in str(error)
        access.write(lines)
        until(lambda: session.devices)
        assert outcomes(session) == [None, None]


def test_a_token_that_one_of_two_daemons_no_longer_knows(start_daemon: StartDaemon, tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(2)]
    for folder in folders:
        folder.mkdir()
    first, second = map(Access, folders)
    for access in (first, second):
        access.add("bob", "compile")
        settings: Settings = access.add("alice", "compile")
    daemons = [named(start_daemon, first, 0), named(start_daemon, second, 1)]
    with (
        Pool([daemon.address for daemon in daemons], settings=settings) as pool,
        pool.load(identity_model(), patience_s=LONG_S) as session,
    ):
        assert len(session.devices) == 2
        first.write(first.path.read_text().splitlines()[:1])
        until(lambda: len(session.devices) == 1)
        assert outcomes(session) == [None, None]
        until(lambda: any("knows no such token" in member.why for member in pool.members()))


@pytest.mark.parametrize("as_list", [False, True], ids=["one", "list"])
def test_a_client_that_is_refused_does_not_wait(start_daemon: StartDaemon, access: Access, as_list: bool) -> None:
    daemon = named(start_daemon, access, 0)
    device = [daemon.address] if as_list else daemon.address
    with pytest.raises(ConnectionFailed, match="the daemon knows no such token"):
        load(identity_model(), device, settings=access.settings("alice"), wait_s=LONG_S)
