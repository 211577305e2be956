"""Convolutions and pooling of ONNX Runtime's optimizers."""

from nnrt_client.enums import FuseType, OperationType
from nnrt_client.onnx_import.operators.convolution import Window, conv, max_pool
from nnrt_client.onnx_import.operators.microsoft.fused import apply_activation, fuse_type
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import MICROSOFT, onnx_operator
from nnrt_client.onnx_import.value import Value, mark_quantized


@onnx_operator("NhwcMaxPool", domain=MICROSOFT)
def max_pool_with_channels_last(op: NodeBuilder, x: Value, *, ceil_mode: int = 0, window: Window) -> Value:
    """MaxPool, between TRANSPOSE."""
    images = x
    if x.quantized is not None:
        images, op.quant = x.quantized.tensor, x.quantized.param
    images = op.transpose(images, [0, x.rank - 1, *range(1, x.rank - 1)])
    y = max_pool(op, images, ceil_mode=ceil_mode, window=window)
    y = op.transpose(y, [0, *range(2, x.rank), 1])
    return y if x.quantized is None else mark_quantized(y)


@onnx_operator("FusedConv", domain=MICROSOFT)
def fused_conv(
    op: NodeBuilder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    added: Value | None = None,
    *,
    activation: str = "",
    activation_params: tuple[float, ...] = (),
    group: int = 1,
    window: Window,
) -> Value:
    """Conv, then ADD of a fourth input, then the activation."""
    fuse = fuse_type(activation, activation_params)
    # The activation follows the sum, so with a sum it can't be fused into the convolution.
    op.activation = lambda: fuse if added is None else FuseType.NONE
    y = conv(
        op,
        x,
        weight,
        bias,
        group=group,
        window=window,
    )
    if added is not None:
        y = op.apply(OperationType.ADD, y, added, activation=fuse)
    return y if fuse is not FuseType.NONE else apply_activation(op, y, activation, activation_params)
