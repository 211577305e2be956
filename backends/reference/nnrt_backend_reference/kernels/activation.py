"""Activation functions, alone or fused behind another operator."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from nnrt_backend_reference.kernels.kernel import AnyArray, Call, cast_all, kernel, per_channel
from nnrt_backend_reference.kernels.pieces import compute_by_parts
from nnrt_backend_reference.kernels.special import erfc
from nnrt_hdi.enums import ActivationType, NodeType

# G. Klambauer et al., "Self-Normalizing Neural Networks" (2017), with the digits of ONNX's Selu.
SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875


@kernel(NodeType.ACTIVATION)
def activation(call: Call, x: AnyArray) -> AnyArray:
    """Compute y = f(x), where activation_type names f."""
    return FUNCTIONS[call.attrs.activation_type](x.astype(call.dtype, copy=False), call.attrs)


@kernel(NodeType.LEAKY_RELU)
def leaky_relu_node(call: Call, x: AnyArray) -> AnyArray:
    """Compute y = x if x >= 0 else negative_slope x."""
    return leaky_relu(x.astype(call.dtype, copy=False), call.attrs.negative_slope)


@kernel(NodeType.PRELU_FUSION)
def prelu(call: Call, x: AnyArray, weight: AnyArray) -> AnyArray:
    """Compute y = x if x > 0 else weight x."""
    x, weight = cast_all(call.dtype, x, weight)
    slope = per_channel(call, weight) if weight.size > 1 else weight.reshape(())
    return np.where(x > 0, x, slope * x)


def fused(x: AnyArray, activation_type: ActivationType) -> AnyArray:
    """Apply a fused activation: none, RELU or RELU6."""
    if activation_type is ActivationType.NO_ACTIVATION:
        return x
    return FUNCTIONS[activation_type](x, SimpleNamespace())


def sigmoid(x: AnyArray) -> AnyArray:
    """Compute 1 / (1 + exp(-x)); exp is computed only of numbers <= 0, so that it can't overflow."""
    small = np.exp(-np.abs(x))
    y: AnyArray = np.where(x >= 0, x.dtype.type(1), small) / (1 + small)
    return y


def relu(x: AnyArray) -> AnyArray:
    """Compute max(x, 0).

    Real numbers are clipped: numpy has no vector instructions for the maximum of an array and a number.
    """
    return np.clip(x, 0, np.inf) if x.dtype.kind == "f" else np.maximum(x, 0)


def leaky_relu(x: AnyArray, slope: float) -> AnyArray:
    return np.where(x >= 0, x, slope * x)


def elu(x: AnyArray, alpha: float) -> AnyArray:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def gelu(x: AnyArray, approximate: bool) -> AnyArray:
    """Compute x Phi(x), Phi the normal distribution; approximate: D. Hendrycks, K. Gimpel (2016), equation 2."""

    def exact(x: AnyArray, y: AnyArray) -> None:
        np.multiply(x, -math.sqrt(0.5), out=y)
        np.multiply(x, erfc(y), out=y)
        y *= 0.5

    def by_tanh(x: AnyArray, y: AnyArray) -> None:
        np.square(x, out=y)
        y *= 0.044715
        y += 1
        y *= x
        y *= math.sqrt(2 / math.pi)
        np.tanh(y, out=y)
        y += 1
        y *= x
        y *= 0.5

    return compute_by_parts(by_tanh if approximate else exact, x, x.dtype)


Function = Callable[[AnyArray, SimpleNamespace], AnyArray]
FUNCTIONS: dict[ActivationType, Function] = {
    ActivationType.NO_ACTIVATION: lambda x, _: x,
    ActivationType.RELU: lambda x, _: relu(x),
    ActivationType.SIGMOID: lambda x, _: sigmoid(x),
    ActivationType.RELU6: lambda x, _: np.clip(x, 0, 6),
    ActivationType.ELU: lambda x, attrs: elu(x, attrs.alpha),
    ActivationType.LEAKY_RELU: lambda x, attrs: leaky_relu(x, attrs.alpha),
    ActivationType.ABS: lambda x, _: np.abs(x),
    ActivationType.RELU1: lambda x, _: np.clip(x, -1, 1),
    ActivationType.SOFTSIGN: lambda x, _: x / (1 + np.abs(x)),
    ActivationType.SOFTPLUS: lambda x, _: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    ActivationType.TANH: lambda x, _: np.tanh(x),
    ActivationType.SELU: lambda x, _: SELU_GAMMA * elu(x, SELU_ALPHA),
    ActivationType.HSWISH: lambda x, _: x * np.clip(x + 3, 0, 6) / 6,
    ActivationType.HSIGMOID: lambda x, _: np.clip((x + 3) / 6, 0, 1),
    ActivationType.THRESHOLDRELU: lambda x, attrs: np.minimum(np.maximum(x, 0), attrs.alpha),
    ActivationType.LINEAR: lambda x, _: x,
    ActivationType.HARD_TANH: lambda x, attrs: np.clip(x, attrs.min_val, attrs.max_val),
    ActivationType.SIGN: lambda x, _: np.sign(x),
    ActivationType.SWISH: lambda x, _: x * sigmoid(x),
    ActivationType.GELU: lambda x, attrs: gelu(x, attrs.approximate),
}
