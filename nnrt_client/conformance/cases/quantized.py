"""Quantized tensors: the FLOAT32 samples in INT8 and UINT8, per tensor and per channel.

Operators see real numbers (ADR 3): the answer is the oracle's result for the dequantized inputs, rounded to the steps
of the output. The output's parameters span the range of the FLOAT32 answer; in saturating variants a third of it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.answers import load_answer
from nnrt_client.conformance.case import Case, Level, Mark
from nnrt_client.conformance.cases.one_node import Pair, graph_of, infer_all
from nnrt_client.conformance.cases.sample import Sample
from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_client.conformance.tolerance import ONE_STEP
from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.ops.operator import Accepts
from nnrt_hdi.tensor import QuantParam, TensorSpec, data_type_of

AnyArray = NDArray[Any]
# Spec, quantized elements, and the real numbers that the elements represent.
Quantized = tuple[TensorSpec, AnyArray, AnyArray]

PER_TENSOR, PER_CHANNEL, SATURATED = "per_tensor", "per_channel", "saturated"
VARIANTS = (
    (DataType.INT8, PER_TENSOR),
    (DataType.INT8, PER_CHANNEL),
    (DataType.INT8, SATURATED),
    (DataType.UINT8, PER_TENSOR),
    (DataType.UINT8, PER_CHANNEL),
)
# Elements of different channels may represent numbers that differ only in the last bit, so their order is open.
_ORDERING = {NodeType.ARGMAX_FUSION, NodeType.TOPK_FUSION}
# Number of samples per node type that run in all variants.
ALL_VARIANTS = 3
REAL_SAMPLES = [
    sample
    for sample in SAMPLES
    if sample.dtype == np.float32
    and any(OPERATORS[sample.node_type].takes_quantized(rule) for rule in OPERATORS[sample.node_type].operands)
    and sample.attrs.get("activation_type") is not ActivationType.GELU  # refused
]


def quantized() -> Iterator[Case]:
    """Yield the cases of the level "quantized"."""
    seen: set[tuple[NodeType, DataType, str]] = set()
    counts: dict[NodeType, int] = {}
    for sample in REAL_SAMPLES:
        if any(np.isnan(y).any() for y in _answer(sample)):  # No quantized element represents NaN.
            continue
        count = counts[sample.node_type] = counts.get(sample.node_type, -1) + 1
        # Later samples take one variant each, in turn: they differ in shape, not in arithmetic.
        variants = VARIANTS if count < ALL_VARIANTS else (VARIANTS[count % len(VARIANTS)],)
        for data_type, variant in variants:
            if variant == PER_CHANNEL and sample.node_type in _ORDERING:
                continue
            kind = sample.node_type, data_type, variant
            name = f"{sample.name}-{data_type.name.lower()}-{variant}"
            yield Case(
                f"{Level.QUANTIZED.value}/{name}",
                Level.QUANTIZED,
                sample.family,
                (sample.node_type,),
                data_type,
                partial(_made, sample, data_type, variant),
                name,
                ONE_STEP,
                marks=frozenset() if kind in seen else frozenset({Mark.QUICK}),
            )
            seen.add(kind)


def _answer(sample: Sample) -> Sequence[AnyArray]:
    (outputs,) = load_answer(Level.OPERATORS.value, sample.name).runs
    assert outputs is not None
    return outputs


def _made(sample: Sample, data_type: DataType, variant: str) -> tuple[Graph, list[list[AnyArray]]]:
    given = quantized_operands(sample, data_type, variant)
    outputs = [
        _output(spec, result, data_type, variant)
        for spec, result in zip(_real_outputs(sample, given), _answer(sample), strict=True)
    ]
    operands: list[Pair] = [
        (spec, array if sample.is_constant(at) else None) for at, (spec, array, _) in enumerate(given)
    ]
    inputs = [array for at, (_, array, _) in enumerate(given) if not sample.is_constant(at)]
    return graph_of(sample.node_type, operands, sample.attrs, *outputs), [inputs]


def quantized_operands(sample: Sample, data_type: DataType, variant: str) -> list[Quantized]:
    """Quantize the FLOAT32 operands of a sample."""
    rules = OPERATORS[sample.node_type].operands
    has_bias = any(rule.accepts.is_bias for rule in rules)
    given: list[Quantized] = []
    for at, array in enumerate(sample.arrays()):
        accepts = rules[min(at, len(rules) - 1)].accepts
        spec = TensorSpec(data_type_of(array.dtype), array.shape, sample.layout_of(array))
        if array.dtype != np.float32:
            given.append((spec, array, array))
        elif accepts.is_bias:
            given.append(_bias(spec, array, given[0][0], given[1][0]))
        else:
            is_whole = variant != PER_CHANNEL or (has_bias and at == 0)
            given.append(_operand(spec, array, accepts, data_type, is_whole=is_whole))
    return given


def _operand(spec: TensorSpec, array: AnyArray, accepts: Accepts, data_type: DataType, *, is_whole: bool) -> Quantized:
    """Quantize an operand. Per channel, scales differ and every second channel has another zero point."""
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


def _bias(spec: TensorSpec, array: AnyArray, x: TensorSpec, weight: TensorSpec) -> Quantized:
    scales = np.array([x.quant[0].scale * param.scale for param in weight.quant])
    stored = np.rint(array / scales).astype(np.int32)
    return replace(spec, data_type=DataType.INT32), stored, (stored * scales).astype(np.float32)


def _real_outputs(sample: Sample, given: list[Quantized]) -> tuple[TensorSpec, ...]:
    operands: list[Pair] = [
        (replace(spec, data_type=data_type_of(reals.dtype), quant=()), reals if sample.is_constant(at) else None)
        for at, (spec, _, reals) in enumerate(given)
    ]
    return infer_all(sample.node_type, operands, sample.attrs)


def _output(spec: TensorSpec, result: AnyArray, data_type: DataType, variant: str) -> TensorSpec:
    """Return the spec of an output with parameters that span the result; indices and booleans get none."""
    if spec.data_type is not DataType.FLOAT32:
        return spec
    finite = result[np.isfinite(result)] / (3 if variant == SATURATED else 1)
    whole = params_of(float(finite.min(initial=0)), float(finite.max(initial=0)), data_type)
    count = spec.shape[spec.channel_axis] if variant == PER_CHANNEL and spec.rank else 1
    quant = [QuantParam(whole.scale * (1 + channel % 3), whole.zero_point) for channel in range(max(count, 1))]
    return replace(spec, data_type=data_type, quant=tuple(quant))


def params_of(low: float, high: float, data_type: DataType) -> QuantParam:
    """Return parameters that span a range and 0, with a scale that FLOAT32 represents exactly."""
    low, high = min(low, 0.0), max(high, 0.0)
    limits = np.iinfo(data_type.name.lower())
    scale = float(np.float32(max(high - low, 1e-3) / 255))
    return QuantParam(scale, int(np.clip(np.rint(limits.min - low / scale), limits.min, limits.max)))


def real(array: AnyArray, quant: Sequence[QuantParam], axis: int) -> AnyArray:
    """Dequantize elements to FLOAT32; elements without parameters stay as they are."""
    if not quant:
        return array
    scale, zero_point = _along(array, quant, axis)
    return np.asarray((array.astype(np.float64) - zero_point) * scale, np.float32)


def in_steps(reals: AnyArray, spec: TensorSpec, axis: int) -> AnyArray:
    """Convert real numbers to steps of a quantized tensor, clamped but not rounded."""
    scale, zero_point = _along(reals, spec.quant, axis)
    limits = np.iinfo(spec.data_type.name.lower())
    return np.asarray(np.clip(reals.astype(np.float64) / scale + zero_point, limits.min, limits.max))


def _along(array: AnyArray, quant: Sequence[QuantParam], axis: int) -> tuple[AnyArray, AnyArray]:
    """Return scales and zero points as arrays that broadcast with the elements."""
    shape = [-1 if at == axis and len(quant) > 1 else 1 for at in range(array.ndim)]
    scales, zero_points = (np.array([getattr(param, name) for param in quant]) for name in ("scale", "zero_point"))
    return scales.reshape(shape), zero_points.reshape(shape)
