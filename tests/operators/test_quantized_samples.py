"""Every sample of an operator that takes quantized tensors: against the oracle on the real numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nnrt_hdi.enums import ActivationType, DataType
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.ops.operator import Accepts
from nnrt_hdi.tensor import QuantParam, TensorSpec, data_type_of

from .oracles import expected
from .quantized_values import in_steps, params_of, real
from .samples import SAMPLES, Sample
from .single_node import Pair, graph_of, infer_all, run_all

AnyArray = NDArray[Any]
Record = Callable[[str, str, float, float], None]
PER_TENSOR, PER_CHANNEL = "per tensor", "per channel"

# Rounding leaves half a step; the oracle computes in FLOAT32, so that a result close to a half may fall on either side.
HALF_STEP = 0.5 + 1e-3

REAL_SAMPLES = [
    sample
    for sample in SAMPLES
    if sample.dtype == np.float32
    and any(OPERATORS[sample.node_type].takes_quantized(rule) for rule in OPERATORS[sample.node_type].operands)
    and sample.attrs.get("activation_type") is not ActivationType.GELU  # refused
]


@pytest.mark.parametrize("granularity", [PER_TENSOR, PER_CHANNEL])
@pytest.mark.parametrize("data_type", [DataType.INT8, DataType.UINT8], ids=lambda data_type: data_type.name)
@pytest.mark.parametrize("sample", REAL_SAMPLES, ids=lambda sample: sample.name)
def test_agrees_with_real_numbers(sample: Sample, data_type: DataType, granularity: str, record_steps: Record) -> None:
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
    actual = run_all(graph_of(sample.node_type, operands, sample.attrs, *outputs), inputs)
    for spec, result, reference in zip(outputs, actual, wanted, strict=True):
        assert result.shape == reference.shape
        if not spec.quant:
            np.testing.assert_array_equal(result, reference)
            continue
        known = ~np.isnan(reference)
        steps = np.abs(result - in_steps(reference, spec, spec.channel_axis))[known]
        if steps.size:
            record_steps(sample.node_type.name, oracle, float(steps.max()), float((steps <= 0.5).mean()))
            assert steps.max() <= HALF_STEP, f"{steps.max()} steps from {oracle}"


Quantized = tuple[TensorSpec, AnyArray, AnyArray]


def quantized_operands(sample: Sample, data_type: DataType, granularity: str) -> list[Quantized]:
    """The spec, elements and real numbers of each operand, those that are FLOAT32 in the sample quantized."""
    rules = OPERATORS[sample.node_type].operands
    has_bias = any(rule.accepts.is_bias for rule in rules)
    given: list[Quantized] = []
    for at, array in enumerate(sample.arrays()):
        accepts = rules[min(at, len(rules) - 1)].accepts
        spec = TensorSpec(data_type_of(array.dtype), array.shape, sample.layout_of(array))
        if array.dtype != np.float32:
            given.append((spec, array, array))
        elif accepts.is_bias:
            given.append(bias(spec, array, given[0][0], given[1][0]))
        else:
            is_whole = granularity == PER_TENSOR or (has_bias and at == 0)
            given.append(quantized(spec, array, accepts, data_type, is_whole=is_whole))
    return given


def quantized(spec: TensorSpec, array: AnyArray, accepts: Accepts, data_type: DataType, *, is_whole: bool) -> Quantized:
    """Per channel each has another scale, and every other another zero point."""
    axis = spec.channel_axis if accepts.channel_axis is None else accepts.channel_axis
    whole = params_of(float(array.min(initial=0)), float(array.max(initial=0)), data_type)
    count = 1 if is_whole or not array.ndim else max(1, array.shape[axis])
    towards_middle = -1 if whole.zero_point > 0 else 1
    quant = tuple(
        QuantParam(whole.scale * (1 + channel % 3), whole.zero_point + channel % 2 * towards_middle)
        for channel in range(count)
    )
    spec = replace(spec, data_type=data_type, quant=quant)
    stored = np.asarray(np.rint(in_steps(array, spec, axis)), spec.numpy_dtype)
    return spec, stored, real(stored, quant, axis)


def bias(spec: TensorSpec, array: AnyArray, x: TensorSpec, weight: TensorSpec) -> Quantized:
    scales = np.array([x.quant[0].scale * param.scale for param in weight.quant])
    stored = np.rint(array / scales).astype(np.int32)
    return replace(spec, data_type=DataType.INT32), stored, (stored * scales).astype(np.float32)


def real_outputs(sample: Sample, given: list[Quantized]) -> tuple[TensorSpec, ...]:
    operands: list[Pair] = [
        (
            replace(spec, data_type=data_type_of(reals.dtype), quant=()),
            reals if sample.is_constant(at) else None,
        )
        for at, (spec, _, reals) in enumerate(given)
    ]
    return infer_all(sample.node_type, operands, sample.attrs)


def quantized_output(spec: TensorSpec, result: AnyArray, data_type: DataType, granularity: str) -> TensorSpec:
    """An output with parameters that span the result; indices and truth values have none."""
    if spec.data_type is not DataType.FLOAT32:
        return spec
    finite = result[np.isfinite(result)]
    whole = params_of(float(finite.min(initial=0)), float(finite.max(initial=0)), data_type)
    count = spec.shape[spec.channel_axis] if granularity == PER_CHANNEL and spec.rank else 1
    quant = [QuantParam(whole.scale * (1 + channel % 3), whole.zero_point) for channel in range(max(count, 1))]
    return replace(spec, data_type=data_type, quant=tuple(quant))
