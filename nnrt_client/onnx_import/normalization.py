"""Normalization: values brought to a common scale."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.call import Call
from nnrt_client.onnx_import.dims import product
from nnrt_client.onnx_import.operator import onnx_operator, refuse
from nnrt_client.onnx_import.value import Value

_SOFTMAX = {"Softmax": OperationType.SOFTMAX, "LogSoftmax": OperationType.LOG_SOFTMAX}
_FLAT_DOC = {
    name: f"{kind.name}, between RESHAPE where it covers several dimensions." for name, kind in _SOFTMAX.items()
}


@onnx_operator("BatchNormalization", until=13)
def batch_normalization_of_one_type(
    call: Call,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
) -> Value:
    """BATCH_NORM."""
    if not spatial:
        refuse("its spatial is 0; NNRt has one scale for each channel")
    return _batch_normalized(call, x, [scale, bias, mean, variance], epsilon)


@onnx_operator("BatchNormalization", since=14)
def batch_normalization(
    call: Call,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> Value:
    """BATCH_NORM."""
    if training_mode:
        refuse("it is in training mode; NNRt only runs models")
    return _batch_normalized(call, x, [scale, bias, mean, variance], epsilon)


def _batch_normalized(call: Call, x: Value, channels: list[Value], epsilon: float) -> Value:
    if x.rank < 2:
        refuse(f"x is {x}, which has no channels")
    given = [call.cast(part, x.dtype) for part in channels]
    return call.apply(OperationType.BATCH_NORM, call.nchw(x), *given, epsilon=epsilon)


@onnx_operator("InstanceNormalization")
def instance_normalization(call: Call, x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5) -> Value:
    """INSTANCE_NORM."""
    return call.apply(OperationType.INSTANCE_NORM, call.nchw(x), scale, bias, epsilon=epsilon)


@onnx_operator("LayerNormalization", since=17)
def layer_normalization(
    call: Call,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    """LAYER_NORM where a batch is in front and nobody asks for mean and deviation; else what ONNX defines it by."""
    at = axis % x.rank
    normalized = x.dims[at:]
    if any(call.outputs[1:]) or at == 0 or scale.dims != normalized or (bias is not None and bias.dims != normalized):
        refuse("NNRt's LAYER_NORM has another form")
    if bias is None:
        if -1 in scale.shape:
            refuse(f"the shape of its scale {scale} is known only in a run; fix it")
        bias = call.full(scale.dims, 0, x.dtype)
    return call.apply(
        OperationType.LAYER_NORM, x, scale, bias, begin_norm_axis=at, begin_params_axis=at, epsilon=epsilon, dims=x.dims
    )


@onnx_operator("LRN")
def lrn(call: Call, x: Value, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Value:
    """LRN, alpha divided by size, which must be odd."""
    if size % 2 == 0:
        refuse(f"its size is {size}; NNRt's reaches as far on both sides, so that it is odd")
    if x.rank != 4:
        refuse(f"x is {x}; NNRt's takes images of rank 4")
    return call.apply(OperationType.LRN, call.nchw(x), depth_radius=size // 2, alpha=alpha / size, beta=beta, bias=bias)


@onnx_operator("LpNormalization")
def lp_normalization(call: Call, x: Value, *, axis: int = -1, p: int = 2) -> Value:
    """L2_NORMALIZE for p 2; ABS, REDUCE_SUM and DIV for p 1."""
    if p == 2:
        least = float(np.finfo(np.float32).tiny)
        return call.apply(OperationType.L2_NORMALIZE, x, axis=[axis % x.rank], epsilon=least)
    total = call.apply(
        OperationType.REDUCE_SUM, call.apply(OperationType.ABS, x), np.array([axis], np.int64), keep_dims=True
    )
    some = call.apply(OperationType.MAXIMUM, total, call.number(np.finfo(np.float32).tiny, x.dtype))
    return call.apply(OperationType.DIV, x, some)


@onnx_operator(*_SOFTMAX, until=12, doc=_FLAT_DOC)
def flat_softmax(call: Call, x: Value, *, axis: int = 1) -> Value:
    at = axis % x.rank if axis != x.rank else x.rank
    if at == x.rank - 1:
        return call.apply(_SOFTMAX[call.type], x, axis=at)
    # All dimensions from the axis on are one.
    flat = call.reshape(x, (*x.dims[:at], product(x.dims[at:])))
    return call.reshape(call.apply(_SOFTMAX[call.type], flat, axis=at), x.dims)


@onnx_operator(*_SOFTMAX, since=13, is_quantizable=True, doc={name: f"{kind.name}." for name, kind in _SOFTMAX.items()})
def softmax(call: Call, x: Value, *, axis: int = -1, stash_type: int = 1) -> Value:
    return call.apply(_SOFTMAX[call.type], x, axis=axis % x.rank, quant=call.quant)


@onnx_operator("Hardmax", since=13)
def hardmax(call: Call, x: Value, *, axis: int = -1) -> Value:
    """ARG_MAX and ONE_HOT."""
    at = axis % x.rank
    size = x.dims[at]
    if not isinstance(size, int):
        refuse(f"it counts dimension {at} of {x}; fix it")
    largest = call.apply(OperationType.ARG_MAX, x, axis=at)
    depth = np.array(size, np.int32)
    return call.apply(OperationType.ONE_HOT, largest, depth, call.number(1, x.dtype), call.number(0, x.dtype), axis=at)
