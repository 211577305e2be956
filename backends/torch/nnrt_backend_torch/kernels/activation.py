"""Activation functions, alone or fused behind another operator."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import torch
from torch.nn import functional

from nnrt_backend_torch.kernels.checks import are_made_later
from nnrt_backend_torch.kernels.kernel import Call, cast_all, element, kernel, per_channel
from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.ops.operands import UNSIGNED_INTEGERS

# G. Klambauer et al., "Self-Normalizing Neural Networks" (2017), with the digits of ONNX's Selu.
SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875

Function = Callable[[torch.Tensor, SimpleNamespace], torch.Tensor]


@kernel(NodeType.ACTIVATION)
def activation(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute y = f(x), where activation_type names f."""
    return FUNCTIONS[call.attrs.activation_type](x.to(call.dtype), call.attrs)


@kernel(NodeType.LEAKY_RELU)
def leaky_relu_node(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Compute y = x if x >= 0 else negative_slope x."""
    return leaky_relu(x.to(call.dtype), call.attrs.negative_slope)


@kernel(NodeType.PRELU_FUSION)
def prelu(call: Call, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Compute y = x if x > 0 else weight x."""
    x, weight = cast_all(call.dtype, x, weight)
    slope = per_channel(call, weight) if weight.numel() > 1 else weight.reshape(())
    return torch.where(x > 0, x, slope * x)


def fused(x: torch.Tensor, activation_type: ActivationType) -> torch.Tensor:
    """Apply a fused activation: none, RELU or RELU6."""
    if activation_type is ActivationType.NO_ACTIVATION:
        return x
    return FUNCTIONS[activation_type](x, SimpleNamespace())


def activated(call: Call, y: torch.Tensor) -> torch.Tensor:
    """Apply the fused activation, if the node has one, to a new result, in its memory if possible.

    An unsigned integer may be wider than the output; its highest bits are ignored. UINT64 comes as INT64.
    """
    activation_type = getattr(call.attrs, "activation_type", ActivationType.NO_ACTIVATION)
    data_type = call.outputs[0].data_type
    if activation_type is ActivationType.NO_ACTIVATION:
        return y
    if data_type not in UNSIGNED_INTEGERS:
        return y.relu_() if activation_type is ActivationType.RELU else y.clamp_(0, 6)
    if activation_type is ActivationType.RELU:
        return y
    if data_type is not DataType.UINT64:
        y = y & ((1 << (call.outputs[0].numpy_dtype.itemsize * 8)) - 1)
    return y.masked_fill((y < 0) | (y > 6), 6)


def leaky_relu(x: torch.Tensor, slope: float) -> torch.Tensor:
    return torch.where(x >= 0, x, slope * x)


def elu(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """Compute x if x > 0 else alpha (exp(x) - 1)."""
    return torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0)))


def soft_plus(x: torch.Tensor) -> torch.Tensor:
    """Compute log(1 + exp(x)). torch's own softplus is x from a threshold on."""
    return torch.logaddexp(x, torch.zeros((), dtype=x.dtype, device=x.device))


def gelu(x: torch.Tensor, approximate: bool) -> torch.Tensor:
    """Compute x Phi(x), Phi the normal distribution; approximate: D. Hendrycks, K. Gimpel (2016), equation 2."""
    y = functional.gelu(x, approximate="tanh" if approximate else "none")
    if not are_made_later() and x.amax().item() < torch.inf:
        return y
    return torch.where(x == torch.inf, x, y)  # torch gives NaN.


def sign(x: torch.Tensor) -> torch.Tensor:
    """Compute 1, 0 or -1; that of NaN is NaN."""
    return torch.where(x.isnan(), x, torch.sign(x)) if x.dtype.is_floating_point else torch.sign(x)


def clamped(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Limit x to low..high, in its type."""
    return x.clamp(element(low, x.dtype), element(high, x.dtype))


FUNCTIONS: dict[ActivationType, Function] = {
    ActivationType.NO_ACTIVATION: lambda x, _: x,
    ActivationType.RELU: lambda x, _: torch.relu(x),
    ActivationType.SIGMOID: lambda x, _: torch.sigmoid(x),
    ActivationType.RELU6: lambda x, _: x.clamp(0, 6),
    ActivationType.ELU: lambda x, attrs: elu(x, attrs.alpha),
    ActivationType.LEAKY_RELU: lambda x, attrs: leaky_relu(x, attrs.alpha),
    ActivationType.ABS: lambda x, _: x.abs(),
    ActivationType.RELU1: lambda x, _: x.clamp(-1, 1),
    ActivationType.SOFTSIGN: lambda x, _: x / (1 + x.abs()),
    ActivationType.SOFTPLUS: lambda x, _: soft_plus(x),
    ActivationType.TANH: lambda x, _: torch.tanh(x),
    ActivationType.SELU: lambda x, _: SELU_GAMMA * elu(x, SELU_ALPHA),
    ActivationType.HSWISH: lambda x, _: x * (x + 3).clamp(0, 6) / 6,
    ActivationType.HSIGMOID: lambda x, _: ((x + 3) / 6).clamp(0, 1),
    ActivationType.THRESHOLDRELU: lambda x, attrs: clamped(x.clamp(0), -math.inf, attrs.alpha),
    ActivationType.LINEAR: lambda x, _: x,
    ActivationType.HARD_TANH: lambda x, attrs: clamped(x, attrs.min_val, attrs.max_val),
    ActivationType.SIGN: lambda x, _: sign(x),
    ActivationType.SWISH: lambda x, _: x * torch.sigmoid(x),
    ActivationType.GELU: lambda x, attrs: gelu(x, attrs.approximate),
}
