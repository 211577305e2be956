"""Every sample: the reference kernel against the oracle, and inference against the kernel."""

from collections.abc import Callable

import numpy as np
import pytest

from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec, data_type_of

from .oracles import expected
from .samples import SAMPLES, Sample
from .single_node import graph_of, infer_all, pairs, run_all, without_dims
from .tolerances import require_close

Record = Callable[[str, str, str, float], None]

per_sample = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def _inputs(sample: Sample) -> list[np.ndarray]:
    return [array for index, array in enumerate(sample.arrays()) if not sample.is_constant(index)]


def test_every_operator_has_samples() -> None:
    converting = {kind for kind, operator in OPERATORS.items() if operator.sees_quantization}  # see test_quantized
    assert {sample.node_type for sample in SAMPLES} == set(OPERATORS) - converting


@per_sample
def test_kernel_agrees_with_oracle(sample: Sample, record_error: Record) -> None:
    arrays = sample.arrays()
    wanted, oracle = expected(sample.node_type, arrays, sample.attrs, sample.layout)
    graph = graph_of(sample.node_type, pairs(sample, arrays), sample.attrs)
    actual = run_all(graph, _inputs(sample))
    for output in zip(actual, wanted, strict=True):
        record_error(sample.node_type.name, sample.dtype.name, oracle, require_close(*output))


@per_sample
def test_inference_agrees_with_kernel(sample: Sample) -> None:
    operands = pairs(sample, sample.arrays())
    inferred = infer_all(sample.node_type, operands, sample.attrs)
    actual = run_all(graph_of(sample.node_type, operands, sample.attrs), _inputs(sample))
    assert [(spec.data_type, spec.shape) for spec in inferred] == [
        (data_type_of(array.dtype), array.shape) for array in actual
    ]


@per_sample
def test_unknown_dimensions(sample: Sample) -> None:
    """With any dimension unknown, inference says what is still known, or why that one must be."""
    operands = pairs(sample, sample.arrays())
    known = infer_all(sample.node_type, operands, sample.attrs)
    for index, (operand, value) in enumerate(operands):
        for axis in range(operand.rank if value is None else 0):
            partly = [*operands[:index], without_dims(operands[index], axis), *operands[index + 1 :]]
            try:
                inferred = infer_all(sample.node_type, partly, sample.attrs)
            except InvalidParameter as refusal:
                assert "known" in str(refusal)
                continue
            for partial, whole in zip(inferred, known, strict=True):
                assert partial.accepts(whole.shape)
                assert partial.data_type == whole.data_type


@per_sample
def test_shapes_known_only_at_run_time(sample: Sample) -> None:
    """A model with unknown dimensions gives, to the bit, what the one with known dimensions gives."""
    operands = pairs(sample, sample.arrays())
    wanted = run_all(graph_of(sample.node_type, operands, sample.attrs), _inputs(sample))
    dynamic = [pair if pair[1] is not None else without_dims(pair) for pair in operands]
    known = infer_all(sample.node_type, operands, sample.attrs)
    outputs = [TensorSpec(spec.data_type, (UNKNOWN_DIM,) * spec.rank) for spec in known]
    try:
        graph = graph_of(sample.node_type, dynamic, sample.attrs, *outputs)
        actual = run_all(graph, _inputs(sample))
    except InvalidParameter as refusal:
        assert "known" in str(refusal)
        return
    for output in zip(actual, wanted, strict=True):
        np.testing.assert_array_equal(*output)
