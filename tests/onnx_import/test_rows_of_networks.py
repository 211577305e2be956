"""Exported networks with independent rows: a batched run gives each run its own result."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from loaded import loaded
from onnx_models import AnyArray
from test_torch_networks import EXPORTS, NAMES, SIZES, fed

from nnrt_client import from_onnx
from nnrt_client.model.model import parts_of
from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.errors import Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops.rows_apart import require_rows_apart

pytestmark = pytest.mark.table

# Reasons why rows depend on each other or can't be batched, with both exporters.
MIXED = {
    "detector": "GATHER|TOPK|k depends on how many rows there are",
    "gru": r"tensor 1 'state': FLOAT32\[2, \?, 8\] has no open dimension 0",
    "lstm": "'hidden': its dimension 0 is not that of the rows alone",
    "speech_activity": "",
}


def graph_of(path: Path) -> Graph:
    return parts_of(from_onnx(path)).graph


@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
@pytest.mark.parametrize("name", [name for name in NAMES if name.partition("-")[0] not in MIXED])
def test_joined_runs_give_what_each_gives_alone(name: str, backend: str) -> None:
    path = EXPORTS / f"{name}.onnx"
    graph, proto = graph_of(path), onnx.load(path)
    require_rows_apart(graph)
    model = loaded(backend).prepare(graph, ModelConfig(), lambda _: None)
    feeds = fed(proto, {**SIZES[name.partition("-")[0]][1], "batch": 4})
    given = [feeds[spec.name] for spec in graph.input_specs]
    joined: list[AnyArray] = model.run(given, Cancellation())
    for rows in (slice(0, 1), slice(1, 4)):
        alone: list[AnyArray] = model.run([array[rows] for array in given], Cancellation())
        for whole, part in zip(joined, alone, strict=True):
            np.testing.assert_allclose(whole[rows], part, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize(("name", "reason"), [(name, reason) for name, reason in MIXED.items() if reason])
def test_networks_that_mix_rows_say_where(name: str, reason: str, exporter: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        require_rows_apart(graph_of(EXPORTS / f"{name}-{exporter}.onnx"))
