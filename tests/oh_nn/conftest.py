"""Daemons that all cases share, and the world of one case."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess

from oh_nn.world import World

# One that computes, and those that refuse or lack what it has.
BACKENDS = ("reference", "faulty", "picky", "silent")


@pytest.fixture(scope="session")
def addresses() -> Iterator[dict[str, str]]:
    """Where the daemons are, by the names of their backends."""
    daemons = {backend: DaemonProcess("--backend", backend) for backend in BACKENDS}
    yield {backend: daemon.address for backend, daemon in daemons.items()}
    for daemon in daemons.values():
        daemon.kill()


@pytest.fixture
def world(
    addresses: dict[str, str], start_daemon: StartDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    monkeypatch.delenv("NNRT_DEVICES", raising=False)
    world = World(addresses, start_daemon, tmp_path)
    yield world
    world.close()
