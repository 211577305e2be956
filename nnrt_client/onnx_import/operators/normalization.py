"""Normalization."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.shapes.dims import product
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value

_SOFTMAX = {"Softmax": OperationType.SOFTMAX, "LogSoftmax": OperationType.LOG_SOFTMAX}
# ONNX Runtime's own SimplifiedLayerNormalization is the older one. Its tools write it into ONNX's domain.
_RMS_DOCS = dict.fromkeys(
    ("RMSNormalization", "SimplifiedLayerNormalization"),
    "POW, REDUCE_MEAN, ADD, SQRT, DIV and MUL: x / sqrt(mean(x^2) + epsilon) * scale; FLOAT16 is computed in FLOAT32.",
)
_FLAT_DOC = {name: f"{kind.name}, between RESHAPE if it covers several dimensions." for name, kind in _SOFTMAX.items()}


@onnx_operator("BatchNormalization")
def batch_normalization(
    op: NodeBuilder,
    x: Value,
    scale: Value,
    bias: Value,
    mean: Value,
    variance: Value,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> Value:
    """BATCH_NORM."""
    if not spatial:
        refuse("its spatial is 0; NNRt has one scale for each channel")
    if training_mode:
        refuse("it is in training mode; NNRt only runs models")
    if x.rank < 2:
        refuse(f"x is {x}, which has no channels")
    given = [op.cast(part, x.dtype) for part in (scale, bias, mean, variance)]
    return op.apply(OperationType.BATCH_NORM, op.nchw(x), *given, epsilon=epsilon)


@onnx_operator("InstanceNormalization")
def instance_normalization(op: NodeBuilder, x: Value, scale: Value, bias: Value, *, epsilon: float = 1e-5) -> Value:
    """INSTANCE_NORM."""
    return op.apply(OperationType.INSTANCE_NORM, op.nchw(x), scale, bias, epsilon=epsilon)


@onnx_operator("LayerNormalization")
def layer_normalization(
    op: NodeBuilder,
    x: Value,
    scale: Value,
    bias: Value | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> Value:
    """LAYER_NORM if axis is above 0 and mean and deviation are not read; else the body by which ONNX defines it."""
    at = axis % x.rank
    normalized = x.dims[at:]
    if any(op.outputs[1:]) or at == 0 or scale.dims != normalized or (bias is not None and bias.dims != normalized):
        refuse("NNRt's LAYER_NORM has another form")
    return apply_layer_norm(op, x, scale, bias, at, epsilon)


def apply_layer_norm(op: NodeBuilder, x: Value, scale: Value, bias: Value | None, at: int, epsilon: float) -> Value:
    """Apply LAYER_NORM to the dimensions from `at` on."""
    if bias is None:
        if -1 in scale.shape:
            refuse(f"the shape of its scale {scale} is known only in a run; fix it")
        bias = op.full(scale.dims, 0, x.dtype)
    return op.apply(
        OperationType.LAYER_NORM, x, scale, bias, begin_norm_axis=at, begin_params_axis=at, epsilon=epsilon, dims=x.dims
    )


@onnx_operator(*_RMS_DOCS, doc=_RMS_DOCS)
def rms_normalization(
    op: NodeBuilder, x: Value, scale: Value, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Value:
    return apply_rms_norm(op, x, scale, axis % x.rank, epsilon)


def apply_rms_norm(op: NodeBuilder, x: Value, scale: Value, at: int, epsilon: float) -> Value:
    """Divide x by the root mean square of its dimensions from `at` on, and multiply by the scale."""
    wide = op.cast(x, np.dtype(np.float32)) if x.dtype == np.float16 else x
    squares = op.apply(OperationType.POW, wide, op.number(2, wide.dtype), dims=x.dims)
    mean = op.apply(OperationType.REDUCE_MEAN, squares, np.arange(at, x.rank), keep_dims=True)
    root = op.apply(OperationType.SQRT, op.apply(OperationType.ADD, mean, op.number(epsilon, wide.dtype)))
    normalized = op.cast(op.apply(OperationType.DIV, wide, root, dims=x.dims), scale.dtype)
    return op.apply(OperationType.MUL, normalized, scale, dims=x.dims)


@onnx_operator("LRN")
def lrn(op: NodeBuilder, x: Value, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Value:
    """LRN, with alpha divided by size, which must be odd."""
    if size % 2 == 0:
        refuse(f"its size is {size}; NNRt's reaches as far on both sides, so that it is odd")
    if x.rank != 4:
        refuse(f"x is {x}; NNRt's takes images of rank 4")
    return op.apply(OperationType.LRN, op.nchw(x), depth_radius=size // 2, alpha=alpha / size, beta=beta, bias=bias)


@onnx_operator("LpNormalization")
def lp_normalization(op: NodeBuilder, x: Value, *, axis: int = -1, p: int = 2) -> Value:
    """L2_NORMALIZE for p 2; ABS, REDUCE_SUM and DIV for p 1."""
    if p == 2:
        least = float(np.finfo(np.float32).tiny)
        return op.apply(OperationType.L2_NORMALIZE, x, axis=[axis % x.rank], epsilon=least)
    total = op.apply(
        OperationType.REDUCE_SUM, op.apply(OperationType.ABS, x), np.array([axis], np.int64), keep_dims=True
    )
    some = op.apply(OperationType.MAXIMUM, total, op.number(np.finfo(np.float32).tiny, x.dtype))
    return op.apply(OperationType.DIV, x, some)


@onnx_operator(*_SOFTMAX, until=12, doc=_FLAT_DOC)
def flat_softmax(op: NodeBuilder, x: Value, *, axis: int = 1) -> Value:
    at = axis % x.rank if axis != x.rank else x.rank
    if at == x.rank - 1:
        return op.apply(_SOFTMAX[op.type], x, axis=at)
    # All dimensions from the axis on are normalized together.
    flat = op.reshape(x, (*x.dims[:at], product(x.dims[at:])))
    own_shape = op.lazy(np.dtype(np.int64), (x.rank,), lambda: op.shape(x))
    return op.reshape(op.apply(_SOFTMAX[op.type], flat, axis=at), x.dims, own_shape)


@onnx_operator(*_SOFTMAX, since=13, is_quantizable=True, doc={name: f"{kind.name}." for name, kind in _SOFTMAX.items()})
def softmax(op: NodeBuilder, x: Value, *, axis: int = -1, stash_type: int = 1) -> Value:
    return op.apply(_SOFTMAX[op.type], x, axis=axis % x.rank, quant=op.quant)


@onnx_operator("Hardmax", since=13)
def hardmax(op: NodeBuilder, x: Value, *, axis: int = -1) -> Value:
    """ARG_MAX and ONE_HOT."""
    at = axis % x.rank
    size = x.dims[at]
    if not isinstance(size, int):
        refuse(f"it counts dimension {at} of {x}; fix it")
    largest = op.apply(OperationType.ARG_MAX, x, axis=at)
    depth = np.array(size, np.int32)
    return op.apply(OperationType.ONE_HOT, largest, depth, op.number(1, x.dtype), op.number(0, x.dtype), axis=at)
