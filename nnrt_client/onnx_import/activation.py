"""Activation functions."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.operator import onnx_operator, refuse
from nnrt_client.onnx_import.value import Value

_PLAIN = {
    "Relu": OperationType.RELU,
    "Sigmoid": OperationType.SIGMOID,
    "Tanh": OperationType.TANH,
    "HardSwish": OperationType.HSWISH,
}


@onnx_operator(*_PLAIN, doc={name: f"{kind.name}." for name, kind in _PLAIN.items()}, is_quantizable=True)
def plain(call: Call, x: Value) -> Value:
    return call.apply(_PLAIN[call.type], x, quant=call.quant)


@onnx_operator("HardSigmoid", is_quantizable=True)
def hard_sigmoid(call: Call, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """HARD_SIGMOID for alpha 1/6; else MUL, ADD and CLIP."""
    if np.isclose(alpha, 1 / 6, rtol=1e-6) and beta == 0.5:
        return call.apply(OperationType.HARD_SIGMOID, x, quant=call.quant)
    if call.quant is not None:
        refuse("it is quantized, but not NNRt's")
    scaled = call.apply(OperationType.MUL, x, call.number(alpha, x.dtype))
    shifted = call.apply(OperationType.ADD, scaled, call.number(beta, x.dtype))
    return call.apply(OperationType.CLIP, shifted, min=0.0, max=1.0)


@onnx_operator("LeakyRelu", is_quantizable=True)
def leaky_relu(call: Call, x: Value, *, alpha: float = 0.01) -> Value:
    """LEAKY_RELU."""
    return call.apply(OperationType.LEAKY_RELU, x, alpha=alpha, quant=call.quant)


@onnx_operator("Gelu", since=20)
def gelu(call: Call, x: Value, *, approximate: str = "none") -> Value:
    """GELU."""
    if approximate not in ("none", "tanh"):
        refuse(f"its approximate is {approximate!r}; use 'none' or 'tanh'")
    return call.apply(OperationType.GELU, x, approximate=approximate == "tanh")


@onnx_operator("Swish", since=24)
def swish(call: Call, x: Value, *, alpha: float = 1.0) -> Value:
    """SWISH for alpha 1; else MUL by SIGMOID."""
    if alpha == 1:
        return call.apply(OperationType.SWISH, x)
    gate = call.apply(OperationType.SIGMOID, call.apply(OperationType.MUL, x, call.number(alpha, x.dtype)))
    return call.apply(OperationType.MUL, x, gate)


@onnx_operator("PRelu")
def prelu(call: Call, x: Value, slope: Value) -> Value:
    """PRELU for one slope, or one per channel; else MAXIMUM, MINIMUM, MUL and ADD."""
    count = slope.dims[slope.rank - x.rank + 1] if 2 <= x.rank <= slope.rank + 1 else 1
    per_channel = (count, *(1,) * (x.rank - 2))
    is_float = x.dtype.kind == "f"
    if is_float and all(dim == 1 for dim in slope.dims):
        return call.apply(OperationType.PRELU, x, call.reshape(slope, (1,)))
    if is_float and x.rank >= 2 and slope.dims in (per_channel, (1, *per_channel)) and count == x.dims[1]:
        return call.apply(OperationType.PRELU, call.nchw(x), call.reshape(slope, (count,)))
    zero = call.number(0, x.dtype)
    negative = call.apply(OperationType.MINIMUM, x, zero)
    positive = call.apply(OperationType.MAXIMUM, x, zero)
    return call.apply(OperationType.ADD, positive, call.apply(OperationType.MUL, negative, slope))


@onnx_operator("Elu")
def elu(call: Call, x: Value, *, alpha: float = 1.0) -> Value:
    """max(x, 0) + alpha (exp(min(x, 0)) - 1), of CLIP, EXP, SUB, MUL and ADD."""
    return _exponential(call, x, alpha, 1.0)


@onnx_operator("Selu")
def selu(
    call: Call, x: Value, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Value:
    """gamma Elu(x), as Elu and MUL."""
    return _exponential(call, x, alpha, gamma)


@onnx_operator("Celu", since=12)
def celu(call: Call, x: Value, *, alpha: float = 1.0) -> Value:
    """max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1), of CLIP, EXP, SUB, MUL and ADD."""
    return _exponential(call, x, alpha, 1.0, slope=1 / alpha)


@onnx_operator("Softplus")
def softplus(call: Call, x: Value) -> Value:
    """log(exp(-|x|) + 1) + max(x, 0), which never overflows, of ABS, EXP, ADD, LOG and RELU."""
    size = call.apply(OperationType.ABS, x)
    grown = call.apply(OperationType.EXP, size, scale=-1.0)
    logarithm = call.apply(OperationType.LOG, call.apply(OperationType.ADD, grown, call.number(1, x.dtype)))
    return call.apply(OperationType.ADD, logarithm, call.apply(OperationType.RELU, x))


@onnx_operator("Softsign")
def softsign(call: Call, x: Value) -> Value:
    """x / (1 + |x|), of ABS, ADD and DIV."""
    size = call.apply(OperationType.ADD, call.apply(OperationType.ABS, x), call.number(1, x.dtype))
    return call.apply(OperationType.DIV, x, size)


@onnx_operator("Mish", since=18)
def mish(call: Call, x: Value) -> Value:
    """x tanh(Softplus(x)), as Softplus, TANH and MUL."""
    return call.apply(OperationType.MUL, x, call.apply(OperationType.TANH, softplus(call, x)))


def _exponential(call: Call, x: Value, alpha: float, gamma: float, slope: float = 1.0) -> Value:
    """gamma (max(x, 0) + alpha (exp(slope min(x, 0)) - 1))"""
    below = call.apply(OperationType.CLIP, x, max=0.0)
    grown = call.apply(OperationType.EXP, below, scale=slope)
    less = call.apply(OperationType.SUB, grown, call.number(1, x.dtype))
    bent = call.apply(OperationType.MUL, less, call.number(alpha, x.dtype))
    result = call.apply(OperationType.ADD, bent, call.apply(OperationType.RELU, x))
    return result if gamma == 1 else call.apply(OperationType.MUL, result, call.number(gamma, x.dtype))
