"""Daemons that die during the conformance kit's trials."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli.command import nnrt
from conftest import StartDaemon
from fleet.conftest import start_fleet, state
from fleet.fleet_process import FleetProcess, fleet_file, ps

__all__ = ["start_fleet", "state"]  # Fixtures.

OPERATORS = ("LEAKY_RELU", "ADD_FUSION", "MUL_FUSION")
ONLY = [argument for operator in OPERATORS for argument in ("--only", f"operators/{operator}-0-float32")]


def outcomes(file: Path, address: str, *arguments: str) -> dict[str, Any]:
    """Return the verdicts by operator, each of which has one trial."""
    result = nnrt("conformance", address, *ONLY, "--json", file, *arguments)
    assert result.exit_code == 1, result.output
    document = json.loads(file.read_text())
    is_cut = any(each["verdict"] == "untried" for each in document["results"])
    assert ("a supervisor" in document["cut_short"]) == is_cut
    return {each["node_types"][0]: each["verdict"] for each in document["results"]}


def test_a_daemon_that_ends_and_stays_away(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--backend", "ending", "--option", "operator=ADD_FUSION")
    found = outcomes(tmp_path / "a.json", daemon.address, "--return", "0")
    assert found == {"LEAKY_RELU": "right", "ADD_FUSION": "crashed", "MUL_FUSION": "untried"}


@pytest.mark.slow
def test_a_supervised_daemon_comes_back(start_fleet: Callable[..., FleetProcess], state: Path, tmp_path: Path) -> None:
    file = fleet_file(tmp_path / "fleet.toml", "a", backend="ending", option="operator=ADD_FUSION")
    start_fleet(file)
    (address,) = ps(state)["a"]["addresses"]
    found = outcomes(tmp_path / "a.json", address, "--return", "60")
    assert found == {"LEAKY_RELU": "right", "ADD_FUSION": "crashed", "MUL_FUSION": "right"}


@pytest.mark.slow
def test_a_device_that_is_stuck_is_as_good_as_gone(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The kit doesn't wait for it in every trial."""
    daemon = start_daemon("--backend", "slow")
    found = outcomes(tmp_path / "a.json", daemon.address, "--timeout", "0.5")
    assert found == {"LEAKY_RELU": "crashed", "ADD_FUSION": "untried", "MUL_FUSION": "untried"}
