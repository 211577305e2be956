"""Reductions of many elements to one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from nnrt_hdi.enums import DataType, NodeType, ReduceMode
from nnrt_hdi.ops.operands import ANY, FLOATS, IndexVector, known_ints, named_axes
from nnrt_hdi.ops.operator import Accepts, Operand, operator, refuse
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape, TensorSpec


@operator(NodeType.REDUCE_FUSION, quantized=True)
def reduce(
    x: Annotated[Operand, Accepts(ANY, max_rank=7)],
    axis: IndexVector,
    *,
    keep_dims: bool = False,
    mode: ReduceMode = ReduceMode.MEAN,
    reduce_to_end: bool = False,
    coeff: float = 0.0,
) -> TensorSpec:
    """y = x reduced over the dimensions in axis (empty: all), which are removed, or stay with length 1 by keep_dims.

    By mode: MEAN (integers are rounded towards zero); MAX; MIN; PROD; SUM; SUM_SQUARE sum of x^2; ASUM sum of |x|; ALL
    whether no element is 0, as 1 or 0; L2 sqrt(sum(x^2)). Integers wrap around. Reducing no elements gives the neutral
    element (for MAX the lowest value), and for MEAN NaN (for integers 0). reduce_to_end reduces from the first entry of
    axis to the last dimension, and multiplies the result by coeff unless it is (almost) 0.
    """
    if x.data_type is DataType.BOOL and mode is not ReduceMode.ALL:
        refuse(f"{mode.name} of BOOL is not defined; use ALL, or cast {x.name} to a number")
    if x.data_type not in FLOATS and mode is ReduceMode.L2:
        refuse(f"L2 of {x.data_type.name} is not defined; use a floating-point type")
    if x.data_type not in FLOATS and reduction_factor(reduce_to_end, coeff) != 1:
        refuse(f"coeff is {coeff}, which does not scale {x.data_type.name}; use a floating-point type, or 0")
    return _reduced_spec(x, axis, keep_dims, reduce_to_end)


@operator(NodeType.ALL)
def all_of(x: Annotated[Operand, Accepts(ANY)], axis: IndexVector, *, keep_dims: int = 0) -> TensorSpec:
    """y = whether no element of x is 0 over the dimensions in axis (empty: all), as BOOL; true for no elements.

    The dimensions are removed, or stay with length 1 if keep_dims is not 0.
    """
    return replace(_reduced_spec(x, axis, keep_dims != 0), data_type=DataType.BOOL)


def reduced_axes(axes: Sequence[int], rank: int, reduce_to_end: bool) -> Shape:
    """Return the dimensions that are reduced, counted from the front."""
    if not axes:
        return tuple(range(rank))
    named = named_axes(axes, rank)
    return tuple(range(named[0], rank)) if reduce_to_end else named


def reduction_factor(reduce_to_end: bool, coeff: float) -> float:
    """Return the factor of the result. As in MindSpore Lite, a coeff up to 1e-5 means 1."""
    return coeff if reduce_to_end and abs(coeff) > 1e-5 else 1.0


def _reduced_spec(x: Operand, axis: Operand, keep_dims: bool, reduce_to_end: bool = False) -> TensorSpec:
    """Return the spec of x reduced over the dimensions in axis."""
    axes = known_ints(axis)
    if axes is not None:
        reduced = reduced_axes(axes, x.rank, reduce_to_end)
        if keep_dims:
            return x.spec.with_shape([1 if at in reduced else dim for at, dim in enumerate(x.shape)])
        return TensorSpec(x.data_type, tuple(dim for at, dim in enumerate(x.shape) if at not in reduced))
    if keep_dims:
        return x.spec.with_shape((UNKNOWN_DIM,) * x.rank)
    return TensorSpec(x.data_type, (UNKNOWN_DIM,) * _kept_rank(x, axis, reduce_to_end))


def _kept_rank(x: Operand, axis: Operand, reduce_to_end: bool) -> int:
    """Return the rank of the result if only the number of axes is known."""
    count = axis.shape[0] if axis.rank else 1
    if count == UNKNOWN_DIM or reduce_to_end:
        refuse(f"the output's rank depends on {axis.name}, which is not known; make it a constant, or keep_dims")
    if count > x.rank:
        refuse(f"{axis} names {count} dimensions, but {x} has {x.rank}; name each once, or keep_dims")
    return x.rank - count if count else 0
