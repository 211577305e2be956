"""`nnrt run --trace`: a file for Perfetto."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import StartDaemon
from networks import convolution_model, identity_model

from cli.command import NOBODY, nnrt, refused, saved

Event = Mapping[str, Any]
SLACK_US = 0.01
REFERENCE = {"CONV2D_FUSION", "MAX_POOL_FUSION", "RESHAPE", "FULL_CONNECTION", "SOFTMAX"}
OF_CLIENT = {"build", "waited", "packed", "inbound", "unpacked"}
OF_DAEMON = {"handled", "queued", "copied_in", "computed"}


@pytest.fixture
def command(tmp_path: Path) -> Sequence[object]:
    """All of it but the devices."""
    np.save(tmp_path / "images.npy", np.ones((2, 8, 8, 1), np.float32))
    model, trace = saved(convolution_model(), tmp_path / "model.nnrt"), tmp_path / "trace.json"
    return "run", model, "--input", f"image={tmp_path / 'images.npy'}", "--no-cache", "--trace", trace


def slices(command: Sequence[object], *devices: str) -> dict[str, list[Event]]:
    """What the command writes, by process: each slice lies within the one around it."""
    result = nnrt(*command, *(part for device in devices for part in ("--device", device)))
    assert result.exit_code == 0, result.output
    path = Path(str(command[-1]))
    assert f"ui.perfetto.dev shows {path}" in " ".join(result.stdout.split())
    events: list[Event] = json.loads(path.read_text())["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    found: dict[str, list[Event]] = {name: [] for name in names.values()}
    for event in events:
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] >= 0
            found[names[event["pid"]]].append(event)
    for process in found.values():
        _require_nested(process)
    return found


def _require_nested(events: Sequence[Event]) -> None:
    """Viewers show nothing sensible of slices of a track that overlap, unless one is within the other."""
    for event in events:
        for other in events:
            if event["tid"] == other["tid"] and event["ts"] < other["ts"]:
                end, others_end = event["ts"] + event["dur"], other["ts"] + other["dur"]
                assert end <= other["ts"] + SLACK_US or others_end <= end + SLACK_US, (event, other)


def names(events: Sequence[Event]) -> set[str]:
    return {event["name"] for event in events}


@pytest.mark.parametrize("arguments", [(), ("--no-shared-memory",)], ids=["local socket", "gRPC"])
@pytest.mark.parametrize(
    ("backend", "operators"),
    [("reference", REFERENCE), ("onnxruntime", {"Conv", "Gemm", "Softmax", "open a session to profile"})],
)
def test_operators(
    start_daemon: StartDaemon, command: Sequence[object], backend: str, operators: set[str], arguments: tuple[str, ...]
) -> None:
    """Two runs: one as any, and one that tells of them."""
    address = start_daemon("--backend", backend, "--name", "here", *arguments).address
    found = slices(command, address)
    assert set(found) == {"nnrt client", f"here at {address}"}
    client, daemon = found["nnrt client"], found[f"here at {address}"]
    assert names(client) >= {*OF_CLIENT, "run 1", "run 2"}
    assert names(daemon) >= {*OF_DAEMON, *operators, "run 1", "run 2"}
    _, computed = (event for event in daemon if event["name"] == "computed")
    for event in daemon:
        if event["name"] in operators:
            assert computed["ts"] - SLACK_US <= event["ts"]
            assert event["ts"] + event["dur"] <= computed["ts"] + computed["dur"] + SLACK_US


def test_a_pool(start_daemon: StartDaemon, command: Sequence[object]) -> None:
    """Each device that has made a run is a process."""
    addresses = [start_daemon("--name", name).address for name in "ab"]
    found = slices(command, *addresses)
    client = found.pop("nnrt client")
    assert [event["name"] for event in client].count("build") == 2
    assert set(found) <= {f"{name} at {address}" for name, address in zip("ab", addresses, strict=True)}
    assert names([event for events in found.values() for event in events]) >= {*OF_DAEMON, *REFERENCE}


def test_a_device_that_tells_of_no_operators(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """One run is enough."""
    address = start_daemon("--backend", "plain").address
    np.save(tmp_path / "x.npy", np.ones(3, np.float32))
    model = saved(identity_model(), tmp_path / "model.nnrt")
    found = slices(("run", model, "--input", f"x={tmp_path / 'x.npy'}", "--trace", tmp_path / "trace"), address)
    assert [event["name"] for event in found["nnrt client"] if event["name"].startswith("run")] == ["run 1"]
    assert names(found[f"plain at {address}"]) <= {*OF_DAEMON, "copied_out", "run 1"}


def test_a_place_where_no_file_can_be(command: Sequence[object], tmp_path: Path) -> None:
    """It is refused before anything is done."""
    *others, _ = command
    said = refused(1, *others, tmp_path / "missing" / "trace.json", "--device", NOBODY)
    assert "there is no such directory" in said
