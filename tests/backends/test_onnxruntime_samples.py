"""Every sample on ONNX Runtime in other ways than the kit's cases: restored and in half precision."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nnrt_backend_onnxruntime.backend import OnnxRuntimeBackend
from nnrt_backend_onnxruntime.kernels import Kernels
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_backend_onnxruntime.session import open_session, session_options
from nnrt_onnx_lowering.lowered import lower
from numpy.typing import NDArray
from operators.lacking import NO_KERNEL, lacks_kernel
from operators.single_node import graph_of, pairs

from nnrt_client.conformance import Level, cases
from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import DataType
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import inferred_graph

pytestmark = pytest.mark.table

AnyArray = NDArray[Any]

CPU = ProviderDevice("cpu", 0, 1)
BACKEND, HALF_KERNELS = OnnxRuntimeBackend(CPU), Kernels(CPU.providers(), computes_float16=True)

SINGLE = [sample for sample in SAMPLES if sample.dtype == np.float32][::6]
per_single_sample = pytest.mark.parametrize("sample", SINGLE, ids=lambda sample: sample.name)


def run(graph: Graph, arrays: Sequence[AnyArray], **config: Any) -> list[AnyArray]:
    model = BACKEND.prepare(graph, ModelConfig(**config), lambda _: None)
    return model.run(arrays, Cancellation())


def inputs_of(sample: Sample) -> list[AnyArray]:
    return [array for index, array in enumerate(sample.arrays()) if not sample.is_constant(index)]


@pytest.mark.parametrize("data_type", NO_KERNEL, ids=lambda data_type: data_type.name)
def test_what_lacks_a_kernel_still_does(data_type: DataType) -> None:
    """When this fails, ONNX Runtime has learnt something: shorten the table."""
    lacking = set()
    for case in cases(Level.OPERATORS):
        if case.data_type is data_type and lacks_kernel(case):
            (support,) = BACKEND.supported(case.graph)
            lacking |= set() if support.supported else {*case.node_types}
    assert lacking == NO_KERNEL[data_type]


@per_single_sample
def test_is_restored(sample: Sample) -> None:
    """A compiled model may hold all operators that ONNX Runtime's optimizations make of a node."""
    graph = graph_of(sample.node_type, pairs(sample, sample.arrays()), sample.attrs)
    model = BACKEND.prepare(graph, ModelConfig(), lambda _: None)
    restored = BACKEND.restore(model.export(), ModelConfig())
    inputs = inputs_of(sample)
    for output in zip(restored.run(inputs, Cancellation()), model.run(inputs, Cancellation()), strict=True):
        np.testing.assert_array_equal(*output)


@per_single_sample
def test_float16(sample: Sample) -> None:
    """Kept in half of the memory, and computed so where a provider can: here only that it runs."""
    graph = graph_of(sample.node_type, pairs(sample, sample.arrays()), sample.attrs)
    wanted = run(graph, inputs_of(sample))
    halved = run(graph, inputs_of(sample), enable_float16=True)
    lowered = lower(inferred_graph(graph), HALF_KERNELS, float16=True)
    options = session_options(CPU, ModelConfig())
    session = open_session(lowered.model.SerializeToString(), lowered.weights, options, CPU, {})
    names = [entry.name for entry in session.get_inputs()]
    computed = session.run(None, dict(zip(names, inputs_of(sample), strict=True)))
    for results in (halved, computed[: len(wanted)]):  # Behind them is what assertions look at.
        assert [(y.dtype, y.shape) for y in results] == [(y.dtype, y.shape) for y in wanted]
