"""Activation functions, some behind a bias, as ONNX Runtime's optimizers write them."""

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
    """ADD and GELU."""
    return op.apply(OperationType.GELU, op.apply(OperationType.ADD, x, bias, dims=x.dims))


@onnx_operator("FastGelu", domain=MICROSOFT)
def fast_gelu(op: NodeBuilder, x: Value, bias: Value | None = None) -> Value:
    """GELU in its tanh form, behind ADD of the bias."""
    biased = x if bias is None else op.apply(OperationType.ADD, x, bias, dims=x.dims)
    return op.apply(OperationType.GELU, biased, approximate=True)


@onnx_operator("QuickGelu", domain=MICROSOFT)
def quick_gelu(op: NodeBuilder, x: Value, *, alpha: float = 1.702) -> Value:
    """x sigmoid(alpha x): SWISH for alpha 1; else MUL by SIGMOID."""
    return swish(op, x, alpha=alpha)
