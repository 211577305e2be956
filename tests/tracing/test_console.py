"""Spans on the console of a daemon that a supervisor keeps."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fleet.conftest import start_fleet, state
from fleet.fleet_process import FleetProcess, fleet_file, ps
from networks import identity_model

from nnrt_client import Settings, load
from tracing.conftest import Spans

__all__ = ["start_fleet", "state"]

pytestmark = pytest.mark.slow


def test_they_are_lines_of_its_log(
    start_fleet: Callable[..., FleetProcess],
    state: Path,
    spans: Spans,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of JSON, each span one."""
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    fleet = start_fleet(fleet_file(tmp_path / "fleet.toml", "a", traces=True), "--log-format", "json")
    device = ps(state)["a"]
    with load(identity_model(), device["addresses"][0], settings=Settings(trace=True)) as session:
        session.run([np.ones(1, np.float32)])
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0
    written = [json.loads(line) for line in Path(device["log"]).read_text().splitlines()]
    assert "nnrt.device.run" in {line.get("name") for line in written}
