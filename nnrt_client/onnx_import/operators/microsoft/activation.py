"""Activation functions of ONNX Runtime's optimizers, some with a bias."""

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.activation import swish
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import MICROSOFT, onnx_operator
from nnrt_client.onnx_import.value import Value


@onnx_operator("Gelu", domain=MICROSOFT)
def gelu(op: NodeBuilder, x: Value) -> Value:
    """GELU."""
    return op.apply(OperationType.GELU, x)


@onnx_operator("BiasGelu", domain=MICROSOFT)
def bias_gelu(op: NodeBuilder, x: Value, bias: Value) -> Value:
    """GELU, after ADD of the bias."""
    return op.apply(OperationType.GELU, op.apply(OperationType.ADD, x, bias, dims=x.dims))


@onnx_operator("FastGelu", domain=MICROSOFT)
def fast_gelu(op: NodeBuilder, x: Value, bias: Value | None = None) -> Value:
    """GELU in its tanh form, after ADD of the bias."""
    biased = x if bias is None else op.apply(OperationType.ADD, x, bias, dims=x.dims)
    return op.apply(OperationType.GELU, biased, approximate=True)


@onnx_operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(op: NodeBuilder, x: Value, *, alpha: float = 1.702) -> Value:
    """SWISH for alpha 1; else MUL of x by SIGMOID of alpha x."""
    return swish(op, x, alpha=alpha)
