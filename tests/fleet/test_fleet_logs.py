"""The logs of a supervisor and its daemons, and reports of them."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import until

from fleet.fleet_process import FleetProcess, fleet_file, nnrt_device, ps
from nnrt_device_service.reports.archive import unpack

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


def test_reports_of_devices(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    """Those of all that there are; also one of a daemon that has ended, with the end of its log and without secrets."""
    path = fleet_file(tmp_path / "fleet.toml", "a", "b")
    path.write_text(path.read_text() + '\n[device.b.environment]\nAPI_TOKEN = "hunter2-hunter2"\n')
    start_fleet(path)
    reports = tmp_path / "reports"
    reports.mkdir()
    nnrt_device("report", "--state-dir", state, "-o", reports).check_returncode()
    named = {each.name.split("-")[2]: unpack(each.read_bytes()) for each in reports.iterdir()}
    assert set(named) == {"a", "b"}
    for name, parts in named.items():
        row = json.loads(parts["fleet.json"])
        assert (row["name"], row["state"]) == (name, "ready")
        assert json.loads(parts["host.json"])["pid"] == row["pid"]
        assert "hunter2" not in "\n".join(parts.values())
    log = state / "logs" / "b.log"
    log.write_text(f"{log.read_text()}the license hunter2-hunter2 has ended\n")
    nnrt_device("drain", "b", "--state-dir", state).check_returncode()
    done = nnrt_device("report", "b", "--state-dir", state, "-o", reports)
    parts = unpack(Path(done.stdout.strip().partition(": ")[2]).read_bytes())
    assert set(parts) == {"fleet.json", "log-file.txt"}
    assert json.loads(parts["fleet.json"])["state"] == "drained"
    assert "the license *** has ended" in parts["log-file.txt"]


def test_signals_leave_reports_in_the_state_directory(start_fleet: StartFleet, state: Path, tmp_path: Path) -> None:
    start_fleet(fleet_file(tmp_path / "fleet.toml", "a"))
    os.kill(ps(state)["a"]["pid"], signal.SIGUSR1)
    assert until(lambda: list((state / "reports").glob("nnrt-report-*")))
