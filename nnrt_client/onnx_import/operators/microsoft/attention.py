"""Attention operators of ONNX Runtime's optimizer for transformers."""

import math
from dataclasses import dataclass

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.microsoft.quantization import matmul_integer_to_float
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import MICROSOFT, onnx_operator
from nnrt_client.onnx_import.shapes.dims import Number
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value

Outputs = tuple[Value | None, ...]

_INT64 = np.dtype(np.int64)
# Order that transposes [batch, steps, heads, width] to [batch, heads, steps, width], and back.
_HEADS_FIRST = [0, 2, 1, 3]


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
    if query.rank != 3 or key is None or value is None or key.rank not in (3, 4):
        refuse("its query, key and value are packed into one; use three inputs [batch, steps, hidden]")
    if bias is not None:
        query, key, value = _add_biases(op, [query, key, value], bias)
    q = _split_heads(op, query, num_heads)
    k, v = (part if part.rank == 4 else _split_heads(op, part, num_heads) for part in (key, value))
    if past_key is not None and past_value is not None:
        k, v = _append_steps(op, past_key, k), _append_steps(op, past_value, v)
    masking = Masking(mask_filter_value, bool(unidirectional), key_padding_mask, attention_bias)
    return _attend(op, q, k, v, masking, scale), k, v


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
        _split_heads(op, part, heads)
        for part in op.apply_to_several(
            OperationType.SPLIT, projected, axis=2, output_num=3, size_splits=sizes or [width // 3] * 3
        )
    )
    if past is not None:
        keys, values = (op.apply(OperationType.GATHER, past, np.array(at), np.array(0)) for at in (0, 1))
        k, v = _append_steps(op, keys, k), _append_steps(op, values, v)
    present = None
    if op.outputs[1:2] == (True,):
        present = op.apply(OperationType.CONCAT, op.unsqueeze(k, [0]), op.unsqueeze(v, [0]), axis=0)
    return _attend(op, q, k, v, masking, scale), present


def _attend(op: NodeBuilder, q: Value, k: Value, v: Value, masking: Masking, scale: float) -> Value:
    """Compute softmax(q k^T scale + mask) v, and concatenate the heads."""
    batch, heads, steps, width = q.dims
    if not isinstance(width, int) or not isinstance(v.dims[3], int) or not isinstance(heads, int):
        refuse(f"the width of its heads {q} is known only in a run")
    scores = op.apply(OperationType.MATMUL, q, k, transpose_b=True, dims=(batch, heads, steps, k.dims[2]))
    scores = op.apply(OperationType.MUL, scores, op.number(scale or 1 / math.sqrt(width), q.dtype), dims=scores.dims)
    for added in _score_masks(op, masking, k, q.dtype):
        scores = op.apply(OperationType.ADD, scores, added, dims=scores.dims)
    if masking.is_causal:
        lowest = op.number(float(np.finfo(q.dtype.name).min), q.dtype)
        scores = op.apply(OperationType.WHERE, _causal_mask(op, q, k), scores, lowest, dims=scores.dims)
    y = op.apply(OperationType.MATMUL, op.apply(OperationType.SOFTMAX, scores, axis=3), v)
    y.dims = (batch, heads, steps, v.dims[3])
    return op.reshape(op.transpose(y, _HEADS_FIRST), (batch, steps, heads * v.dims[3]))


def _score_masks(op: NodeBuilder, masking: Masking, k: Value, dtype: np.dtype[np.generic]) -> list[Value]:
    """Return the tensors to add to the scores [batch, heads, steps, seen]."""
    added = [] if masking.bias is None else [masking.bias]
    mask = masking.mask
    if mask is None:
        return added
    if mask.rank == 1:
        if mask.dims[0] != k.dims[0]:
            refuse(f"its mask {mask} is not one length for each of the batch of {k}; use a mask [batch, steps]")
        places = op.unsqueeze(op.indices(k, 2), [0])
        is_seen = op.apply(OperationType.LESS, places, op.unsqueeze(op.cast(mask, _INT64), [1]))
        mask = op.cast(is_seen, np.dtype(np.int32))
    if mask.rank not in (2, 3):
        refuse(f"its mask is {mask}; use one of rank 1, 2 or 3")
    hidden = op.apply(OperationType.SUB, op.number(1, dtype), op.cast(mask, dtype))
    filled = op.apply(OperationType.MUL, hidden, op.number(masking.filler, dtype))
    return [*added, op.unsqueeze(filled, [1, 2] if mask.rank == 2 else [1])]


def _causal_mask(op: NodeBuilder, q: Value, k: Value) -> Value:
    """Return the causal mask: a step sees itself, the steps before it, and all steps of the past."""
    steps, seen = q.dims[2], k.dims[2]
    if isinstance(steps, int) and isinstance(seen, int):
        return op.constant(np.tril(np.ones((steps, seen), np.bool_), seen - steps))
    rows = op.indices(q, 2)
    if steps != seen:
        past = op.apply(OperationType.SUB, op.size(k, 2), op.size(q, 2))
        rows = op.apply(OperationType.ADD, rows, past)
    return op.apply(OperationType.LESS_EQUAL, op.unsqueeze(op.indices(k, 2), [0]), op.unsqueeze(rows, [1]))


def _split_heads(op: NodeBuilder, x: Value, heads: int) -> Value:
    """Reshape and transpose [batch, steps, heads * width] to [batch, heads, steps, width]."""
    batch, steps, width = x.dims
    if not isinstance(width, int) or width % heads:
        refuse(f"{x} is not of {heads} heads side by side")
    return op.transpose(op.reshape(x, (batch, steps, heads, width // heads)), _HEADS_FIRST)


def _append_steps(op: NodeBuilder, past: Value, now: Value) -> Value:
    """Concatenate the steps of the past and the current ones."""
    batch, heads, _, width = now.dims
    steps: Number = past.dims[2] + now.dims[2]
    return op.apply(OperationType.CONCAT, past, now, axis=2, dims=(batch, heads, steps, width))


def _add_biases(op: NodeBuilder, parts: list[Value], bias: Value) -> list[Value]:
    """Add to queries, keys and values their parts of a concatenated bias."""
    widths = [part.dims[-1] if part.rank == 3 else None for part in parts]
    if bias.array is None or not all(isinstance(width, int) for width in widths):
        refuse(f"its bias {bias} is known only in a run; make it a constant")
    ends = np.cumsum([width for width in widths if isinstance(width, int)])[:-1]
    return [
        op.apply(OperationType.ADD, part, op.constant(np.ascontiguousarray(own)), dims=part.dims)
        for part, own in zip(parts, np.split(bias.array, ends), strict=True)
    ]


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
    half = cos_cache.dims[-1]
    heads = num_heads if rotary_embedding_dim else x.dims[-1] // (2 * half)
    is_flat = x.rank == 3
    if not isinstance(half, int) or not isinstance(heads, int) or x.rank not in (3, 4) or (is_flat and heads < 1):
        refuse(f"the width of its heads is not known of {x}; give it num_heads and rotary_embedding_dim")
    batch, steps, hidden = x.dims if is_flat else (x.dims[0], x.dims[2], x.dims[3])
    parts = op.reshape(x, (batch, steps, heads, hidden // heads)) if is_flat else x
    if position_ids.rank == 1:
        places = op.apply(OperationType.ADD, op.indices(x, 1 if is_flat else 2), op.cast(position_ids, _INT64))
        position_ids = op.unsqueeze(places, [0])
    cos, sin = (
        op.unsqueeze(op.apply(OperationType.GATHER, cache, position_ids, np.array(0)), [2 if is_flat else 1])
        for cache in (cos_cache, sin_cache)
    )
    turned = _rotate(op, parts, cos, sin, half, interleaved)
    return op.reshape(turned, x.dims) if is_flat else turned


def _rotate(op: NodeBuilder, x: Value, cos: Value, sin: Value, half: int, interleaved: int) -> Value:
    """Rotate pairs of the first 2 * half elements by their angles; the others stay.

    A pair are neighbours if `interleaved`, else two elements that are `half` apart.
    """
    width = x.dims[3]
    assert isinstance(width, int)
    rest = []
    if width > 2 * half:
        x, kept = op.apply_to_several(
            OperationType.SPLIT, x, axis=3, output_num=2, size_splits=[2 * half, width - 2 * half]
        )
        rest = [kept]
    if interleaved:
        x = op.reshape(x, (*x.dims[:3], half, 2))
        first, second = (
            op.squeeze(part, [4])
            for part in op.apply_to_several(OperationType.SPLIT, x, axis=4, output_num=2, size_splits=[1, 1])
        )
    else:
        first, second = op.apply_to_several(OperationType.SPLIT, x, axis=3, output_num=2, size_splits=[half] * 2)
    new = [
        op.apply(kind, op.apply(OperationType.MUL, first, a), op.apply(OperationType.MUL, second, b), dims=first.dims)
        for kind, a, b in ((OperationType.SUB, cos, sin), (OperationType.ADD, sin, cos))
    ]
    if interleaved:
        pairs = op.apply(OperationType.CONCAT, *(op.unsqueeze(part, [4]) for part in new), axis=4)
        new = [op.reshape(pairs, (*first.dims[:3], 2 * half))]
    return new[0] if len([*new, *rest]) == 1 else op.apply(OperationType.CONCAT, *new, *rest, axis=3)
