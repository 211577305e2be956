"""Rules for operators on quantized tensors: which real numbers the elements stand for.

An operator is defined on real numbers. For an operator declared with `quantized=True`, inference and backends act as if
each quantized operand were the FLOAT32 tensor of the numbers (q - zero_point) scale. The result is rounded to the
parameters that the model declares for the output. Operators need to know nothing else about quantization.

Several parameters run along the channels: dimension 0 of the weight of a convolution or full connection, or the
dimension that the layout says (`TensorSpec.channel_axis`). An INT32 bias beside a quantized input and weight has no
parameters of its own: its scale is the product of theirs, its zero point 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from nnrt_hdi.enums import DataType, Format
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.tensor import UNKNOWN_DIM, QuantParam, TensorSpec

NUM_BITS = 8
# The data types of quantized tensors, and the range of their elements.
QUANTIZED_TYPES = {DataType.INT8: range(-128, 128), DataType.UINT8: range(256)}


@dataclass(frozen=True, slots=True)
class Scaling:
    """Mapping of elements q to the real numbers (q - zero_point) scale.

    One of `params` counts for the whole tensor; several run along dimension `axis`. With a scale of 0 every element
    stands for 0.
    """

    params: tuple[QuantParam, ...]
    axis: int = 0


@dataclass(frozen=True, slots=True)
class RealView:
    """Scalings of a node's operands and outputs, by which it computes real numbers; None for those without one."""

    inputs: tuple[Scaling | None, ...]
    outputs: tuple[Scaling | None, ...]


def scaling_of(name: str, spec: TensorSpec, axis: int | None = None) -> Scaling:
    """Return the scaling by which a quantized tensor is read. Refuses invalid parameters.

    Args:
        name: The tensor's name in messages.
        spec: The tensor.
        axis: The dimension of several parameters; None for that of the channels.
    """
    limits = QUANTIZED_TYPES.get(spec.data_type)
    if limits is None:
        _refuse(f"{name} is {spec.data_type.name} with quantization parameters; use INT8 or UINT8")
    axis = spec.channel_axis if axis is None else axis
    count = len(spec.quant)
    if count > 1:
        if not 0 <= axis < spec.rank:
            _refuse(f"{name} {spec} has {count} quantization parameters but no dimension {axis} of channels; use 1")
        if spec.shape[axis] not in (UNKNOWN_DIM, count):
            _refuse(
                f"{name} {spec} has {count} quantization parameters; use 1, or one for each of the"
                f" {spec.shape[axis]} channels in dimension {axis}"
            )
    for position, param in enumerate(spec.quant):
        if param.num_bits == NUM_BITS and 0 <= param.scale < math.inf and param.zero_point in limits:
            continue
        place = name if count == 1 else f"channel {position} of {name}"
        if param.num_bits != NUM_BITS:
            _refuse(f"{place} is quantized to {param.num_bits} bits; use {NUM_BITS}")
        if not (math.isfinite(param.scale) and param.scale >= 0):
            _refuse(f"the scale of {place} is {param.scale!r}; use a number above 0, or 0 where all elements are 0")
        if param.zero_point not in limits:
            _refuse(
                f"the zero point of {place} is {param.zero_point}; use {limits[0]}..{limits[-1]}"
                f" ({spec.data_type.name})"
            )
    return Scaling(spec.quant, axis)


def bias_scaling(name: str, x: Scaling | None, weight: Scaling | None) -> Scaling:
    """Return the scaling of an INT32 bias, whose scale is the product of the scales of x and weight."""
    if x is None or weight is None:
        missing = "x" if x is None else "weight"
        _refuse(f"{name} is INT32, but {missing}, whose scale decides what it stands for, is not quantized")
    if len(x.params) > 1:
        _refuse(f"{name} is INT32, but x has {len(x.params)} scales; quantize x with one")
    return Scaling(tuple(QuantParam(x.params[0].scale * param.scale, 0) for param in weight.params))


def real_spec(spec: TensorSpec) -> TensorSpec:
    """Return the FLOAT32 spec of the real numbers that a tensor's elements stand for."""
    return replace(spec, data_type=DataType.FLOAT32, quant=())


def real_declaration(declared: TensorSpec) -> TensorSpec:
    """Return the declaration of an output with FLOAT32 instead of a quantized type."""
    return real_spec(declared) if declared.data_type in QUANTIZED_TYPES else declared


def quantized_output(
    result: TensorSpec, declared: TensorSpec | None, data_type: DataType, quant: tuple[QuantParam, ...]
) -> TensorSpec:
    """Return the spec of a quantized output, from the spec of its real numbers and its declaration.

    Indices and truth values aren't real numbers, and are returned unchanged.

    Args:
        result: The output for real numbers.
        declared: The model's declaration, if any.
        data_type: The data type if none is declared.
        quant: The quantization parameters if none are declared.
    """
    if result.data_type is not DataType.FLOAT32:
        return result
    name = repr(declared.name) if declared and declared.name else "the output"
    if declared is not None and declared.data_type is not DataType.UNKNOWN:
        data_type = declared.data_type
    if data_type not in QUANTIZED_TYPES:
        _refuse(
            f"{name} is declared {data_type.name}, but operands are quantized; declare it INT8 or UINT8 with"
            " quantization parameters, and convert it by QUANT_DTYPE_CAST"
        )
    quant = (declared.quant if declared else ()) or quant
    if not quant:
        _refuse(f"{name} has no quantization parameters, but operands are quantized; give it some")
    layout = declared.format if declared and result.format is Format.NONE else result.format
    spec = replace(result, data_type=data_type, quant=quant, format=layout)
    scaling_of(name, spec)
    return spec


def common_params(specs: Sequence[TensorSpec]) -> tuple[QuantParam, ...]:
    """Return the parameters that all tensors share, if they have one data type and one parameter per tensor."""
    kinds = {(spec.data_type, spec.quant) for spec in specs}
    if len(kinds) != 1:
        return ()
    ((_, quant),) = kinds
    return quant if len(quant) == 1 else ()


def _refuse(message: str) -> NoReturn:
    raise InvalidParameter(message)
