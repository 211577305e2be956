"""`nnrt run` and `nnrt bench` on several devices."""

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import identity_model

from cli.command import NOBODY, json_output, nnrt, refused, saved

QUICK = ("--window", "0.02", "--max-windows", "3")


@pytest.fixture
def daemons(start_daemon: StartDaemon) -> list[DaemonProcess]:
    return [start_daemon("--name", name) for name in ("first", "second")]


def test_a_run_on_several_devices(daemons: list[DaemonProcess], tmp_path: Path) -> None:
    path = saved(identity_model(elements=1), tmp_path / "model")
    devices = [argument for daemon in daemons for argument in ("--device", daemon.address)]
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    document = json_output("run", path, *devices, "--input", f"x={tmp_path / 'x.npy'}")
    assert document["device"] in ("first_nnrt_v2_1", "second_nnrt_v2_1")


def test_a_benchmark_of_several_devices(daemons: list[DaemonProcess], tmp_path: Path) -> None:
    """It shows how the load spread over them."""
    path = saved(identity_model(elements=1), tmp_path / "model")
    names = tmp_path / "names"
    names.write_text("".join(f"{daemon.address}\n" for daemon in daemons))
    document = json_output(
        "bench", path, "--device", f"file://{names}", "--replicas", 2, "--concurrency", "1:2", *QUICK
    )
    assert document["device"] == "2 devices"
    assert [load["concurrency"] for load in document["spread"]] == [1, 2]
    for load, row in zip(document["spread"], document["measurements"], strict=True):
        assert set(load["runs"]) == {"first_nnrt_v2_1", "second_nnrt_v2_1"}
        assert sum(load["runs"].values()) >= row["runs"]
    lines = nnrt("bench", path, "--device", f"file://{names}", "--replicas", 2, *QUICK).stdout.splitlines()
    assert any(line.split()[:2] == ["1", "first_nnrt_v2_1"] and line.rstrip().endswith("%") for line in lines)
    single = json_output("bench", path, "--device", daemons[0].address, *QUICK)
    assert "spread" not in single
    assert json.dumps(single["device"]) == '"first_nnrt_v2_1"'


def test_what_is_wrong_with_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(identity_model(elements=1), tmp_path / "model")
    assert "there is no device; give --device" in refused(2, "run", path)
    assert "'somebody' is no address" in refused(2, "run", path, "--device", "somebody", "--device", NOBODY)
    assert "--replicas" in refused(2, "run", path, "--device", NOBODY, "--replicas", 0)
    monkeypatch.setenv("NNRT_DEVICES", NOBODY)
    assert f"device at {NOBODY}: no daemon answers" in refused(1, "bench", path, "--replicas", 1)
    assert "replicas need addresses" in refused(1, "bench", path, "--device", "somebody", "--replicas", 1)
