"""Fixtures that start supervisors, and end the daemons that they leave."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fleet.fleet_process import FleetProcess, kill_daemons


@pytest.fixture
def state() -> Iterator[Path]:
    """Yield the path of a state directory, short enough for Unix sockets; kill its daemons afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="nnrt-"))
    yield folder / "state"
    kill_daemons(folder / "state")
    shutil.rmtree(folder)


@pytest.fixture
def start_fleet(state: Path) -> Iterator[Callable[..., FleetProcess]]:
    """Yield a function that starts supervisors; kill them after the test."""
    fleets: list[FleetProcess] = []

    def start(*arguments: str | Path, to_be_ready: bool = True) -> FleetProcess:
        fleets.append(FleetProcess(state, *arguments, to_be_ready=to_be_ready))
        return fleets[-1]

    yield start
    for fleet in fleets:
        fleet.kill()


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Path of a FIFO: runs of the backend `gated` wait until something is written to it."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path
