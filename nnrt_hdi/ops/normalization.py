"""Normalization: values brought to a common scale."""

from typing import Annotated

from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_hdi.ops.activation import require_fusable
from nnrt_hdi.ops.operands import (
    FLOATS,
    Image,
    Real,
    Vector,
    common_dim,
    named_axes,
    normalized_axis,
    require_channels,
    same_data_type,
)
from nnrt_hdi.ops.operator import Accepts, Ints, Operand, operator, refuse
from nnrt_hdi.tensor import UNKNOWN_DIM, TensorSpec, format_shape

ACROSS_CHANNELS = "ACROSS_CHANNELS"


@operator(NodeType.FUSED_BATCH_NORM, quantized=True)
def batch_norm(
    x: Annotated[Operand, Accepts(FLOATS, min_rank=2)],
    scale: Vector,
    offset: Vector,
    mean: Vector,
    variance: Vector,
    *,
    epsilon: float = 1e-4,
) -> TensorSpec:
    """y = scale (x - mean) / sqrt(variance + epsilon) + offset, with one of each per channel.

    Channels are the last dimension, or dimension 1 of an NCHW tensor.
    """
    _require_epsilon(epsilon)
    same_data_type(x, scale, offset, mean, variance)
    require_channels(x.shape[x.spec.channel_axis], scale, offset, mean, variance)
    return x.spec


@operator(NodeType.SOFTMAX, quantized=True)
def softmax(x: Annotated[Operand, Accepts(FLOATS, min_rank=1)], *, axis: Ints = ()) -> TensorSpec:
    """y = exp(x) / sum(exp(x)), with the sum along axis (a list of one; empty: the last)."""
    if len(axis) > 1:
        refuse(f"axis is {list(axis)}; use one dimension, or leave it empty for the last")
    normalized_axis(axis[0] if axis else -1, x.rank)
    return x.spec


@operator(NodeType.LOG_SOFTMAX, quantized=True)
def log_softmax(x: Annotated[Operand, Accepts(FLOATS, min_rank=1)], *, axis: int = 0) -> TensorSpec:
    """y = x - log(sum(exp(x))), with the sum along axis."""
    normalized_axis(axis, x.rank)
    return x.spec


@operator(NodeType.LAYER_NORM_FUSION, quantized=True)
def layer_norm(
    x: Annotated[Operand, Accepts(FLOATS, min_rank=2)],
    gamma: Real,
    beta: Real,
    *,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-7,
    elementwise_affine: bool = True,
    begin_params_axis: int = 1,
) -> TensorSpec:
    """y = gamma (x - mean) / sqrt(variance + epsilon) + beta, over the dimensions from begin_norm_axis to the last.

    The variance is that of the population. gamma and beta have the shape of those dimensions; without
    elementwise_affine they are not applied. begin_params_axis is the dimension where they begin: begin_norm_axis, or 1,
    which NNRt sends for a model that doesn't set it.
    """
    _require_epsilon(epsilon)
    same_data_type(x, gamma, beta)
    if not 1 <= begin_norm_axis < x.rank:
        refuse(f"begin_norm_axis is {begin_norm_axis} but the rank of {x} is {x.rank}; use 1..{x.rank - 1}")
    if begin_params_axis not in (1, begin_norm_axis):
        refuse(f"begin_params_axis is {begin_params_axis} but begin_norm_axis {begin_norm_axis}; make them equal")
    wanted = x.shape[begin_norm_axis:]
    for vector in (gamma, beta):
        pairs = zip(vector.shape, wanted, strict=False)
        if vector.rank != len(wanted) or any(UNKNOWN_DIM not in pair and pair[0] != pair[1] for pair in pairs):
            refuse(f"{vector} does not fit {x} from dimension {begin_norm_axis} on; give it {format_shape(wanted)}")
    return x.spec


@operator(NodeType.INSTANCE_NORM, quantized=True)
def instance_norm(
    x: Annotated[Operand, Accepts(FLOATS, min_rank=3)], scale: Vector, bias: Vector, *, epsilon: float = 0.0
) -> TensorSpec:
    """y = scale (x - mean) / sqrt(variance + epsilon) + bias, over the positions of each channel of each sample.

    The variance is that of the population. Channels are the last dimension, or dimension 1 of an NCHW tensor. If the
    length of scale fits only one of these two dimensions, that one has the channels.
    """
    _require_epsilon(epsilon)
    same_data_type(x, scale, bias)
    require_channels(scale.shape[0], bias)
    require_channels(x.shape[instance_channel_axis(x.spec, scale.shape[0])], scale)
    return x.spec


def instance_channel_axis(spec: TensorSpec, count: int) -> int:
    """Return the dimension of the channels of INSTANCE_NORM, which has `count` scales."""
    preferred = spec.channel_axis
    other = 1 if preferred == spec.rank - 1 else spec.rank - 1
    fits = (axis for axis in (preferred, other) if common_dim((count, spec.shape[axis])) is not None)
    return next(fits, preferred)


@operator(NodeType.L2_NORMALIZE_FUSION, quantized=True)
def l2_normalize(
    x: Real,
    *,
    axis: Ints = (),
    epsilon: float = 1e-6,
    activation_type: ActivationType = ActivationType.NO_ACTIVATION,
) -> TensorSpec:
    """y = f(x / sqrt(max(sum(x^2), epsilon))), where f is the fused activation.

    The sum is taken over the dimensions in axis (empty: all).
    """
    _require_epsilon(epsilon)
    require_fusable(activation_type, x.data_type)
    named_axes(axis, x.rank)
    return x.spec


@operator(NodeType.LRN, quantized=True)
def lrn(
    x: Image,
    *,
    depth_radius: int = 0,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
    norm_region: str = ACROSS_CHANNELS,
) -> TensorSpec:
    """y = x / (bias + alpha sum(x^2))^beta, with the sum over the channels c - depth_radius to c + depth_radius.

    alpha multiplies each of them, as in TensorFlow Lite (ONNX divides it by their number). norm_region has no other
    value.
    """
    if depth_radius < 0:
        refuse(f"depth_radius is {depth_radius}; use 0 or more")
    if norm_region != ACROSS_CHANNELS:
        refuse(f"norm_region is {norm_region!r}; use {ACROSS_CHANNELS!r}")
    return x.spec


def _require_epsilon(epsilon: float) -> None:
    if not epsilon >= 0:
        refuse(f"epsilon is {epsilon}; use 0 or more")
