"""Activation functions, alone or fused behind another operator."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np

from nnrt_hdi.enums import ActivationType, NodeType
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.lowering.lowering import Call, lowering, per_channel
from nnrt_onnx_lowering.value import INT64, Value

# G. Klambauer et al., "Self-Normalizing Neural Networks" (2017), with the digits of ONNX's Selu.
SELU_ALPHA = 1.67326319217681884765625
SELU_GAMMA = 1.05070102214813232421875


@lowering(NodeType.ACTIVATION)
def activation(op: Onnx, call: Call, x: Value) -> Value:
    """Compute y = f(x), where activation_type names f."""
    return FUNCTIONS[call.attrs.activation_type](op, x, call.attrs)


@lowering(NodeType.LEAKY_RELU)
def leaky_relu_node(op: Onnx, call: Call, x: Value) -> Value:
    """Compute y = x if x >= 0 else negative_slope x."""
    return leaky_relu(op, x, call.attrs.negative_slope)


@lowering(NodeType.PRELU_FUSION)
def prelu(op: Onnx, call: Call, x: Value, weight: Value) -> Value:
    """Compute y = x if x > 0 else weight x."""
    if call.inputs[1].shape == (1,):
        slope = weight if call.inputs[0].rank else op.squeeze(weight, [0])
    else:
        slope = per_channel(op, call, weight)
    if x.dtype == np.float32:
        return op.PRelu(x, slope)
    return op.Where(op.Greater(x, 0), x, slope * x)


def fused(op: Onnx, x: Value, activation_type: ActivationType) -> Value:
    """Apply a fused activation: none, RELU or RELU6."""
    return FUNCTIONS[activation_type](op, x, SimpleNamespace())


def clip(op: Onnx, x: Value, low: float | None, high: float | None) -> Value:
    """Compute min(max(x, low), high), where None means no bound."""
    if x.dtype != INT64:
        return op.Clip(x, *(None if bound is None else op.scalar(bound, x.dtype) for bound in (low, high)))
    x = x if low is None else op.Max(x, low)
    return x if high is None else op.Min(x, high)


def leaky_relu(op: Onnx, x: Value, slope: float) -> Value:
    if x.dtype == np.float32:
        return op.LeakyRelu(x, alpha=slope)
    return op.Where(op.Less(x, 0), x * slope, x)


def elu(op: Onnx, x: Value, alpha: float) -> Value:
    if x.dtype == np.float32:
        return op.Elu(x, alpha=alpha)
    return op.Where(op.Greater(x, 0), x, (op.Exp(op.Min(x, 0)) - 1) * alpha)


def selu(op: Onnx, x: Value) -> Value:
    return op.Selu(x) if x.dtype == np.float32 else elu(op, x, SELU_ALPHA) * SELU_GAMMA


def softplus(op: Onnx, x: Value) -> Value:
    """Compute log(1 + exp(x)); exp is computed only of numbers <= 0, so that it can't overflow."""
    return op.Softplus(x) if x.dtype == np.float32 else op.Max(x, 0) + op.Log(op.Exp(-op.Abs(x)) + 1)


def softsign(op: Onnx, x: Value) -> Value:
    return op.Softsign(x) if x.dtype == np.float32 else x / (op.Abs(x) + 1)


def hard_sigmoid(op: Onnx, x: Value) -> Value:
    return op.HardSigmoid(x, alpha=1 / 6, beta=0.5) if x.dtype == np.float32 else clip(op, (x + 3) / 6, 0, 1)


def hard_swish(op: Onnx, x: Value) -> Value:
    return op.HardSwish(x) if x.dtype == np.float32 else x * clip(op, x + 3, 0, 6) / 6


def gelu(op: Onnx, x: Value, approximate: bool) -> Value:
    """Compute x Phi(x), Phi the normal distribution; approximate: D. Hendrycks, K. Gimpel (2016), equation 2."""
    if approximate and x.dtype == np.float32:
        return op.Gelu(x, approximate="tanh")
    if approximate:
        return x * 0.5 * (op.Tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)
    return op.Gelu(x)


Function = Callable[[Onnx, Value, SimpleNamespace], Value]
FUNCTIONS: dict[ActivationType, Function] = {
    ActivationType.NO_ACTIVATION: lambda op, x, _: x,
    ActivationType.RELU: lambda op, x, _: op.Relu(x) if x.dtype.kind == "f" else op.Max(x, 0),
    ActivationType.SIGMOID: lambda op, x, _: op.Sigmoid(x),
    ActivationType.RELU6: lambda op, x, _: clip(op, x, 0, 6),
    ActivationType.ELU: lambda op, x, attrs: elu(op, x, attrs.alpha),
    ActivationType.LEAKY_RELU: lambda op, x, attrs: leaky_relu(op, x, attrs.alpha),
    ActivationType.ABS: lambda op, x, _: op.Abs(x),
    ActivationType.RELU1: lambda op, x, _: clip(op, x, -1, 1),
    ActivationType.SOFTSIGN: lambda op, x, _: softsign(op, x),
    ActivationType.SOFTPLUS: lambda op, x, _: softplus(op, x),
    ActivationType.TANH: lambda op, x, _: op.Tanh(x),
    ActivationType.SELU: lambda op, x, _: selu(op, x),
    ActivationType.HSWISH: lambda op, x, _: hard_swish(op, x),
    ActivationType.HSIGMOID: lambda op, x, _: hard_sigmoid(op, x),
    ActivationType.THRESHOLDRELU: lambda op, x, attrs: op.Min(op.Max(x, 0), attrs.alpha),
    ActivationType.LINEAR: lambda op, x, _: x,
    ActivationType.HARD_TANH: lambda op, x, attrs: clip(op, x, attrs.min_val, attrs.max_val),
    ActivationType.SIGN: lambda op, x, _: op.Sign(x),
    ActivationType.SWISH: lambda op, x, _: x * op.Sigmoid(x),
    ActivationType.GELU: lambda op, x, attrs: gelu(op, x, attrs.approximate),
}
