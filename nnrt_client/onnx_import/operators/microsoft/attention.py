"""Attention operators of ONNX Runtime's optimizer for transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.attention import (
    HEADS_FIRST,
    INT64,
    Outputs,
    Scoring,
    angles,
    append_steps,
    as_heads,
    attend,
    last_places,
    merge_heads,
    near,
    rotate,
    split_heads,
)
from nnrt_client.onnx_import.operators.microsoft.quantization import matmul_integer_to_float
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import MICROSOFT, onnx_operator
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Dtype, Value


@dataclass(frozen=True, slots=True)
class Masking:
    """Masks of the scores. `filler` is added where `mask` is 0, and `bias` everywhere.

    If `is_causal`, a step sees only itself and the steps before it.
    """

    filler: float
    is_causal: bool
    mask: Value | None = None
    bias: Value | None = None


@onnx_operator("Attention", domain=MICROSOFT)
def attention(
    op: NodeBuilder,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    mask_index: Value | None = None,
    past: Value | None = None,
    attention_bias: Value | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    qkv_hidden_sizes: tuple[int, ...] = (),
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Outputs:
    """MATMUL, ADD and SPLIT to queries, keys, values; then MATMUL, MUL, ADD of a mask, SOFTMAX and MATMUL of heads."""
    if do_rotary:
        refuse(f"its do_rotary is {do_rotary}; export it with RotaryEmbedding before it")
    projected = op.apply(OperationType.MATMUL, x, weight)
    if bias is not None:
        projected = op.apply(OperationType.ADD, projected, bias, dims=projected.dims)
    masking = Masking(mask_filter_value, bool(unidirectional), mask_index, attention_bias)
    return _self_attention(op, projected, num_heads, qkv_hidden_sizes, past, masking, scale)


@onnx_operator("QAttention", domain=MICROSOFT)
def quantized_attention(
    op: NodeBuilder,
    x: Value,
    weight: Value,
    bias: Value,
    x_scale: Value,
    weight_scale: Value,
    mask_index: Value | None = None,
    x_zero_point: Value | None = None,
    weight_zero_point: Value | None = None,
    past: Value | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Outputs:
    """MatMulIntegerToFloat for queries, keys and values, then Attention."""
    if do_rotary:
        refuse(f"its do_rotary is {do_rotary}; export it with RotaryEmbedding before it")
    projected = matmul_integer_to_float(op, x, weight, x_scale, weight_scale, x_zero_point, weight_zero_point, bias)
    masking = Masking(mask_filter_value, bool(unidirectional), mask_index)
    return _self_attention(op, projected, num_heads, (), past, masking, scale)


@onnx_operator("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(
    op: NodeBuilder,
    query: Value,
    key: Value | None = None,
    value: Value | None = None,
    bias: Value | None = None,
    key_padding_mask: Value | None = None,
    attention_bias: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float = 0.0,
    unidirectional: int = 0,
) -> Outputs:
    """CONCAT with the keys and values of the past; then MATMUL, MUL, ADD of the mask, SOFTMAX and MATMUL of heads."""
    q, k, v = _unpack(op, query, key, value, num_heads)
    if bias is not None:
        # Keys and values that come as heads have theirs already.
        q, k, v = _add_biases(op, [q, k, v], bias, 1 if key is not None and key.rank == 4 else 3)
    q = op.transpose(q, HEADS_FIRST)
    if key is None or key.rank != 4:
        k, v = (op.transpose(part, HEADS_FIRST) for part in (k, v))
    if past_key is not None and past_value is not None:
        k, v = append_steps(op, past_key, k), append_steps(op, past_value, v)
    masking = Masking(mask_filter_value, bool(unidirectional), key_padding_mask, attention_bias)
    return _attend(op, q, k, v, masking, scale), k, v


def _unpack(op: NodeBuilder, query: Value, key: Value | None, value: Value | None, heads: int) -> list[Value]:
    """Return queries, keys and values [batch, steps, heads, width]; keys and values that come as heads stay so."""
    packed = query if key is None else key if value is None else None
    if packed is not None and packed.rank != 5:
        refuse(f"its query {query} comes without keys or values; use three inputs [batch, steps, hidden]")
    if packed is None:
        given = [part for part in (query, key, value) if part is not None]
        return [part if part.rank == 4 else as_heads(op, part, heads) for part in given]
    count = 3 if key is None else 2
    parts = op.apply_to_several(OperationType.SPLIT, packed, axis=3, output_num=count, size_splits=[1] * count)
    rest = [op.squeeze(part, [3]) for part in parts]
    return rest if key is None else [as_heads(op, query, heads), *rest]


def _self_attention(
    op: NodeBuilder,
    projected: Value,
    heads: int,
    sizes: tuple[int, ...],
    past: Value | None,
    masking: Masking,
    scale: float,
) -> Outputs:
    """Compute self-attention from queries, keys and values that are concatenated in the last dimension."""
    width = projected.dims[-1]
    if not isinstance(width, int):
        refuse(f"the columns of its weight are {width}; make it a constant")
    q, k, v = (
        split_heads(op, part, heads)
        for part in op.apply_to_several(
            OperationType.SPLIT, projected, axis=2, output_num=3, size_splits=sizes or [width // 3] * 3
        )
    )
    if past is not None:
        keys, values = (op.apply(OperationType.GATHER, past, np.array(at), np.array(0)) for at in (0, 1))
        k, v = append_steps(op, keys, k), append_steps(op, values, v)
    present = None
    if op.outputs[1:2] == (True,):
        present = op.apply(OperationType.CONCAT, op.unsqueeze(k, [0]), op.unsqueeze(v, [0]), axis=0)
    return _attend(op, q, k, v, masking, scale), present


def _attend(op: NodeBuilder, q: Value, k: Value, v: Value, masking: Masking, scale: float) -> Value:
    """Compute softmax(q k^T scale + mask) v, and concatenate the heads."""
    places = op.indices(k, 2)
    scoring = Scoring(
        scale=scale,
        biases=_score_masks(op, masking, k, q.dtype),
        seen=near(op, places, last_places(op, places, q, k), None, 0)[0] if masking.is_causal else None,
        hidden=float(np.finfo(q.dtype.name).min),
    )
    y, *_ = attend(op, q, k, v, scoring)
    return merge_heads(op, y)


def _score_masks(op: NodeBuilder, masking: Masking, k: Value, dtype: Dtype) -> list[Value]:
    """Return the tensors to add to the scores [batch, heads, steps, seen]."""
    added = [] if masking.bias is None else [masking.bias]
    if masking.mask is not None:
        key = ("filled", masking.mask, k.dims[0], k.dims[2], masking.filler, dtype)
        added.append(op.once(key, partial(_filled, op, masking.mask, masking.filler, k, dtype)))
    return added


def _filled(op: NodeBuilder, mask: Value, filler: float, k: Value, dtype: Dtype) -> Value:
    """Return a mask as numbers to add: the filler where it is 0, else 0."""
    if mask.rank == 1:
        if mask.dims[0] != k.dims[0]:
            refuse(f"its mask {mask} is not one length for each of the batch of {k}; use a mask [batch, steps]")
        places = op.unsqueeze(op.indices(k, 2), [0])
        is_seen = op.apply(OperationType.LESS, places, op.unsqueeze(op.cast(mask, INT64), [1]))
        mask = op.cast(is_seen, np.dtype(np.int32))
    if mask.rank not in (2, 3):
        refuse(f"its mask is {mask}; use one of rank 1, 2 or 3")
    hidden = op.apply(OperationType.SUB, op.number(1, dtype), op.cast(mask, dtype))
    filled = op.apply(OperationType.MUL, hidden, op.number(filler, dtype))
    return op.unsqueeze(filled, [1, 2] if mask.rank == 2 else [1])


def _add_biases(op: NodeBuilder, parts: Sequence[Value], bias: Value, count: int) -> list[Value]:
    """Add to the first `count` of queries, keys and values [batch, steps, heads, width] their parts of a bias."""
    sizes = [part.dims[2] * part.dims[3] for part in parts[:count]]
    widths = [size for size in sizes if isinstance(size, int)]
    total = bias.dims[0]
    if len(widths) < count or not isinstance(total, int):
        refuse(f"the widths of its heads {parts[0]}, or of its bias {bias}, are known only in a run")
    if total > sum(widths):
        widths.append(total - sum(widths))
    own = op.apply_to_several(OperationType.SPLIT, bias, axis=0, output_num=len(widths), size_splits=widths)
    added = [
        op.apply(OperationType.ADD, part, op.reshape(given, part.dims[2:]), dims=part.dims)
        for part, given in zip(parts[:count], own, strict=False)
    ]
    return [*added, *parts[count:]]


@onnx_operator("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(
    op: NodeBuilder,
    x: Value,
    position_ids: Value,
    cos_cache: Value,
    sin_cache: Value,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Value:
    """GATHER of sines and cosines, and rotation of pairs of elements by SPLIT, MUL, ADD, SUB and CONCAT."""
    if scale != 1:
        refuse(f"its scale is {scale}; use 1")
    is_flat = x.rank == 3
    heads = num_heads if rotary_embedding_dim else x.dims[-1] // (2 * cos_cache.dims[-1])
    parts = as_heads(op, x, heads) if is_flat else x
    if position_ids.rank == 1:
        places = op.apply(OperationType.ADD, op.indices(x, 1 if is_flat else 2), op.cast(position_ids, INT64))
        position_ids = op.unsqueeze(places, [0])
    cos, sin = angles(op, cos_cache, sin_cache, position_ids, 2 if is_flat else 1)
    turned = rotate(op, parts, cos, sin, is_interleaved=bool(interleaved))
    return op.reshape(turned, x.dims) if is_flat else turned
