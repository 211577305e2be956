"""`nnrt compare`: which operator is the first that two devices compute differently."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import StartDaemon
from daemon_process import DaemonProcess
from networks import convolution_model

from cli.command import json_output, nnrt, refused, saved
from nnrt_client import DataType, Model, OperationType, TensorDesc
from nnrt_client.cli.difference import Tolerance, compare_arrays

TOLERANCE = Tolerance(1e-3, 1e-5)


@pytest.fixture(scope="module")
def wrong() -> Iterator[DaemonProcess]:
    """Adds where it should subtract."""
    daemon = DaemonProcess("--backend", "wrong", "--option", "operator=SUB_FUSION", "--option", "as=ADD_FUSION")
    yield daemon
    daemon.kill()


def chain(additions: int, *, then_forgotten: bool = False, elements: int = 4) -> Model:
    """x + 1 + 1 + ... - 1, and then the maximum of that and 0; or, forgotten, that times 0."""
    model = Model()
    one = np.ones(elements, np.float32)
    x = y = model.input((elements,), name="x")
    for number in range(additions):
        y = model.apply(OperationType.ADD, y, one, name=f"add{number}")
    y = model.apply(OperationType.SUB, y, one, name="culprit")
    y = model.apply(OperationType.RELU, y, name="relu")
    if then_forgotten:
        y = model.apply(OperationType.MUL, y, one * 0, name="forgotten")
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


def devices(*daemons: DaemonProcess) -> list[str]:
    return [part for daemon in daemons for part in ("--device", daemon.address)]


@pytest.mark.parametrize("additions", [1, 70])
def test_names_the_first_operator(
    shared_daemon: DaemonProcess, wrong: DaemonProcess, tmp_path: Path, additions: int
) -> None:
    """Also in a model whose results are had in several runs."""
    path = saved(chain(additions), tmp_path / "chain")
    document = json_output("compare", path, *devices(shared_daemon, wrong), exit_code=1)
    assert document["devices"] == ["reference_nnrt_v2_1", "wrong_test_v2_1"]
    assert document["equal"] is False
    assert document["outputs"][0]["differing"] == document["outputs"][0]["elements"] == 4
    assert document["outputs"][0]["largest_difference"] == pytest.approx(2)
    first = document["first_operator"]
    assert (first["index"], first["type"], first["name"]) == (additions, "SUB_FUSION", "culprit")
    a, b = first["values"]
    assert b - a == pytest.approx(2)
    result = nnrt("compare", path, *devices(shared_daemon, wrong))
    assert result.exit_code == 1
    assert f"differ first in SUB_FUSION node {additions} 'culprit': 4 of 4 elements" in result.stdout


def test_of_a_scalar_declared_one(shared_daemon: DaemonProcess, wrong: DaemonProcess, tmp_path: Path) -> None:
    """Devices get one operator more, but the first that differs has its place in the model."""
    model = Model()
    x = model.input((2, 3), name="x")
    mean = model.apply(OperationType.REDUCE_MEAN, x, [0, 1], output=TensorDesc(DataType.FLOAT32, (1,)), name="mean")
    y = model.apply(OperationType.SUB, mean, np.ones(1, np.float32), name="culprit")
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    document = json_output("compare", saved(model, tmp_path / "mean"), *devices(shared_daemon, wrong), exit_code=1)
    first = document["first_operator"]
    assert (first["index"], first["type"], first["name"]) == (1, "SUB_FUSION", "culprit")


def test_results_longer_than_a_message(start_daemon: StartDaemon, wrong: DaemonProcess, tmp_path: Path) -> None:
    """Messages of the small daemon hold one of them."""
    small = start_daemon("--message-bytes", "65536")
    path = saved(chain(3, elements=12_000), tmp_path / "chain")
    document = json_output("compare", path, *devices(small, wrong), exit_code=1)
    assert document["first_operator"]["name"] == "culprit"


def test_devices_that_agree(shared_daemon: DaemonProcess, restoring_daemon: DaemonProcess, tmp_path: Path) -> None:
    path = saved(convolution_model(), tmp_path / "conv")
    command = ("compare", path, *devices(shared_daemon, restoring_daemon), "--shape", "image=3,8,8,1")
    document = json_output(*command)
    assert document["equal"] is True
    assert document["outputs"][0]["elements"] == 30
    assert document["first_operator"] is None
    assert "agree" in nnrt(*command).stdout
    assert not (tmp_path / "cache").exists()


def test_what_counts_is_the_output(shared_daemon: DaemonProcess, wrong: DaemonProcess, tmp_path: Path) -> None:
    path = saved(chain(1, then_forgotten=True), tmp_path / "chain")
    assert json_output("compare", path, *devices(shared_daemon, wrong))["equal"] is True


def test_tolerance_and_inputs(shared_daemon: DaemonProcess, wrong: DaemonProcess, tmp_path: Path) -> None:
    """1000 + 1 - 1 against 1000 + 1 + 1 is 0.2 percent."""
    path = saved(chain(1), tmp_path / "chain")
    np.save(tmp_path / "x.npy", np.full(4, 1000, np.float32))
    command = ("compare", path, *devices(shared_daemon, wrong), "--input", tmp_path / "x.npy")
    assert json_output(*command, "--rtol", "0.0019", exit_code=1)["outputs"][0]["values"] == [1000, 1002]
    assert json_output(*command, "--rtol", "0.0021")["equal"] is True
    assert json_output(*command, "--rtol", "0", "--atol", "2")["equal"] is True


def test_unknown_dimensions_need_a_shape(shared_daemon: DaemonProcess, tmp_path: Path) -> None:
    path = saved(convolution_model(), tmp_path / "conv")
    message = refused(2, "compare", path, *devices(shared_daemon, shared_daemon))
    assert "its shape by --shape image=" in message


# ---- the rule, on numbers worked out by hand

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("a", "b", "count", "largest"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0, 0),
        ([1000.0, 0.0], [1000.9, 0.0], 0, 0.9),
        ([1000.0, 0.0], [1000.9, 0.1], 1, 0.9),
        ([NAN, 1.0], [NAN, 1.0], 0, 0),
        ([NAN, 1.0], [1.0, 1.0], 1, INF),
        ([INF, 1.0], [INF, 1.0], 0, 0),
        ([INF, 1.0], [-INF, 1.0], 1, INF),
        ([1.0, INF], [1.0, 1e300], 1, INF),
    ],
)
def test_difference(a: list[float], b: list[float], count: int, largest: float) -> None:
    found = compare_arrays(np.array(a), np.array(b), TOLERANCE)
    assert found.count == count
    assert found.largest == pytest.approx(largest)


def test_difference_names_the_worst_that_counts() -> None:
    found = compare_arrays(np.array([[1e6, 0.0]]), np.array([[1e6 + 100, 3.0]]), TOLERANCE)
    assert (found.count, found.at, found.values) == (1, (0, 1), (0.0, 3.0))


def test_difference_of_shapes_and_integers() -> None:
    assert compare_arrays(np.zeros(3), np.zeros(4), TOLERANCE).count == 4
    assert compare_arrays(np.zeros(3, np.int8), np.zeros(3), TOLERANCE).count == 3
    assert compare_arrays(np.zeros((0, 3)), np.zeros((0, 3)), TOLERANCE).count == 0
    assert compare_arrays(np.array([2**60]), np.array([2**60]), TOLERANCE).count == 0
    assert compare_arrays(np.array([7, 8], np.uint8), np.array([7, 9], np.uint8), TOLERANCE).count == 1
