"""Fixtures: daemons that all cases share, and the `World` of a case."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from daemon_process import DaemonProcess

from oh_nn.world import World

# The reference backend, and backends that refuse something or lack capabilities.
BACKENDS = ("reference", "faulty", "picky", "silent")


@pytest.fixture(scope="session")
def addresses() -> Iterator[dict[str, str]]:
    """Yield the daemons' addresses by backend name."""
    daemons = {backend: DaemonProcess("--backend", backend) for backend in BACKENDS}
    yield {backend: daemon.address for backend, daemon in daemons.items()}
    for daemon in daemons.values():
        daemon.kill()


@pytest.fixture
def world(addresses: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.delenv("NNRT_DEVICES", raising=False)
    world = World(addresses, tmp_path)
    yield world
    world.close()
