"""Every sample of the operator suite on ONNX Runtime, against the oracles and tolerances of the reference kernels."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from nnrt_backend_onnxruntime.backend import OnnxRuntimeBackend
from nnrt_backend_onnxruntime.kernels import Kernels
from nnrt_backend_onnxruntime.program import lower
from nnrt_backend_onnxruntime.providers import ProviderDevice
from nnrt_backend_onnxruntime.session import open_session, session_options
from numpy.typing import NDArray
from operators.oracles import expected
from operators.quantized_values import in_steps
from operators.samples import SAMPLES, Sample
from operators.single_node import Pair, graph_of, infer_all, pairs, without_dims
from operators.test_quantized_samples import (
    PER_CHANNEL,
    PER_TENSOR,
    REAL_SAMPLES,
    quantized_operands,
    quantized_output,
    real_outputs,
)
from operators.tolerances import require_close

from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter, Unsupported
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import inferred_graph
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec

AnyArray = NDArray[Any]

CPU = ProviderDevice("cpu", 0, 1)
BACKEND, KERNELS = OnnxRuntimeBackend(CPU), Kernels(CPU.providers())

# What ONNX Runtime's CPU provider has no kernels for, and the lowerings no other way.
NO_KERNEL: dict[str, set[NodeType]] = {
    "float64": {
        NodeType.AVGPOOL_FUSION,
        NodeType.CONV2D_FUSION,
        NodeType.CONV2D_TRANSPOSE_FUSION,
        NodeType.LSTM,
    },
    "uint64": {
        NodeType.REDUCE_FUSION,
    },
}

SINGLE = [sample for sample in SAMPLES if sample.dtype == np.float32]
per_single_sample = pytest.mark.parametrize("sample", SINGLE, ids=lambda sample: sample.name)
per_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def run(graph: Graph, arrays: Sequence[AnyArray], **config: Any) -> list[AnyArray]:
    model = BACKEND.prepare(graph, ModelConfig(**config), lambda _: None)
    return model.run(arrays, Cancellation())


def inputs_of(sample: Sample) -> list[AnyArray]:
    return [array for index, array in enumerate(sample.arrays()) if not sample.is_constant(index)]


def may_lack_kernel(sample: Sample) -> bool:
    return sample.node_type in NO_KERNEL.get(sample.dtype.name, set())


@per_sample
def test_agrees_with_oracle(sample: Sample) -> None:
    arrays = sample.arrays()
    graph = graph_of(sample.node_type, pairs(sample, arrays), sample.attrs)
    (support,) = BACKEND.supported(graph)
    if not support.supported:
        assert may_lack_kernel(sample), support.reason
        with pytest.raises(Unsupported, match="kernel"):
            run(graph, [])
        return
    wanted, _ = expected(sample.node_type, arrays, sample.attrs, sample.layout)
    for output in zip(run(graph, inputs_of(sample)), wanted, strict=True):
        require_close(*output)


@pytest.mark.parametrize("dtype", NO_KERNEL)
def test_what_lacks_a_kernel_still_does(dtype: str) -> None:
    """When this fails, ONNX Runtime has learnt something: shorten the table."""
    lacking = set()
    for sample in SAMPLES:
        if sample.dtype.name == dtype and may_lack_kernel(sample):
            (support,) = BACKEND.supported(graph_of(sample.node_type, pairs(sample, sample.arrays()), sample.attrs))
            lacking |= set() if support.supported else {sample.node_type}
    assert lacking == NO_KERNEL[dtype]


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
    lowered = lower(inferred_graph(graph), KERNELS, float16=True, half_kernels=True)
    options = session_options(CPU, ModelConfig())
    session = open_session(lowered.model.SerializeToString(), lowered.weights, options, CPU, {})
    names = [entry.name for entry in session.get_inputs()]
    computed = session.run(None, dict(zip(names, inputs_of(sample), strict=True)))
    for results in (halved, computed[: len(wanted)]):  # Behind them is what assertions look at.
        assert [(y.dtype, y.shape) for y in results] == [(y.dtype, y.shape) for y in wanted]


@per_single_sample
def test_shapes_known_only_at_run_time(sample: Sample) -> None:
    """A model with unknown dimensions gives what the one with known dimensions gives."""
    operands = pairs(sample, sample.arrays())
    dynamic = [pair if pair[1] is not None else without_dims(pair) for pair in operands]
    known = infer_all(sample.node_type, operands, sample.attrs)
    outputs = [TensorSpec(spec.data_type, (UNKNOWN_DIM,) * spec.rank) for spec in known]
    try:
        graph = graph_of(sample.node_type, dynamic, sample.attrs, *outputs)
        actual = run(graph, inputs_of(sample))
    except (InvalidParameter, Unsupported) as refusal:
        assert "known" in str(refusal)
        return
    wanted = run(graph_of(sample.node_type, operands, sample.attrs), inputs_of(sample))
    for output in zip(actual, wanted, strict=True):
        require_close(*output)


@pytest.mark.parametrize("granularity", [PER_TENSOR, PER_CHANNEL])
@pytest.mark.parametrize("sample", REAL_SAMPLES, ids=lambda sample: sample.name)
def test_quantized(sample: Sample, granularity: str) -> None:
    """At most a step from the oracle on the real numbers, and half a step that the rounding takes."""
    data_type = DataType.INT8 if len(sample.name) % 2 else DataType.UINT8
    given = quantized_operands(sample, data_type, granularity)
    wanted, oracle = expected(sample.node_type, [reals for _, _, reals in given], sample.attrs, sample.layout)
    outputs = [
        quantized_output(spec, result, data_type, granularity)
        for spec, result in zip(real_outputs(sample, given), wanted, strict=True)
    ]
    operands: list[Pair] = [
        (spec, array if sample.is_constant(at) else None) for at, (spec, array, _) in enumerate(given)
    ]
    inputs = [array for at, (_, array, _) in enumerate(given) if not sample.is_constant(at)]
    graph = graph_of(sample.node_type, operands, sample.attrs, *outputs)
    assert BACKEND.supported(graph)[0].supported
    for spec, result, reference in zip(outputs, run(graph, inputs), wanted, strict=True):
        assert result.shape == reference.shape
        if not spec.quant:
            np.testing.assert_array_equal(result, reference)
            continue
        known = ~np.isnan(reference)
        steps = np.abs(result - in_steps(reference, spec, spec.channel_axis))[known]
        assert steps.max(initial=0) <= 1.5, f"{steps.max()} steps from {oracle}"
