"""`nnrt bench`: sweeps, its rule for stability, and what it writes."""

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model, identity_model

from cli.command import NOBODY, nnrt, refused, saved, told
from nnrt_client import DataType, Model, OperationType, load
from nnrt_client.cli.closed_loop import ClosedLoop, Rule, Window
from nnrt_client.cli.inputs import gathered

QUICK = ("--window", "0.02", "--max-windows", "3")


def window(runs_per_s: float, latency_ms: float, runs: int = 100) -> Window:
    return Window(np.full(runs, latency_ms / 1e3), runs / runs_per_s)


# ---- the rule


@pytest.mark.parametrize(
    ("windows", "stable"),
    [
        ([], False),
        ([(100, 10), (100, 10)], False),
        ([(100, 10), (100, 10), (100, 10)], True),
        ([(100, 10), (109, 10), (91, 10)], True),
        ([(100, 10), (112, 10), (88, 10)], False),
        ([(100, 10), (100, 11.5), (100, 8.5)], False),
        ([(500, 1), (100, 10), (100, 10), (100, 10)], True),
        ([(100, 10), (100, 10), (100, 10), (500, 10)], False),
    ],
)
def test_rule(windows: list[tuple[float, float]], stable: bool) -> None:
    """Within 10 percent of the mean of the last three, throughput and latency both."""
    rule = Rule(window_s=1, most_windows=10, tolerance=0.1)
    assert rule.is_stable([window(*one) for one in windows]) is stable


def test_rule_for_a_percentile() -> None:
    """One slow run in a hundred is nothing to the median and everything to the 99.9th percentile."""
    windows = [window(100, 10) for _ in range(3)]
    windows[1].latencies_s[0] = 10.0
    assert Rule(1, 10, 0.1, percentile=50).is_stable(windows)
    assert not Rule(1, 10, 0.1, percentile=99.9).is_stable(windows)


# ---- the load


@pytest.mark.parametrize("concurrency", [1, 4])
def test_so_many_runs_are_in_flight(start_daemon: StartDaemon, concurrency: int) -> None:
    """On a device that takes 20 ms for a run and one at a time, a run waits for all that were there before."""
    daemon = start_daemon("--backend", "steady", "--option", "seconds=0.02")
    with load(identity_model(elements=4), daemon.address, cache=False) as session:
        loop = ClosedLoop(session, {"x": np.ones(4, np.float32)}, concurrency, 60_000)
        found = loop.measure(Rule(0.05, 3, 1e9), lambda: None)
    assert (found.windows, found.concurrency) == (3, concurrency)
    assert found.is_stable
    assert len(found.latencies_s) >= 30
    assert 0 < found.runs_per_s <= 1 / 0.02
    assert np.median(found.latencies_s) >= 0.02 * concurrency * 0.9


def test_failed_runs_end_it(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--backend", "slow")
    path = saved(identity_model(elements=4), tmp_path / "identity")
    message = refused(1, "bench", path, "--device", daemon.address, "--run-timeout", "0.1", "--concurrency", "3")
    assert "the run took longer than" in message  # The client notices, or the daemon.


# ---- the command


def test_a_sweep(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """A row for each number in flight: printed, as CSV, and as plots."""
    path = saved(convolution_model(), tmp_path / "conv")
    files = ("--csv", tmp_path / "b.csv", "--html", tmp_path / "b.html")
    shape = ("--shape", "image=2,8,8,1")
    command = ("bench", path, "--device", shared_daemon.address, "--concurrency", "1:5:2", "--percentile", "97.5")
    document = told(*command, *QUICK, *files, *shape)
    rows = document["measurements"]
    assert [row["concurrency"] for row in rows] == [1, 3, 5]
    for row in rows:
        assert row["runs"] >= 30
        assert row["windows"] == 3
        assert row["runs_per_s"] > 0
        assert 0 < row["p50_ms"] <= row["p90_ms"] <= row["p95_ms"] <= row["p97.5_ms"] <= row["p99_ms"]
    with (tmp_path / "b.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [{key: str(value) for key, value in row.items()} for row in rows] == written
    page = (tmp_path / "b.html").read_text()
    plots = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]  # noqa: S314  # Ours.
    assert [len(plot.findall("polyline")) for plot in plots] == [1, 6]
    assert [len(plot.findall("circle")) for plot in plots] == [3, 18]
    result = nnrt(*command, *QUICK, *shape, "--stability", "0.000001")
    assert result.exit_code == 0
    assert "not stable with 1, 3, 5 in flight: after 3 windows" in result.stdout


def test_unknown_dimensions_need_a_shape(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    path = saved(convolution_model(), tmp_path / "conv")
    command = ("bench", path, "--device", shared_daemon.address, *QUICK)
    assert "its shape by --shape image=" in refused(2, *command)
    np.save(tmp_path / "x.npy", np.ones((1, 8, 8, 1), np.float32))
    assert nnrt(*command, "--input", tmp_path / "x.npy").exit_code == 0


@pytest.mark.parametrize("option", ["--csv", "--html"])
def test_a_file_that_can_not_be_written(tmp_path: Path, option: str) -> None:
    """Nothing is measured before that is known, and no device is asked."""
    path = saved(identity_model(elements=4), tmp_path / "identity")
    message = refused(1, "bench", path, "--device", NOBODY, option, tmp_path / "no" / "file")
    assert "there is no such directory" in message


def test_shapes_of_an_offline_model(restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    """They are those of the inputs that are made."""
    path = saved(convolution_model(), tmp_path / "conv")
    device = ("--device", restoring_daemon.address)
    assert nnrt("compile", path, *device, "-o", tmp_path / "offline").exit_code == 0
    assert told("bench", tmp_path / "offline", *device, *QUICK, "--shape", "image=2,8,8,1")["measurements"]
    assert "there is no input" not in refused(2, "bench", tmp_path / "offline", *device, *QUICK, "--shape", "x=1")


@pytest.mark.parametrize("data_type", [one for one in DataType if one is not DataType.UNKNOWN])
def test_random_inputs(data_type: DataType) -> None:
    """Of any data type, the same for the same seed, and none that could be no index."""
    model = Model()
    x = model.input((1000,), data_type, name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.RESHAPE, x, [1000])])
    model.finish()
    first, again, other = (gathered(model._graph.input_specs, (), {}, seed)["x"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert len(np.unique(first)) > 1
    if first.dtype.kind == "f" or first.dtype.itemsize > 1:
        assert 0 <= first.min().item() <= first.max().item() <= 1


def test_json_is_all_that_is_printed(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    path = saved(identity_model(elements=4), tmp_path / "identity")
    result = nnrt("bench", path, "--device", shared_daemon.address, *QUICK, "--stability", "0.000001", "--json")
    assert json.loads(result.stdout)["measurements"][0]["stable"] is False
