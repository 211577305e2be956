"""Data sets of Ray on the devices of a cluster."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from waiting import DEADLINE_S

from nnrt_client import Model, OperationType
from nnrt_hdi.errors import InvalidParameter
from on_ray.clusters import add_node

pytest.importorskip("ray.data", reason="needs Ray: `make engines` has it")

from nnrt_client.ray import DeviceProcess, Predictor, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore"),  # Ray's own.
    pytest.mark.usefixtures("cluster"),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_data.py"
ROWS = 640
COLUMNS = 3
REFERENCE = ("--backend", "reference")


def affine_model(rows: int) -> Model:
    """y = 2x + 1."""
    model = Model()
    x = model.input((rows, COLUMNS), name="x")
    doubled = model.apply(OperationType.MUL, x, np.full(1, 2, "f4"))
    y = model.apply(OperationType.ADD, doubled, np.ones(1, "f4"))
    model.specify_inputs_and_outputs([x], [y])
    model.finish()
    return model


@pytest.fixture(params=[-1, 24], ids=["any number of rows", "24 rows"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "affine.nnrt"
    affine_model(request.param).save(path)
    return path


def rows_of(batch: dict[str, Any]) -> dict[str, Any]:
    ids = batch["id"].astype("f4")
    return {"id": batch["id"], "x": np.stack([ids, -ids, ids + 0.5], axis=1)}


def require_right(rows: list[dict[str, Any]]) -> None:
    """Every row once, with what the model makes of it."""
    assert sorted(row["id"] for row in rows) == list(range(ROWS))
    for row in rows:
        (result,) = (value for name, value in row.items() if name != "id")
        np.testing.assert_array_equal(result, [2 * row["id"] + 1, -2 * row["id"] + 1, 2 * row["id"] + 2])


def test_a_data_set_goes_through_all_devices(model: Path) -> None:
    import ray

    predicted = (
        ray.data.range(ROWS, override_num_blocks=20)
        .map_batches(rows_of)
        .map_batches(
            Predictor,
            fn_constructor_args=[str(model)],
            fn_constructor_kwargs={"serve": REFERENCE, "keep": ["id"]},
            batch_size=32,
            concurrency=2,
            num_cpus=0,
            resources={"nnrt_device": 1},
        )
    )
    require_right(predicted.take_all())


def test_a_data_set_goes_to_a_fleet(model: Path) -> None:
    import ray

    with start("cameras", serve=REFERENCE) as fleet:
        predicted = (
            ray.data.range(ROWS, override_num_blocks=20)
            .map_batches(rows_of)
            .map_batches(
                Predictor,
                fn_constructor_args=[str(model), fleet.target],
                fn_constructor_kwargs={"keep": ["id"]},
                batch_size=32,
                concurrency=2,
                num_cpus=0,
            )
        )
        require_right(predicted.take_all())


def gated_rows(gate: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """As `rows_of`; the second half comes when the file is there."""

    def rows(batch: dict[str, Any]) -> dict[str, Any]:
        deadline = time.monotonic() + 8 * DEADLINE_S
        while batch["id"].max() >= ROWS // 2 and not Path(gate).exists():
            assert time.monotonic() < deadline
            os.sched_yield()
        return rows_of(batch)

    return rows


def test_a_node_that_is_lost_loses_no_row(cluster: Any, tmp_path: Path) -> None:
    """Half of the rows are through when a node is gone, its daemon too; another node takes its place."""
    import ray

    path = tmp_path / "affine.nnrt"
    affine_model(-1).save(path)
    gate = tmp_path / "gate"
    predicted = (
        ray.data.range(ROWS, override_num_blocks=20)
        .map_batches(gated_rows(str(gate)))
        .map_batches(
            Predictor,
            fn_constructor_args=[str(path)],
            fn_constructor_kwargs={"serve": REFERENCE, "keep": ["id"]},
            batch_size=8,
            concurrency=2,
            num_cpus=0,
            resources={"nnrt_device": 1},
        )
    )
    rows = []
    for row in predicted.iter_rows():
        rows.append(row)
        if len(rows) == 1:
            lost = next(node for node in cluster.worker_nodes)
            cluster.remove_node(lost, allow_graceful=False)
            add_node(cluster)
            gate.touch()
    require_right(rows)


def test_a_daemon_that_dies_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "affine.nnrt"
    affine_model(-1).save(path)
    batch = rows_of({"id": np.arange(5)})
    with Predictor(str(path), serve=REFERENCE, keep=["id"]) as predictor:
        before = predictor(batch)
        pid = daemon_of(predictor).pid
        os.kill(pid, signal.SIGKILL)
        after = predictor(batch)
        assert daemon_of(predictor).pid != pid
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_array_equal(before[name], after[name])


def daemon_of(predictor: Predictor) -> DeviceProcess:
    assert predictor.daemon is not None
    return predictor.daemon


def test_columns_by_other_names(model: Path) -> None:
    batch = rows_of({"id": np.arange(50)})
    with Predictor(str(model), serve=REFERENCE, columns={"x": "pixels"}) as predictor:
        outputs = predictor({"pixels": batch["x"]})
        (result,) = outputs.values()
        np.testing.assert_array_equal(result, 2 * batch["x"] + 1)
        with pytest.raises(InvalidParameter, match=r"the columns \['x'\], and none is 'pixels'"):
            predictor({"x": batch["x"]})


def test_a_batch_without_rows(model: Path) -> None:
    batch = rows_of({"id": np.arange(0)})
    with Predictor(str(model), serve=REFERENCE) as predictor:
        (result,) = predictor(batch).values()
        assert result.shape == (0, COLUMNS)


def test_the_example(cluster: Any, tmp_path: Path) -> None:
    """Mean red, green and blue of images are the scores that this network gives."""
    onnx = pytest.importorskip("onnx")
    network = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]>
        means (float[N, 3, 224, 224] data) => (float[N, 3] scores)
        { pooled = GlobalAveragePool(data)
          scores = Flatten(pooled) }"""
    )
    onnx.save(network, tmp_path / "means.onnx")
    images = tmp_path / "images"
    images.mkdir()
    colours = {"red.png": (255, 0, 0), "grey.png": (51, 51, 51), "blue.png": (0, 0, 255)}
    for name, colour in colours.items():
        Image.new("RGB", (32, 16), colour).save(images / name)
    subprocess.run(
        [sys.executable, EXAMPLE, tmp_path / "means.onnx", "data", images, tmp_path / "scores"],
        env={**os.environ, "RAY_ADDRESS": cluster.address},
        check=True,
        timeout=300,
    )
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = parquet.read_table(tmp_path / "scores").to_pylist()
    assert {Path(row["path"]).name for row in rows} == colours.keys()
    assert len(rows) == len(colours)
    for row in rows:
        expected = (np.array(colours[Path(row["path"]).name]) / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
        np.testing.assert_allclose(row["scores"], expected, atol=1e-3)  # Of 50,176 float32 each.
