"""Functions of one operand that are wrong for special values."""

from typing import Any

import numpy as np
from nnrt_backend_reference.kernels.kernel import AnyArray, Call, Kernel

from mutants.defect import kernel, with_attrs
from nnrt_hdi.enums import NodeType


@kernel(NodeType.ROUND)
def halves_away_from_zero(right: Kernel, call: Call, x: AnyArray) -> Any:
    """ROUND rounds halves away from 0, as C does, instead of to even."""
    return np.trunc(x + np.copysign(0.5, x)) if x.dtype.kind == "f" else x


@kernel(NodeType.CEIL)
def ceiling_is_one_more(right: Kernel, call: Call, x: AnyArray) -> Any:
    """CEIL computes floor(x) + 1, also for whole numbers."""
    return np.floor(x) + 1


@kernel(NodeType.FLOOR)
def floor_cuts_off(right: Kernel, call: Call, x: AnyArray) -> Any:
    """FLOOR truncates negative numbers towards 0."""
    return np.trunc(x)


@kernel(NodeType.SQRT)
def root_of_negative_numbers(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The square root of a negative number is 0."""
    return right(call, np.maximum(x, 0))


@kernel(NodeType.RSQRT)
def rsqrt_with_epsilon(right: Kernel, call: Call, x: AnyArray) -> Any:
    """RSQRT computes 1 / sqrt(x + 1e-5), which is finite for 0."""
    return np.asarray(1 / np.sqrt(x.astype(call.dtype) + call.dtype.type(1e-5)))


@kernel(NodeType.LOG)
def logarithm_kept_finite(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The logarithm of 0 is finite."""
    return np.log(np.where(x == 0, x.dtype.type(1e-7), x).astype(call.dtype))


@kernel(NodeType.EXPFUSION)
def exponent_without_scale_and_shift(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The attributes scale and shift are ignored."""
    return right(with_attrs(call, scale=1.0, shift=0.0), x)


@kernel(NodeType.EXPFUSION)
def exponent_always_of_e(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The attribute base is ignored."""
    return right(with_attrs(call, base=-1.0), x)


@kernel(NodeType.EXPFUSION)
def power_kept_finite(right: Kernel, call: Call, x: AnyArray) -> Any:
    """exp saturates at the largest finite number."""
    y = right(call, x)
    return np.minimum(y, np.finfo(y.dtype).max)


@kernel(NodeType.CLIP)
def clip_with_both_bounds_only(right: Kernel, call: Call, x: AnyArray) -> Any:
    """CLIP takes an absent bound for 0."""
    attrs = call.attrs
    return right(with_attrs(call, min=attrs.min or 0.0, max=attrs.max or 0.0), x)


@kernel(NodeType.CLIP)
def clip_makes_numbers(right: Kernel, call: Call, x: AnyArray) -> Any:
    """CLIP turns NaN into the lower bound."""
    y = right(call, x)
    low = call.attrs.min if call.attrs.min is not None else 0
    return np.where(np.isnan(x), y.dtype.type(low), y) if y.dtype.kind == "f" else y


@kernel(NodeType.CLIP)
def bounds_cut_to_integers(right: Kernel, call: Call, x: AnyArray) -> Any:
    """CLIP of integers truncates both bounds towards 0."""
    if x.dtype.kind == "f":
        return right(call, x)
    low, high = (None if bound is None else float(int(bound)) for bound in (call.attrs.min, call.attrs.max))
    return right(with_attrs(call, min=low, max=high), x)


@kernel(NodeType.SIN, NodeType.COS)
def angles_reduced_in_float32(right: Kernel, call: Call, x: AnyArray) -> Any:
    """Angles are reduced to one turn in FLOAT32, which is inexact for large angles."""
    turn = np.float32(2 * np.pi)
    small = x.astype(np.float32)
    return right(call, (small - turn * np.floor(small / turn)).astype(x.dtype))


@kernel(NodeType.ERF)
def error_function_by_three_terms(right: Kernel, call: Call, x: AnyArray) -> Any:
    """ERF uses equation 7.1.25 of Abramowitz and Stegun, exact to four digits."""
    t = 1 / (1 + 0.47047 * np.abs(x))
    y = 1 - t * (0.3480242 + t * (-0.0958798 + t * 0.7478556)) * np.exp(-x * x)
    return np.copysign(y, x).astype(x.dtype)


@kernel(NodeType.RECIPROCAL)
def reciprocal_of_zero_is_zero(right: Kernel, call: Call, x: AnyArray) -> Any:
    """The reciprocal of 0 is 0."""
    return np.where(x == 0, x.dtype.type(0), right(call, x))


@kernel(NodeType.CAST)
def cast_rounds(right: Kernel, call: Call, x: AnyArray, to: AnyArray) -> Any:
    """A cast of real numbers to integers rounds instead of truncating."""
    to_integers = x.dtype.kind == "f" and call.outputs[0].numpy_dtype.kind in "iu"
    return right(call, np.rint(x) if to_integers else x, to)


@kernel(NodeType.CAST)
def truth_of_whole_numbers(right: Kernel, call: Call, x: AnyArray, to: AnyArray) -> Any:
    """A cast of real numbers to BOOL truncates first: 0.5 is false."""
    to_bool = x.dtype.kind == "f" and call.outputs[0].numpy_dtype.kind == "b"
    return np.trunc(x) != 0 if to_bool else right(call, x, to)
