"""Every sample of the operator suite on ONNX Runtime, against the same oracles as the reference kernels."""

from collections.abc import Sequence
from typing import Any

import pytest
from nnrt_backend_onnxruntime.backend import OnnxRuntimeBackend
from nnrt_backend_onnxruntime.session import Target
from numpy.typing import NDArray
from operators.oracles import expected
from operators.samples import SAMPLES, Sample
from operators.single_node import graph_of, pairs
from operators.tolerances import require_close

from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.graph import Graph

BACKEND = OnnxRuntimeBackend(Target("cpu", 0, 1))
per_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def run(graph: Graph, arrays: Sequence[NDArray[Any]], **config: Any) -> list[NDArray[Any]]:
    model = BACKEND.prepare(graph, ModelConfig(**config), lambda _: None)
    return model.run(arrays, Cancellation())


def inputs_of(sample: Sample) -> list[NDArray[Any]]:
    return [array for index, array in enumerate(sample.arrays()) if not sample.is_constant(index)]


@per_sample
def test_agrees_with_oracle(sample: Sample) -> None:
    arrays = sample.arrays()
    graph = graph_of(sample.node_type, pairs(sample, arrays), sample.attrs)
    (support,) = BACKEND.supported(graph)
    if not support.supported:
        pytest.skip(support.reason)
    wanted, _ = expected(sample.node_type, arrays, sample.attrs, sample.layout)
    for output in zip(run(graph, inputs_of(sample)), wanted, strict=True):
        require_close(*output)
