"""Comparisons and choices."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import kernel
from nnrt_hdi.enums import NodeType


@kernel(NodeType.EQUAL)
def equal_bits(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """What is not a number equals itself, for its bits do."""
    return right(call, a, b) | (_is_nan(a) & _is_nan(b))


@kernel(NodeType.NOT_EQUAL)
def nan_differs_from_nothing(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """a < b or a > b, false of what is not a number."""
    return np.asarray((a < b) | (a > b))


@kernel(NodeType.LESS_EQUAL)
def not_greater(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """not a > b, true of what is not a number."""
    return np.logical_not(a > b)


@kernel(NodeType.GREATER_EQUAL)
def greater_or_nearly_equal(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """a > b, false of equal elements."""
    return np.asarray(a > b)


@kernel(NodeType.EQUAL)
def nearly_equal(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """|a - b| < 1e-6: small numbers equal each other, infinities don't."""
    return np.abs(np.subtract(a, b, dtype=np.float64)) < 1e-6


@kernel(NodeType.WHERE, NodeType.SELECT)
def choice_by_multiplication(right: Kernel, call: Call, condition: AnyArray, a: AnyArray, b: AnyArray) -> Any:
    """c a + (1 - c) b: what is not chosen spoils the result where it is infinite, or no number."""
    if a.dtype.kind != "f":
        return right(call, condition, a, b)
    chosen = np.broadcast_to(right(call, condition, np.ones_like(a), np.zeros_like(b)), call.outputs[0].shape)
    return np.asarray(chosen * a + (1 - chosen) * b)


@kernel(NodeType.SELECT)
def condition_of_columns(right: Kernel, call: Call, condition: AnyArray, a: AnyArray, b: AnyArray) -> Any:
    """A vector of conditions picks columns, where it is as long as a row."""
    fits = condition.ndim == 1 < a.ndim and a.shape[-1] == condition.shape[0]
    return np.where(condition, a, b) if fits else right(call, condition, a, b)


@kernel(NodeType.LOGICAL_AND)
def and_of_bits(right: Kernel, call: Call, a: AnyArray, b: AnyArray) -> Any:
    """The bits of integers are combined: 1 and 2 is false."""
    if a.dtype.kind not in "iu" or a.dtype != b.dtype:
        return right(call, a, b)
    return np.asarray((a & b) != 0)


@kernel(NodeType.LOGICAL_NOT)
def lowest_bit_reversed(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The lowest bit of an integer is turned: not 2 is true."""
    return np.asarray((x ^ 1) & 1 != 0) if x.dtype.kind in "iu" else right(call, x)


@kernel(NodeType.ASSERT)
def assertion_of_the_first_element(right: Kernel, call: Call, condition: AnyArray, data: AnyArray) -> Any:
    """Only the first element of the condition is looked at."""
    if condition.size:
        right(call, condition.reshape(-1)[:1], data)
    return condition


def _is_nan(x: AnyArray) -> AnyArray:
    return np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, np.bool_)
