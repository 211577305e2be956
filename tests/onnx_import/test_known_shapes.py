"""Networks of open dimensions for a device that takes only known shapes: decided anew for the shapes of each run."""

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx_models import REFERENCE
from test_torch_networks import EXPORTS, SIZES, fed

from nnrt_client import from_onnx
from nnrt_client.model.model import parts_of
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.graph import Graph
from nnrt_hdi.graph_model import GraphModel
from nnrt_hdi.ops import inferred_graph, late_nodes
from nnrt_hdi.tensor import Array

pytestmark = pytest.mark.table

# The others have loops, branches, or shapes that follow from numbers of FLOAT32.
NAMES = [name for name in SIZES if name not in ("speech_activity", "unet")]
MOST_BYTES = 1 << 30


class Model(GraphModel[PreparedModel]):
    """A model of a device that takes no dimension that isn't known."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph, MOST_BYTES, self._compiled)

    def _compiled(self, graph: Graph) -> PreparedModel:
        assert not any(spec.is_dynamic for spec in graph.tensors)
        return REFERENCE.prepare(graph, ModelConfig(), lambda _: None)

    def run(
        self, inputs: Sequence[Array], cancellation: Cancellation, outputs: Sequence[Array | None] = ()
    ) -> list[Array]:
        return self.prepared(inputs).run(inputs, cancellation, outputs)


@pytest.mark.parametrize("exporter", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", NAMES)
def test_networks_are_decided_by_the_shapes_of_their_inputs(name: str, exporter: str) -> None:
    path = EXPORTS / f"{name}-{exporter}.onnx"
    proto, imported = onnx.load(path), from_onnx(path)
    graph = inferred_graph(parts_of(imported).graph)
    assert any(spec.is_dynamic for spec in graph.tensors)
    assert not late_nodes(graph)
    model, dynamic = Model(graph), REFERENCE.prepare(graph, ModelConfig(), lambda _: None)
    for sizes in SIZES[name]:
        feeds = fed(proto, sizes)
        inputs = [feeds[x.desc.name] for x in imported.inputs]
        results = model.run(inputs, Cancellation())
        assert [spec.shape for spec in model.sizes(inputs).outputs] == [result.shape for result in results]
        for output in zip(results, dynamic.run(inputs, Cancellation()), strict=True):
            np.testing.assert_array_equal(*output)


def test_shapes_that_follow_from_other_numbers_come_late() -> None:
    """A resizing counts the positions of pixels in FLOAT32."""
    graph = inferred_graph(parts_of(from_onnx(EXPORTS / "unet-dynamo.onnx")).graph)
    assert {graph.nodes[index].type.name for index in late_nodes(graph)} >= {"FILL", "TOPK_FUSION"}
