"""Backends that need another version of the interface than this one."""

import json
from pathlib import Path

import pytest

from fleet.fleet_process import nnrt_device
from nnrt_hdi.backend import INTERFACE_VERSION

pytestmark = pytest.mark.slow

WHY = f"needs interface 999, this is {INTERFACE_VERSION}: update nnrt"


def test_a_backend_of_a_newer_interface_is_not_imported() -> None:
    """Its module isn't even there. What would be right is said in its row, and no traceback."""
    done = nnrt_device("backends")
    assert done.returncode == 0, done.stderr
    (row,) = (line for line in done.stdout.splitlines() if line.split()[:1] == ["newer"])
    assert row.split()[1:] == ["too", "new", *WHY.split()]
    assert "no_such_module" not in done.stderr


def test_each_backend_states_its_interface() -> None:
    """One that states nothing is of the first version; of several factories the newest that works here counts."""
    listed = {each["name"]: each for each in json.loads(nnrt_device("backends", "--json").stdout)}
    assert (listed["newer"]["interface"], listed["newer"]["too_new"]) == (999, WHY)
    assert (listed["both"]["interface"], listed["both"]["too_new"], listed["both"]["broken"]) == (1, "", "")
    assert listed["noting"]["interface"] == 2
    assert listed["plain"]["interface"] == 1


def test_a_daemon_says_what_would_be_right() -> None:
    done = nnrt_device("serve", "--backend", "newer", "--listen", "127.0.0.1:0")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [f"Error: backend 'newer' {WHY}"]


def test_a_fleet_is_not_started_with_it(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text('[device.one]\nbackend = "newer"\n')
    done = nnrt_device("up", file, "--dry-run")
    assert done.returncode != 0
    assert f"backend 'newer' {WHY}" in " ".join(done.stderr.split())
