"""Normalization: values brought to a common scale."""

import math

import torch
from torch.nn import functional

from nnrt_backend_torch.kernels.activation import fused
from nnrt_backend_torch.kernels.checks import are_made_later
from nnrt_backend_torch.kernels.kernel import Call, cast, cast_all, kernel, per_channel
from nnrt_backend_torch.kernels.pieces import reduced_runs
from nnrt_backend_torch.kernels.reduction import accumulator, sum_square
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.ops.normalization import instance_channel_axis
from nnrt_hdi.ops.operands import named_axes
from nnrt_hdi.steps import check_stop
from nnrt_hdi.tensor import NUMPY_DTYPES

# A mean of so many standard deviations costs four of the 24 bits of a FLOAT32.
FAR = 16
# The most elements that a CPU's thread standardizes at a time: in FLOAT64 they fit in its cache.
PIECE = 1 << 16
# The same for other devices, whose memory they needn't fill.
LARGE_PIECE = 1 << 26


@kernel(NodeType.FUSED_BATCH_NORM)
def batch_norm(
    call: Call,
    x: torch.Tensor,
    scale: torch.Tensor,
    offset: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
) -> torch.Tensor:
    """Compute y = scale (x - mean) / sqrt(variance + epsilon) + offset, each per channel."""
    channel = call.inputs[0].channel_axis
    x, scale, offset, mean, variance = (_given(call, tensor) for tensor in (x, scale, offset, mean, variance))
    if x.is_cuda:
        y = functional.batch_norm(x.movedim(channel, 1), mean, variance, scale, offset, eps=call.attrs.epsilon)
        return y.movedim(1, channel)
    # On CPUs torch multiplies before it subtracts, which loses digits and makes NaN of infinities.
    factor = scale / torch.sqrt(variance + call.attrs.epsilon)
    mean, factor, offset = (per_channel(call, vector) for vector in (mean, factor, offset))
    return (x - mean).mul_(factor).add_(offset)


@kernel(NodeType.SOFTMAX)
def softmax(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute y = exp(x) / sum(exp(x))."""
    return torch.softmax(_given(call, x), call.attrs.axis[0] if call.attrs.axis else -1)


@kernel(NodeType.LOG_SOFTMAX)
def log_softmax(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute y = x - log(sum(exp(x)))."""
    return torch.log_softmax(_given(call, x), call.attrs.axis)


@kernel(NodeType.LAYER_NORM_FUSION)
def layer_norm(call: Call, x: torch.Tensor, gamma: torch.Tensor, beta: torch.Tensor) -> torch.Tensor:
    """Standardize x over its last dimensions, then scale and shift it there."""
    rows = x.reshape(-1, math.prod(x.shape[call.attrs.begin_norm_axis :]))
    vectors = (gamma.reshape(-1), beta.reshape(-1)) if call.attrs.elementwise_affine else ()
    # CUDA computes FLOAT16 in FLOAT32 by itself, in which the squares of all FLOAT16 are finite.
    is_narrow = x.is_cuda and x.dtype is torch.float16
    compute = _layer_norm if is_narrow else standardized
    return compute(call, rows, *vectors).reshape(x.shape)


@kernel(NodeType.INSTANCE_NORM)
def instance_norm(call: Call, x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Standardize x over all dimensions but batch and channels, then scale and shift each channel."""
    channel = instance_channel_axis(call.inputs[0], len(scale))
    x = x.movedim(channel, 1)
    y = standardized(call, x.reshape(x.shape[0] * x.shape[1], -1)).reshape(x.shape)
    each = (-1, *[1] * (x.ndim - 2))
    return y.mul_(scale.reshape(each)).add_(bias.reshape(each)).movedim(1, channel)


@kernel(NodeType.L2_NORMALIZE_FUSION)
def l2_normalize(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute y = f(x / sqrt(max(sum(x^2), epsilon)))."""
    axes = named_axes(call.attrs.axis, x.ndim) or tuple(range(x.ndim))
    total = sum_square(x, axes, keepdim=True)
    return fused(x / total.clamp(min=call.attrs.epsilon).sqrt(), call.attrs.activation_type)


@kernel(NodeType.LRN)
def lrn(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute y = x / (bias + alpha sum(x^2))^beta, with the sum over a window that slides along the channels."""
    attrs, axis = call.attrs, call.inputs[0].channel_axis
    radius = min(attrs.depth_radius, x.shape[axis] - 1)
    outer, channels = math.prod(x.shape[:axis]), x.shape[axis]
    inner = math.prod(x.shape[axis + 1 :])
    call.require_memory((outer, channels + 2 * radius, inner), NUMPY_DTYPES[DataType.FLOAT64])
    squares = functional.pad(x.to(accumulator(x)).square().reshape(outer, channels, inner), (0, 0, radius, radius))
    total = reduced_runs(squares, 1, 2 * radius + 1, torch.add)
    return x / (attrs.bias + attrs.alpha * total.reshape(x.shape)) ** attrs.beta


def standardized(call: Call, rows: torch.Tensor, *vectors: torch.Tensor) -> torch.Tensor:
    """Compute (x - mean) / sqrt(variance + epsilon) of each row, then scale and shift it by vectors, if given.

    The result is new.

    In FLOAT32 the squares of large numbers would be infinite, and a mean that is far from 0 would leave few digits of
    the deviations. So a CPU looks at the means and deviations; it subtracts the means first if they are far from 0, and
    uses FLOAT64 if a variance isn't finite.
    """
    if call.device.type == "cpu" and call.dtype is torch.float32 and not are_made_later():
        near, weight, bias = cast_all(call.dtype, rows, *vectors) if vectors else (cast(rows, call.dtype), None, None)
        for _ in range(2):
            y, mean, factor = torch.native_layer_norm(near, near.shape[1:], weight, bias, call.attrs.epsilon)
            # The factor is 0 if the variance is infinite. Comparisons with NaN are false.
            if (mean.abs() * factor).amax().item() < FAR and factor.amin().item() > 0:
                return y
            near = near - near.mean(1, keepdim=True)
    wide = accumulator(rows)
    vectors = tuple(vector.to(wide) for vector in vectors)

    def compute(part: torch.Tensor) -> torch.Tensor:
        # In a wider type, no digits are lost.
        part = part - part.mean(1, keepdim=True) if part.dtype is wide else part.to(wide)
        return _layer_norm(call, part, *vectors)

    piece = PIECE * torch.get_num_threads() if rows.device.type == "cpu" else LARGE_PIECE
    if rows.numel() <= piece:
        return compute(rows)
    y = torch.empty(rows.shape, dtype=call.dtype, device=rows.device)
    count = max(1, piece // rows.shape[1])
    for part, out in zip(rows.split(count), y.split(count), strict=True):
        check_stop()
        out.copy_(compute(part))
    return y


def _layer_norm(call: Call, rows: torch.Tensor, *vectors: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(rows, rows.shape[1:], *vectors, eps=call.attrs.epsilon)


def _given(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the type to compute in. CUDA computes FLOAT16 in FLOAT32 by itself, and rounds once."""
    return x if x.is_cuda else cast(x, call.dtype)
