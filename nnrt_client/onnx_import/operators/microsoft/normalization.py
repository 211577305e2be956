"""Normalization operators of ONNX Runtime's optimizers, which add their inputs first."""

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.normalization import apply_layer_norm, apply_rms_norm
from nnrt_client.onnx_import.operators.operator import MICROSOFT, onnx_operator
from nnrt_client.onnx_import.operators.quantization import dequantize_linear
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value

Outputs = tuple[Value | None, ...]


@onnx_operator("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer_normalization(
    op: NodeBuilder,
    x: Value,
    skip: Value,
    gamma: Value,
    beta: Value | None = None,
    bias: Value | None = None,
    *,
    epsilon: float = 1e-12,
) -> Outputs:
    """ADD and LAYER_NORM, without the outputs mean and deviation."""
    total = _sum(op, x, skip, bias)
    return apply_layer_norm(op, total, gamma, beta, x.rank - 1, epsilon), None, None, total


@onnx_operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified_layer_normalization(
    op: NodeBuilder, x: Value, skip: Value, gamma: Value, bias: Value | None = None, *, epsilon: float = 1e-12
) -> Outputs:
    """ADD, then as SimplifiedLayerNormalization, without the outputs mean and deviation."""
    total = _sum(op, x, skip, bias)
    return apply_rms_norm(op, total, gamma, x.rank - 1, epsilon), None, None, total


def _sum(op: NodeBuilder, x: Value, skip: Value, bias: Value | None) -> Value:
    if bias is not None:
        x = op.apply(OperationType.ADD, x, bias, dims=x.dims)
    return op.apply(OperationType.ADD, x, skip, dims=x.dims)


@onnx_operator("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(
    op: NodeBuilder,
    input_ids: Value,
    segment_ids: Value | None,
    word_embedding: Value,
    position_embedding: Value,
    segment_embedding: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None = None,
    position_ids: Value | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> Outputs:
    """GATHER of the embeddings, ADD and LAYER_NORM; the lengths are REDUCE_SUM of the mask, or 0 without a mask."""
    if mask_index_type:
        refuse(f"its mask_index_type is {mask_index_type}; use 0")
    tables = word_embedding, position_embedding, segment_embedding
    total = _sum_embeddings(op, input_ids, segment_ids, tables, position_ids)
    lengths = _lengths(op, input_ids, mask)
    return apply_layer_norm(op, total, gamma, beta, total.rank - 1, epsilon), lengths, total


@onnx_operator("QEmbedLayerNormalization", domain=MICROSOFT)
def quantized_embed_layer_normalization(
    op: NodeBuilder,
    input_ids: Value,
    segment_ids: Value | None,
    word_embedding: Value,
    position_embedding: Value,
    segment_embedding: Value | None,
    gamma: Value,
    beta: Value,
    mask: Value | None,
    word_scale: Value,
    position_scale: Value,
    segment_scale: Value | None,
    gamma_scale: Value,
    beta_scale: Value,
    word_zero_point: Value,
    position_zero_point: Value,
    segment_zero_point: Value | None,
    gamma_zero_point: Value,
    beta_zero_point: Value,
    *,
    epsilon: float = 1e-12,
) -> Outputs:
    """EmbedLayerNormalization, with tables that are dequantized."""
    segments = None
    if segment_embedding is not None and segment_scale is not None:
        segments = dequantize_linear(op, segment_embedding, segment_scale, segment_zero_point)
    tables = (
        dequantize_linear(op, word_embedding, word_scale, word_zero_point),
        dequantize_linear(op, position_embedding, position_scale, position_zero_point),
        segments,
    )
    total = _sum_embeddings(op, input_ids, segment_ids, tables, None)
    scale = dequantize_linear(op, gamma, gamma_scale, gamma_zero_point)
    bias = dequantize_linear(op, beta, beta_scale, beta_zero_point)
    return apply_layer_norm(op, total, scale, bias, total.rank - 1, epsilon), _lengths(op, input_ids, mask)


def _sum_embeddings(
    op: NodeBuilder,
    input_ids: Value,
    segment_ids: Value | None,
    tables: tuple[Value, Value, Value | None],
    position_ids: Value | None,
) -> Value:
    """Sum the embeddings of words, positions and segments."""
    word_embedding, position_embedding, segment_embedding = tables
    places = op.indices(input_ids, 1) if position_ids is None else position_ids
    parts = [(word_embedding, input_ids), (position_embedding, places)]
    if segment_ids is not None and segment_embedding is not None:
        parts.append((segment_embedding, segment_ids))
    first, *rest = (op.apply(OperationType.GATHER, table, ids, np.array(0)) for table, ids in parts)
    total = first
    for part in rest:
        total = op.apply(OperationType.ADD, total, part, dims=first.dims)
    return total


def _lengths(op: NodeBuilder, input_ids: Value, mask: Value | None) -> Value | None:
    """Return the number of unmasked steps of each row, or None if the output is not read."""
    if op.outputs[1:2] != (True,):
        return None
    if mask is None:
        mask = op.apply(OperationType.MUL, input_ids, op.number(0, input_ids.dtype))
    return op.apply(OperationType.REDUCE_SUM, mask, np.array([1]))
