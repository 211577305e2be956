"""Normalization: values brought to a common scale."""

from typing import Annotated

from nnrt_hdi.enums import NodeType
from nnrt_hdi.ops.operands import FLOATS, Vector, normalized_axis, require_channels, same_data_type
from nnrt_hdi.ops.operator import Accepts, Ints, Operand, operator, refuse
from nnrt_hdi.tensor import TensorSpec


@operator(NodeType.FUSED_BATCH_NORM)
def batch_norm(
    x: Annotated[Operand, Accepts(FLOATS, min_rank=2)],
    scale: Vector,
    offset: Vector,
    mean: Vector,
    variance: Vector,
    *,
    epsilon: float = 1e-4,
) -> TensorSpec:
    """y = scale (x - mean) / sqrt(variance + epsilon) + offset, one of each for a channel.

    Channels are the last dimension, of an NCHW tensor dimension 1.
    """
    if not epsilon >= 0:
        refuse(f"epsilon is {epsilon}; use 0 or more")
    same_data_type(x, scale, offset, mean, variance)
    require_channels(x.shape[x.spec.channel_axis], scale, offset, mean, variance)
    return x.spec


@operator(NodeType.SOFTMAX)
def softmax(x: Annotated[Operand, Accepts(FLOATS, min_rank=1)], *, axis: Ints = ()) -> TensorSpec:
    """y = exp(x) / sum(exp(x)), the sum taken along axis (a list of one; empty: the last)."""
    if len(axis) > 1:
        refuse(f"axis is {list(axis)}; use one dimension, or leave it empty for the last")
    normalized_axis(axis[0] if axis else -1, x.rank)
    return x.spec
