"""The logs of a supervisor and its daemons, and what they write down of a daemon for a bug report."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.fleet_process import FleetProcess, fleet_file, ps

pytestmark = pytest.mark.slow

StartFleet = Callable[..., FleetProcess]


def test_json_lines_of_all(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """The supervisor and its daemons log alike; each event says which device it is about."""
    fleet = start_fleet(fleet_file(tmp_path / "fleet.toml", "a", "b"), "--log-format", "json")
    events = [json.loads(line) for line in fleet.log().splitlines()]
    assert {event.get("device") for event in events if "is ready on" in event["message"]} == {"a", "b"}
    for name, device in ps(state).items():
        of_daemon = [json.loads(line) for line in Path(device["log"]).read_text().splitlines()]
        (serving,) = (event for event in of_daemon if event["message"].startswith("serving"))
        assert serving["device"].endswith(f"-{name}"), "as `serve --name` has it"
        assert serving["process.pid"] == device["pid"]
