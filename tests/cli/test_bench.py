"""`nnrt bench`: sweeps, its rule for stability, and what it writes."""

import csv
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model, identity_model
from onnx import TensorProto, helper

from cli.command import NOBODY, json_output, nnrt, refused, saved
from nnrt_client import DataType, Model, ModelSession, OperationType, Runtime, RunTimes, load
from nnrt_client.cli.baseline import _largest_difference
from nnrt_client.cli.closed_loop import ClosedLoop
from nnrt_client.cli.inputs import gather_inputs
from nnrt_client.cli.measuring import Loop, Measurement, Rule, Runs, RunTime, Window
from nnrt_client.cli.open_loop import OpenLoop
from nnrt_client.model.model import parts_of

QUICK = ("--window", "0.02", "--max-windows", "3")


def window(runs_per_s: float, latency_ms: float, runs: int = 100) -> Window:
    return Window([RunTime(latency_ms / 1e3, None)] * runs, runs / runs_per_s)


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


def test_a_rate_that_is_given_need_not_be_stable() -> None:
    """Arrivals at random differ from one window to the next; the latency must not."""
    rule = Rule(window_s=1, most_windows=10, tolerance=0.1, counts_throughput=False)
    assert rule.is_stable([window(100, 10), window(150, 10), window(50, 10)])
    assert not rule.is_stable([window(100, 10), window(100, 15), window(100, 5)])


def test_rule_for_a_percentile() -> None:
    """One slow run in a hundred is nothing to the median and everything to the 99.9th percentile."""
    windows = [window(100, 10) for _ in range(3)]
    windows[1] = Window([RunTime(10.0, None), *windows[1].runs[1:]], windows[1].seconds)
    assert Rule(1, 10, 0.1, percentile=50).is_stable(windows)
    assert not Rule(1, 10, 0.1, percentile=99.9).is_stable(windows)


# ---- the load


PARTS = [part.replace("_ns", "_ms") for part in RunTimes._fields]


def measured(session: ModelSession, make: Callable[[Runs], Loop], rule: Rule) -> Measurement:
    return make(Runs(session, {"x": np.ones(4, np.float32)}, 60_000)).measure(rule, lambda: None)


@pytest.mark.parametrize("concurrency", [1, 4])
def test_so_many_runs_are_in_flight(start_daemon: StartDaemon, concurrency: int) -> None:
    """On a device that takes 20 ms for a run and one at a time, a run waits for all that were there before."""
    daemon = start_daemon("--backend", "steady", "--option", "seconds=0.02")
    with load(identity_model(elements=4), daemon.address, cache=False) as session:
        found = measured(session, lambda runs: ClosedLoop(runs, concurrency), Rule(0.05, 3, 1e9))
    assert (found.windows, found.load) == (3, concurrency)
    assert found.is_stable
    assert len(found.latencies_s) >= 30
    assert 0 < found.runs_per_s <= 1 / 0.02
    assert np.median(found.latencies_s) >= 0.02 * concurrency * 0.9
    parts = found.parts_ms
    assert parts is not None
    assert parts["compute"] >= 20 * 0.9
    assert parts["queue"] + parts["transfer"] >= 20 * (concurrency - 1) * 0.9
    assert sum(parts.values()) == pytest.approx(found.mean_ms)
    typical, slow = found.typical, found.slow
    assert typical is not None
    assert slow is not None
    low, high, slowest = np.percentile(found.latencies_s, [35, 65, 100])
    assert low <= typical.total_ns / 1e9 <= high <= slow.total_ns / 1e9 <= slowest + 1e-6
    assert typical.slowest in ("computed", "queued")


@pytest.mark.slow
def test_latency_counts_from_when_a_run_was_to_start(start_daemon: StartDaemon) -> None:
    """Of a device that takes 10 ms for a run and gets one every 2.5 ms, each waits longer than those before it."""
    daemon = start_daemon("--backend", "steady", "--option", "seconds=0.01")
    with load(identity_model(elements=4), daemon.address, cache=False) as session:
        found = measured(session, lambda runs: OpenLoop(runs, 400, seed=1), Rule(0.05, 3, 1e9, least_runs=5))
    assert (found.windows, found.load) == (3, 400)
    first, *_, last = found.latencies_s
    assert last > first
    assert last >= 0.01 * len(found.runs) / 2
    assert found.runs_per_s <= 1 / 0.01


class Recorded(Runs):
    """Runs that end at once, and when they were to start."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ended = 0

    def __len__(self) -> int:
        return 0

    def start(self, counted_from: float) -> None:
        self.starts.append(counted_from)

    def next_end(self, timeout_s: float | None = None) -> RunTime | None:
        if self.ended == len(self.starts):
            return None
        self.ended += 1
        return RunTime(1e-3, None)

    def end(self) -> None:
        self.ended = len(self.starts)

    def cancel(self) -> None:
        pass


def gaps(seed: int) -> list[float]:
    runs = Recorded()
    OpenLoop(runs, 20_000, seed).measure(Rule(0.0, 3, 1e9, least_runs=300), lambda: None)
    return list(np.diff(runs.starts)[1:800])


def test_arrivals_are_random_and_the_same_for_a_seed() -> None:
    """As far apart on average as the rate says, and, as of a Poisson process, that is their deviation too."""
    first = gaps(seed=1)
    np.testing.assert_allclose(first, gaps(seed=1), atol=1e-9)
    assert not np.allclose(first, gaps(seed=2), atol=1e-9)
    assert np.mean(first) == pytest.approx(1 / 20_000, rel=0.15)
    assert np.std(first) == pytest.approx(1 / 20_000, rel=0.2)


def test_failed_runs_end_it(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--backend", "slow")
    path = saved(identity_model(elements=4), tmp_path / "identity")
    message = refused(1, "bench", path, "--device", daemon.address, "--run-timeout", "0.1", "--concurrency", "3")
    assert "the run took longer than" in message  # The client notices, or the daemon.


# ---- the command


def test_a_sweep(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """A row for each number in flight: printed, and as CSV."""
    path = saved(convolution_model(), tmp_path / "conv")
    shape = ("--shape", "image=2,8,8,1")
    command = ("bench", path, "--device", shared_daemon.address, "--concurrency", "1:5:2", "--percentile", "97.5")
    document = json_output(*command, *QUICK, "--csv", tmp_path / "b.csv", *shape)
    rows = document["measurements"]
    assert [row["concurrency"] for row in rows] == [1, 3, 5]
    for row in rows:
        assert row["runs"] >= 30
        assert row["windows"] == 3
        assert row["runs_per_s"] > 0
        assert row["queue_ms"] + row["transfer_ms"] + row["compute_ms"] == pytest.approx(row["mean_ms"], abs=1e-3)
        assert min(row[f"{which}_{part}"] for which in ("typical", "slow") for part in PARTS) >= 0
        assert sum(row[f"slow_{part}"] for part in PARTS) >= sum(row[f"typical_{part}"] for part in PARTS)
        assert 0 < row["p50_ms"] <= row["p90_ms"] <= row["p95_ms"] <= row["p97.5_ms"] <= row["p99_ms"]
    with (tmp_path / "b.csv").open() as file:
        written = list(csv.DictReader(file))
    assert [{key: str(value) for key, value in row.items()} for row in rows] == written
    result = nnrt(*command, *QUICK, *shape, "--stability", "0.000001")
    assert result.exit_code == 0
    assert "not stable with 1, 3, 5 in flight: after 3 windows" in result.stdout


def test_unknown_dimensions_are_1(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    """As README calls it, without --shape; and it says so, not on stdout."""
    path = saved(convolution_model(), tmp_path / "conv")
    command = ("bench", path, "--device", shared_daemon.address, *QUICK, "--json")
    result = nnrt(*command)
    assert result.exit_code == 0
    assert re.search(
        r"input 'image' is FLOAT32\[\?, 8, 8, 1\]: its open dimensions are 1; --shape image=\.\.\. gives", result.stderr
    )
    assert json.loads(result.stdout)["measurements"]
    np.save(tmp_path / "x.npy", np.ones((1, 8, 8, 1), np.float32))
    for option in (("--input", tmp_path / "x.npy"), ("--shape", "image=1,8,8,1")):
        result = nnrt(*command, *option)
        assert (result.exit_code, "open dimensions" in result.stderr) == (0, False)


def test_a_file_that_can_not_be_written(tmp_path: Path) -> None:
    """Nothing is measured before that is known, and no device is asked."""
    path = saved(identity_model(elements=4), tmp_path / "identity")
    message = refused(1, "bench", path, "--device", NOBODY, "--csv", tmp_path / "no" / "file")
    assert "there is no such directory" in message


def test_shapes_of_an_offline_model(restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    """They are those of the inputs that are made."""
    path = saved(convolution_model(), tmp_path / "conv")
    device = ("--device", restoring_daemon.address)
    assert nnrt("compile", path, *device, "-o", tmp_path / "offline").exit_code == 0
    assert json_output("bench", tmp_path / "offline", *device, *QUICK, "--shape", "image=2,8,8,1")["measurements"]
    assert "there is no input" not in refused(2, "bench", tmp_path / "offline", *device, *QUICK, "--shape", "x=1")


@pytest.mark.parametrize("data_type", [one for one in DataType if one is not DataType.UNKNOWN])
def test_random_inputs(data_type: DataType) -> None:
    """Of any data type, the same for the same seed, and none that could be no index."""
    model = Model()
    x = model.input((1000,), data_type, name="x")
    model.specify_inputs_and_outputs([x], [model.apply(OperationType.RESHAPE, x, [1000])])
    model.finish()
    first, again, other = (gather_inputs(parts_of(model).graph.input_specs, (), {}, seed)["x"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert len(np.unique(first)) > 1
    if first.dtype.kind == "f" or first.dtype.itemsize > 1:
        assert 0 <= first.min().item() <= first.max().item() <= 1


def test_json_is_all_that_is_printed(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    path = saved(identity_model(elements=4), tmp_path / "identity")
    result = nnrt("bench", path, "--device", shared_daemon.address, *QUICK, "--stability", "0.000001", "--json")
    assert json.loads(result.stdout)["measurements"][0]["stable"] is False


@pytest.mark.slow
def test_a_rate(start_daemon: StartDaemon, tmp_path: Path) -> None:
    daemon = start_daemon("--backend", "steady", "--option", "seconds=0.01")
    path = saved(identity_model(elements=4), tmp_path / "identity")
    command = ("bench", path, "--device", daemon.address, *QUICK)
    (row,) = json_output(*command, "--rate", "30")["measurements"]
    assert row["rate"] == 30
    assert row["compute_ms"] >= 9
    assert "1025 are in flight; give a lower --rate" in refused(1, *command, "--rate", "100000")
    assert "two kinds of load" in refused(2, *command, "--rate", "30", "--concurrency", "2")
    assert "--baseline takes ONNX files" in refused(2, *command, "--baseline")


@pytest.mark.parametrize(
    ("there", "here", "expected"),
    [
        ([2.0, 1.0], [2.0, 1.5], 0.25),
        ([np.nan, np.inf], [np.nan, np.inf], 0),
        ([np.nan, 1.0], [0.0, 1.0], np.inf),
        ([np.inf, 1.0], [1.0, 1.0], np.inf),
        ([np.inf, 1.0], [np.inf, 0.5], 1),
        ([], [], 0),
    ],
)
def test_how_far_results_are_apart(there: list[float], here: list[float], expected: float) -> None:
    assert _largest_difference({"y": np.array(there, np.float32)}, {"y": np.array(here, np.float32)}) == expected


def relu_file(path: Path) -> Path:
    """A network of any number of rows."""
    node = helper.make_node("Relu", ["x"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 64]) for name in "xy"]
    model = helper.make_model(helper.make_graph([node], "relu", ends[:1], ends[1:]), ir_version=8)
    model.opset_import[0].version = 17
    path.write_bytes(model.SerializeToString())
    return path


def test_runs_computed_together(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """The shape says how many rows each run has, and leaves the model as many as the device joins."""
    daemon = start_daemon()
    command = ("bench", relu_file(tmp_path / "relu.onnx"), "--device", daemon.address, "--shape", "x=1,64", *QUICK)
    assert json_output(*command, "--batch", "16", "--concurrency", "8")["measurements"]
    with Runtime([daemon.address]) as runtime:
        load = runtime.device().counters().load
        assert load and load.batches.rows > load.batches.count


def test_a_baseline(shared_daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ONNX Runtime in this process, on the same inputs."""
    path = relu_file(tmp_path / "relu.onnx")
    command = ("bench", path, "--device", shared_daemon.address, "--shape", "x=8,64", *QUICK, "--baseline")
    found = json_output(*command, "--threads", "1")["baseline"]
    assert found["threads"] == 1
    assert found["largest_relative_difference"] == 0
    low, high = found["ratio_quartiles"]
    assert 0 < low <= found["ratio"] <= high
    assert "in ONNX Runtime in process with" in nnrt(*command).stdout
    assert "the inputs of the model are 'x'" in refused(1, *command, "--constant", "rows=1")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "install nnrt[onnxruntime]" in refused(1, *command)
