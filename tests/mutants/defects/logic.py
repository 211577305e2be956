"""Wrong comparisons and selections."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import kernel
from nnrt_hdi.enums import NodeType


@kernel(NodeType.EQUAL)
def equal_bits(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """NaN equals NaN."""
    return right(call, a, b) | (_is_nan(a) & _is_nan(b))


@kernel(NodeType.NOT_EQUAL)
def nan_differs_from_nothing(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """NOT_EQUAL computes a < b or a > b, which is false for NaN."""
    return np.asarray((a < b) | (a > b))


@kernel(NodeType.LESS_EQUAL)
def not_greater(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """LESS_EQUAL computes not a > b, which is true for NaN."""
    return np.logical_not(a > b)


@kernel(NodeType.GREATER_EQUAL)
def greater_or_nearly_equal(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """GREATER_EQUAL computes a > b, which is false for equal elements."""
    return np.asarray(a > b)


@kernel(NodeType.EQUAL)
def nearly_equal(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """EQUAL computes |a - b| < 1e-6, so that small numbers are equal, and infinities aren't."""
    return np.abs(np.subtract(a, b, dtype=np.float64)) < 1e-6


@kernel(NodeType.WHERE, NodeType.SELECT)
def choice_by_multiplication(right: Kernel, call: Call, condition: AnyArray, a: AnyArray, b: AnyArray) -> Any:
    """WHERE computes c a + (1 - c) b, which is NaN if the unselected element is infinite or NaN."""
    if a.dtype.kind != "f":
        return right(call, condition, a, b)
    chosen = np.broadcast_to(right(call, condition, np.ones_like(a), np.zeros_like(b)), call.outputs[0].shape)
    return np.asarray(chosen * a + (1 - chosen) * b)


@kernel(NodeType.SELECT)
def condition_of_columns(right: Kernel, call: Call, condition: AnyArray, a: AnyArray, b: AnyArray) -> Any:
    """SELECT applies a vector of conditions to columns instead of rows, if it has their length."""
    fits = condition.ndim == 1 < a.ndim and a.shape[-1] == condition.shape[0]
    return np.where(condition, a, b) if fits else right(call, condition, a, b)


@kernel(NodeType.LOGICAL_AND)
def and_of_bits(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """LOGICAL_AND combines the bits of integers: 1 and 2 is false."""
    if a.dtype.kind not in "iu" or a.dtype != b.dtype:
        return right(call, a, b)
    return np.asarray((a & b) != 0)


@kernel(NodeType.LOGICAL_NOT)
def lowest_bit_reversed(right: Kernel, call: Call, x: AnyArray) -> Any:
    """LOGICAL_NOT inverts the lowest bit of an integer: not 2 is true."""
    return np.asarray((x ^ 1) & 1 != 0) if x.dtype.kind in "iu" else right(call, x)


@kernel(NodeType.ASSERT)
def assertion_of_the_first_element(right: Kernel, call: Call, condition: AnyArray, data: AnyArray) -> Any:
    """ASSERT checks the first element of the condition only."""
    if condition.size:
        right(call, condition.reshape(-1)[:1], data)
    return condition


def _is_nan(x: AnyArray) -> AnyArray:
    return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, np.bool_)
