"""Clients of this host find what a supervisor looks after."""

from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until

from fleet.fleet_process import FleetProcess, fleet_file, nnrt_device, ps
from nnrt_client import Runtime

pytestmark = pytest.mark.slow


def test_those_that_take_work(start_fleet: Callable[..., FleetProcess], state: Path, tmp_path: Path) -> None:
    """Before there is a supervisor, while there is one, and when one of its daemons drains and comes back."""
    with Runtime([f"local://{state}"]) as runtime:
        assert runtime.addresses == ()
        start_fleet(fleet_file(tmp_path / "fleet.toml", "a", "b"))
        until(lambda: len(runtime.addresses) == 2)
        addresses = {name: device["addresses"][0] for name, device in ps(state).items()}
        assert {device.address for device in runtime.devices()} == set(addresses.values())
        assert nnrt_device("drain", "a", "--state-dir", state).returncode == 0
        until(lambda: runtime.addresses == (addresses["b"],), lambda: runtime.addresses)
        assert nnrt_device("restart", "a", "--state-dir", state).returncode == 0
        until(lambda: len(runtime.addresses) == 2, lambda: runtime.addresses)
