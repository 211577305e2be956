"""Functions of one operand, element by element."""

import math
from dataclasses import replace
from typing import Annotated

import numpy as np

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.ops.operands import FLOATS, INTEGERS, Logical, Number, Real, int_values
from nnrt_hdi.ops.operator import Accepts, Operand, operator, refuse
from nnrt_hdi.tensor import TensorSpec, data_type_from_number


@operator(NodeType.SQRT, "y = sqrt(x); NaN where x < 0.", quantized=True)
@operator(
    NodeType.LOG, "y = log(x), the natural logarithm; minus infinity where x = 0, NaN where x < 0.", quantized=True
)
@operator(NodeType.SIN, "y = sin(x), x in radians.", quantized=True)
@operator(NodeType.COS, "y = cos(x), x in radians.", quantized=True)
@operator(NodeType.CEIL, "y = x rounded up to an integer.", quantized=True)
@operator(NodeType.FLOOR, "y = x rounded down to an integer.", quantized=True)
@operator(NodeType.RECIPROCAL, "y = 1 / x; infinity where x = 0.", quantized=True)
def unary_real(x: Real) -> TensorSpec:
    return x.spec


@operator(NodeType.RSQRT, "y = 1 / sqrt(x); infinity where x = 0, NaN where x < 0.", quantized=True)
@operator(NodeType.ERF, "y = 2 / sqrt(pi) integral of exp(-t^2) from 0 to x.", quantized=True)
def unary_real_up_to_rank_7(x: Annotated[Operand, Accepts(FLOATS, max_rank=7)]) -> TensorSpec:
    return x.spec


@operator(NodeType.SQUARE, "y = x^2; integers wrap around.", quantized=True)
@operator(NodeType.NEG, "y = -x; integers wrap around, unsigned ones too.", quantized=True)
@operator(NodeType.ABS, "y = |x|; integers wrap around, so the lowest stays as it is.", quantized=True)
@operator(NodeType.ROUND, "y = x rounded to the nearest integer, halves to even.", quantized=True)
def unary_number(x: Number) -> TensorSpec:
    return x.spec


@operator(NodeType.EXPFUSION, quantized=True)
def exp(x: Real, *, base: float = -1.0, scale: float = 1.0, shift: float = 0.0) -> TensorSpec:
    """y = base^(shift + scale x); base -1 means e."""
    if base != -1 and not base > 0:
        refuse(f"base is {base}; use a number above 0, or -1 for e")
    return x.spec


@operator(NodeType.CLIP, quantized=True)
def clip(x: Number, *, max: float | None = None, min: float | None = None) -> TensorSpec:
    """y = min(max(x, min), max), so max where min > max; NaN stays NaN. An absent bound doesn't limit.

    Integers are limited to the integers between min and max.
    """
    for name, bound in (("max", max), ("min", min)):
        if bound is not None and math.isnan(bound):
            refuse(f"{name} is not a number; use one, or none for no bound")
    if x.data_type not in FLOATS:
        integer_bounds(x.data_type, min, max)
    return x.spec


def integer_bounds(data_type: DataType, low: float | None, high: float | None) -> tuple[int, int]:
    """Return the least and the greatest integer that CLIP allows. Refuses bounds that allow no integer of the type."""
    limits = np.iinfo(data_type.name.lower())
    if low is not None and low > limits.max:
        refuse(f"min is {low}, above every {data_type.name}; use at most {limits.max}")
    if high is not None and high < limits.min:
        refuse(f"max is {high}, below every {data_type.name}; use at least {limits.min}")
    return (
        limits.min if low is None or low < limits.min else math.ceil(low),
        limits.max if high is None or high > limits.max else math.floor(high),
    )


@operator(NodeType.CAST)
def cast(x: Logical, type_: Annotated[Operand, Accepts(INTEGERS, max_rank=1)]) -> TensorSpec:
    """y = x in the data type whose number is in type: 1 (BOOL) to 12 (FLOAT64), or HDI's 30 to 44.

    Real numbers lose their fraction when they become integers. Integers keep their low bits. As BOOL everything but 0
    is true. The result of a real number beyond an integer type's range is undefined.
    """
    numbers = int_values(type_, "it decides the output's data type")
    if len(numbers) != 1:
        refuse(f"{type_} has {len(numbers)} elements; give one data type")
    return replace(x.spec, data_type=data_type_from_number(numbers[0]))
