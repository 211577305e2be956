"""`nnrt run --profile`: the duration of each operator."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model, identity_model

from cli.command import json_output, nnrt, saved
from nnrt_client.cli.run_profile import Kind, Profile
from nnrt_client.tracing.tracer import Outcome
from nnrt_hdi.operator_times import Besides, OperatorTime
from nnrt_hdi.run_times import RunTimes

KINDS = {
    "reference": {"CONV2D_FUSION", "MAX_POOL_FUSION", "RESHAPE", "FULL_CONNECTION", "SOFTMAX"},
    "onnxruntime": {"Conv", "MaxPool", "Gemm", "Softmax"},
}
BESIDES = {"reference": [], "onnxruntime": ["open a session to profile", "run once before"]}


@pytest.fixture
def command(tmp_path: Path) -> Sequence[object]:
    np.save(tmp_path / "images.npy", np.ones((2, 8, 8, 1), np.float32))
    model = saved(convolution_model(), tmp_path / "model.nnrt")
    return "run", model, "--input", f"image={tmp_path / 'images.npy'}", "--no-cache", "--profile"


def test_each_operator_and_each_kind(command: Sequence[object], each_daemon: DaemonProcess) -> None:
    document = json_output(*command, "--device", each_daemon.address)
    backend = "onnxruntime" if "onnxruntime" in document["device"] else "reference"  # Torch names nodes like it.
    profile = document["profile"]
    operators, kinds = profile["operators"], profile["kinds"]
    assert {one["operator"] for one in kinds} >= KINDS[backend]
    assert [one["operator"] for one in profile["besides"]] == BESIDES[backend]
    for found in (operators, kinds):
        assert [one["took_ns"] for one in found] == sorted((one["took_ns"] for one in found), reverse=True)
        assert sum(one["took_ns"] for one in found) == profile["operators_ns"]
        assert sum(one["share"] for one in found) == pytest.approx(1)
    assert sum(kind["nodes"] for kind in kinds) == len(operators)
    assert all(one["began_ns"] >= 0 for one in operators)
    assert profile["computed_ns"] >= max(one["took_ns"] for one in operators)
    assert document["outputs"]  # Durations of the first run.


def test_people_see_a_table(command: Sequence[object], shared_daemon: DaemonProcess) -> None:
    result = nnrt(*command, "--device", shared_daemon.address)
    assert result.exit_code == 0, result.output
    rows = [line.split() for line in result.stdout.splitlines()]
    (kind,) = (row for row in rows if row[:2] == ["MAX_POOL_FUSION", "1"])
    assert float(kind[2]) >= 0 and kind[4] == "%"
    assert len([row for row in rows if row[:1] == ["MAX_POOL_FUSION"]]) == 2
    assert "operators took" in result.stdout and "profiled run" in result.stdout


def test_a_device_that_can_not_tell(start_daemon: StartDaemon, tmp_path: Path) -> None:
    """If the device can't profile, the command says so, and still runs the model."""
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    model, plain = saved(identity_model(), tmp_path / "model.nnrt"), start_daemon("--backend", "plain")
    command = ("run", model, "--input", tmp_path / "x.npy", "--profile", "--device", plain.address)
    result = nnrt(*command)
    assert result.exit_code == 0, result.output
    assert "the operators' times are not known: plain_test_v2_1 can't profile" in " ".join(result.stdout.split())
    assert plain.log().count("run started") == 1
    document = json_output(*command)
    assert document["profile"] is None
    assert document["outputs"]


def test_sums_and_shares() -> None:
    """Worked out by hand: a profile of two parts, one of which also took time besides its operators."""

    def part(*operators: OperatorTime, computed_ns: int) -> Outcome:
        times = RunTimes(**{name: computed_ns if name == "computed_ns" else 0 for name in RunTimes._fields})
        return Outcome(1, 1, 0, 0, lambda: times, 0, 0, operators, None)

    profile = Profile(
        [
            part(
                Besides("", "open", 0, 900),
                OperatorTime("a", "Conv", 900, 30),
                OperatorTime("b", "Relu", 930, 10),
                computed_ns=1000,
            ),
            part(OperatorTime("c", "Conv", 5, 40), OperatorTime("d", "Gemm", 50, 0), computed_ns=60),
        ]
    )
    assert profile.kinds == [Kind("Conv", 2, 70), Kind("Relu", 1, 10), Kind("Gemm", 1, 0)]
    assert [one.name for one in profile.operators] == ["c", "a", "b", "d"]
    assert (profile.computed_ns, profile.took_ns) == (1060, 80)
    assert [profile.share(kind.took_ns) for kind in profile.kinds] == [0.875, 0.125, 0.0]
    assert [one.operator for one in profile.besides] == ["open"]
    assert Profile([part(computed_ns=5)]).share(0) == 0.0
