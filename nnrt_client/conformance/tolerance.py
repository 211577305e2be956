"""Tolerances: how much a right answer may differ from the oracle's, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import DataType
from nnrt_hdi.tensor import TensorSpec

AnyArray = NDArray[Any]

# Largest relative error by type.
RELATIVE = {DataType.FLOAT16: 2.0**-10, DataType.FLOAT32: 4e-6, DataType.FLOAT64: 1e-14}


@dataclass(frozen=True)
class Tolerance:
    """Allowed error of an answer: relative for floats, in steps for quantized elements, none for other types.

    The relative error refers to the element or to the mean magnitude of all elements, whichever is larger.
    """

    reason: str
    relative: Mapping[DataType, float] = field(default_factory=lambda: RELATIVE)
    steps: int = 1
    # Whether zeros must have the right sign.
    signs_of_zeros: bool = False

    def allows(self, spec: TensorSpec) -> float:
        """Return the largest error that an output may have."""
        return self.steps if spec.is_quantized else self.relative.get(spec.data_type, 0.0)


SUMS_IN_ANOTHER_ORDER = Tolerance(
    "sums of up to a hundred products may be made in another order;"
    " FLOAT16 is rounded once on both sides, which makes one unit in the last place"
)
ONE_STEP = Tolerance("rounding takes half a step, integer kernels that round between take the other half (ADR 3)")

IN_HALF_PRECISION = Tolerance(
    "each of the sums and functions inside an operator may be rounded to FLOAT16, of 11 bits",
    {DataType.FLOAT16: 2.0**-7, DataType.FLOAT32: 2.0**-7, DataType.FLOAT64: 2.0**-7},
)


def output_error(actual: AnyArray, wanted: AnyArray, spec: TensorSpec, *, signs_of_zeros: bool = False) -> float:
    """Return the error of an output of the wanted type and shape: in steps if quantized, otherwise relative.

    The error is infinite if an infinity or NaN of one side is not matched by the other, or if elements that are no
    floats differ.
    """
    if spec.is_quantized:
        return float(np.abs(actual.astype(np.int64) - wanted).max(initial=0))
    if signs_of_zeros and actual.dtype.kind == "f":
        zeros = wanted == 0
        if not np.array_equal(np.signbit(actual[zeros]), np.signbit(wanted[zeros])):
            return np.inf
    return relative_error(actual, wanted)


def relative_error(actual: AnyArray, wanted: AnyArray) -> float:
    """Return the largest error, relative to the element or to the mean magnitude of all, whichever is larger.

    Subnormal numbers may be 0, because many processors flush them.
    """
    if actual.size == 0:
        return 0.0
    if actual.dtype.kind != "f":
        return 0.0 if np.array_equal(actual, wanted) else np.inf
    wide, right = actual.astype(np.float64), wanted.astype(np.float64)
    regular = np.isfinite(right)
    if not np.array_equal(wide[~regular], right[~regular], equal_nan=True) or not np.isfinite(wide[regular]).all():
        return np.inf
    wide, right = wide[regular], right[regular]
    if right.size == 0:
        return 0.0
    with np.errstate(over="ignore"):
        size = np.maximum(np.abs(right), min(np.abs(right).mean(), np.finfo(np.float64).max))
    apart = np.maximum(np.abs(wide - right) - float(np.finfo(actual.dtype).smallest_normal), 0)
    return float(np.max(apart / np.where(size == 0, 1, size)))
