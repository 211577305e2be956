"""Activation functions."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value

_PLAIN = {
    "Relu": OperationType.RELU,
    "Sigmoid": OperationType.SIGMOID,
    "Tanh": OperationType.TANH,
    "HardSwish": OperationType.HSWISH,
}


@onnx_operator(*_PLAIN, doc={name: f"{kind.name}." for name, kind in _PLAIN.items()}, is_quantizable=True)
def apply_plain(op: NodeBuilder, x: Value) -> Value:
    return op.apply(_PLAIN[op.type], x, quant=op.quant)


@onnx_operator("HardSigmoid", is_quantizable=True)
def hard_sigmoid(op: NodeBuilder, x: Value, *, alpha: float = 0.2, beta: float = 0.5) -> Value:
    """HARD_SIGMOID for alpha 1/6; else MUL, ADD and CLIP."""
    if np.isclose(alpha, 1 / 6, rtol=1e-6) and beta == 0.5:
        return op.apply(OperationType.HARD_SIGMOID, x, quant=op.quant)
    if op.quant is not None:
        refuse("it is quantized, but not NNRt's")
    scaled = op.apply(OperationType.MUL, x, op.number(alpha, x.dtype))
    shifted = op.apply(OperationType.ADD, scaled, op.number(beta, x.dtype))
    return op.apply(OperationType.CLIP, shifted, min=0.0, max=1.0)


@onnx_operator("LeakyRelu", is_quantizable=True)
def leaky_relu(op: NodeBuilder, x: Value, *, alpha: float = 0.01) -> Value:
    """LEAKY_RELU."""
    return op.apply(OperationType.LEAKY_RELU, x, alpha=alpha, quant=op.quant)


@onnx_operator("Gelu", since=20)
def gelu(op: NodeBuilder, x: Value, *, approximate: str = "none") -> Value:
    """GELU."""
    if approximate not in ("none", "tanh"):
        refuse(f"its approximate is {approximate!r}; use 'none' or 'tanh'")
    return op.apply(OperationType.GELU, x, approximate=approximate == "tanh")


@onnx_operator("Swish", since=24)
def swish(op: NodeBuilder, x: Value, *, alpha: float = 1.0) -> Value:
    """SWISH for alpha 1; else MUL by SIGMOID."""
    if alpha == 1:
        return op.apply(OperationType.SWISH, x)
    gate = op.apply(OperationType.SIGMOID, op.apply(OperationType.MUL, x, op.number(alpha, x.dtype)))
    return op.apply(OperationType.MUL, x, gate)


@onnx_operator("PRelu")
def prelu(op: NodeBuilder, x: Value, slope: Value) -> Value:
    """PRELU for one slope, or one per channel; else MAXIMUM, MINIMUM, MUL and ADD."""
    count = slope.dims[slope.rank - x.rank + 1] if 2 <= x.rank <= slope.rank + 1 else 1
    per_channel = (count, *(1,) * (x.rank - 2))
    is_float = x.dtype.kind == "f"
    if is_float and all(dim == 1 for dim in slope.dims):
        return op.apply(OperationType.PRELU, x, op.reshape(slope, (1,)))
    if is_float and x.rank >= 2 and slope.dims in (per_channel, (1, *per_channel)) and count == x.dims[1]:
        return op.apply(OperationType.PRELU, op.nchw(x), op.reshape(slope, (count,)))
    zero = op.number(0, x.dtype)
    negative = op.apply(OperationType.MINIMUM, x, zero)
    positive = op.apply(OperationType.MAXIMUM, x, zero)
    return op.apply(OperationType.ADD, positive, op.apply(OperationType.MUL, negative, slope))


@onnx_operator("Elu")
def elu(op: NodeBuilder, x: Value, *, alpha: float = 1.0) -> Value:
    """max(x, 0) + alpha (exp(min(x, 0)) - 1), by CLIP, EXP, SUB, MUL, RELU and ADD."""
    return _exponential(op, x, alpha, 1.0)


@onnx_operator("Selu")
def selu(
    op: NodeBuilder, x: Value, *, alpha: float = 1.67326319217681884765625, gamma: float = 1.05070102214813232421875
) -> Value:
    """Elu, times gamma by MUL."""
    return _exponential(op, x, alpha, gamma)


@onnx_operator("Celu", since=12)
def celu(op: NodeBuilder, x: Value, *, alpha: float = 1.0) -> Value:
    """max(x, 0) + alpha (exp(min(x, 0) / alpha) - 1), by CLIP, EXP, SUB, MUL, RELU and ADD."""
    return _exponential(op, x, alpha, 1.0, slope=1 / alpha)


@onnx_operator("Softplus")
def softplus(op: NodeBuilder, x: Value) -> Value:
    """log(exp(-|x|) + 1) + max(x, 0), which never overflows, by ABS, EXP, ADD, LOG and RELU."""
    size = op.apply(OperationType.ABS, x)
    grown = op.apply(OperationType.EXP, size, scale=-1.0)
    logarithm = op.apply(OperationType.LOG, op.apply(OperationType.ADD, grown, op.number(1, x.dtype)))
    return op.apply(OperationType.ADD, logarithm, op.apply(OperationType.RELU, x))


@onnx_operator("Softsign")
def softsign(op: NodeBuilder, x: Value) -> Value:
    """DIV of x by 1 + |x|, with ABS and ADD."""
    size = op.apply(OperationType.ADD, op.apply(OperationType.ABS, x), op.number(1, x.dtype))
    return op.apply(OperationType.DIV, x, size)


@onnx_operator("Mish", since=18)
def mish(op: NodeBuilder, x: Value) -> Value:
    """MUL of x by tanh(Softplus(x)), with TANH."""
    return op.apply(OperationType.MUL, x, op.apply(OperationType.TANH, softplus(op, x)))


def _exponential(op: NodeBuilder, x: Value, alpha: float, gamma: float, slope: float = 1.0) -> Value:
    """Compute gamma (max(x, 0) + alpha (exp(slope min(x, 0)) - 1))."""
    below = op.apply(OperationType.CLIP, x, max=0.0)
    grown = op.apply(OperationType.EXP, below, scale=slope)
    less = op.apply(OperationType.SUB, grown, op.number(1, x.dtype))
    bent = op.apply(OperationType.MUL, less, op.number(alpha, x.dtype))
    result = op.apply(OperationType.ADD, bent, op.apply(OperationType.RELU, x))
    return result if gamma == 1 else op.apply(OperationType.MUL, result, op.number(gamma, x.dtype))
