"""GroupQueryAttention: attention with a cache, whose rows may have lengths of their own."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.attention import (
    HEADS_FIRST,
    INT64,
    Outputs,
    Scoring,
    all_of,
    angles,
    as_heads,
    attend,
    merge_heads,
    near,
    pad_keys,
    rotate,
)
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.normalization import apply_rms_norm
from nnrt_client.onnx_import.operators.operator import MICROSOFT, onnx_operator
from nnrt_client.onnx_import.operators.steps import pick_steps
from nnrt_client.onnx_import.shapes.dims import Number, new_dim
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Value


@dataclass(frozen=True, slots=True)
class Norms:
    """Epsilons of the normalization of queries and keys. None for that of both."""

    qk_norm_epsilon: float = 1e-6
    q_norm_epsilon: float | None = None
    k_norm_epsilon: float | None = None


@dataclass(frozen=True, slots=True)
class Compressed:
    """Compression of a cache."""

    k_quant_type: str = "NONE"
    v_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    sliding_window_cache: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Lengths:
    """Positions of the steps of a run, as vectors and matrices of INT64.

    Attributes:
        last: position of the last step of each row [batch, 1].
        first: position of the first new step of each row [batch, 1].
        steps: position of each new step [batch, steps].
    """

    last: Value
    first: Value
    steps: Value


@onnx_operator("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(
    op: NodeBuilder,
    query: Value,
    key: Value | None,
    value: Value | None,
    past_key: Value | None,
    past_value: Value | None,
    seqlens_k: Value,
    total_sequence_length: Value,
    cos_cache: Value | None = None,
    sin_cache: Value | None = None,
    position_ids: Value | None = None,
    attention_bias: Value | None = None,
    head_sink: Value | None = None,
    k_scale: Value | None = None,
    v_scale: Value | None = None,
    q_norm_weight: Value | None = None,
    k_norm_weight: Value | None = None,
    query_seqlens: Value | None = None,
    *,
    causal: int = 1,
    compressed: Compressed,
    do_rotary: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    norms: Norms,
    num_heads: int,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float = 0.0,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
) -> Outputs:
    """GATHER of the steps of the past and the new ones; MUL, MATMUL, WHERE, SOFTMAX and MATMUL of groups of heads.

    SPLIT, the operations of SimplifiedLayerNormalization and those of RotaryEmbedding come before them if needed.
    Steps of the cache behind a row's length are not specified.
    """
    if compressed != Compressed() or k_scale is not None or v_scale is not None:
        refuse(
            f"its cache is compressed or a window ({compressed}); use one of all steps in the data type of the query"
        )
    q, k, v = _split(op, query, key, value, num_heads, kv_num_heads)
    if q_norm_weight is not None and k_norm_weight is not None:
        epsilons = (
            norms.qk_norm_epsilon if each is None else each for each in (norms.q_norm_epsilon, norms.k_norm_epsilon)
        )
        pairs = zip((q, k), (q_norm_weight, k_norm_weight), epsilons, strict=True)
        q, k = (apply_rms_norm(op, part, weight, 3, epsilon) for part, weight, epsilon in pairs)
    key_of_lengths = ("lengths", seqlens_k, query_seqlens, query.dims[:2])
    lengths = op.once(key_of_lengths, lambda: _lengths(op, query, seqlens_k, query_seqlens))
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            refuse("its do_rotary is 1, but cos_cache or sin_cache is missing; give both")
        turns = lengths.steps
        if position_ids is not None:
            turns = _turns(op, query, position_ids, None if query_seqlens else total_sequence_length)
        cos, sin = angles(op, cos_cache, sin_cache, turns, 2)
        q, k = (rotate(op, part, cos, sin, is_interleaved=bool(rotary_interleaved)) for part in (q, k))
    q, k, v = (op.transpose(part, HEADS_FIRST) for part in (q, k, v))
    if past_key is not None and past_value is not None:
        kind = ("picked", lengths, past_key.dims[2], k.dims[2], total_sequence_length)
        picked = op.once(kind, partial(_picked, op, past_key, k, lengths, total_sequence_length))
        k, v = (_append(op, past, now, picked) for past, now in ((past_key, k), (past_value, v)))
    places = op.indices(k, 2)
    if causal:
        seen = near(op, places, lengths.steps, local_window_size - 1 if local_window_size > 0 else None, 0)
    else:
        seen = near(op, places, lengths.last, None, 0)
    biases = [] if attention_bias is None else [pad_keys(op, attention_bias, k, 0)]
    sink = op.full((1,), 0, q.dtype) if smooth_softmax and head_sink is None else head_sink
    shown = all_of(op, seen)
    scoring = Scoring(
        scale=scale,
        softcap=softcap,
        biases=biases,
        seen=None if shown is None else op.unsqueeze(shown, [1]),
        sink=sink,
    )
    y, *_ = attend(op, q, k, v, scoring)
    return merge_heads(op, y), k, v


def _split(
    op: NodeBuilder, query: Value, key: Value | None, value: Value | None, heads: int, groups: int
) -> tuple[Value, Value, Value]:
    """Return queries, keys and values [batch, steps, heads, width]. They may be packed into the first input."""
    if key is None or value is None:
        width = query.dims[-1]
        if key is not None or value is not None or not isinstance(width, int) or width % (heads + 2 * groups):
            refuse(f"its query {query} does not hold {heads} queries, {groups} keys and {groups} values")
        sizes = [width // (heads + 2 * groups) * count for count in (heads, groups, groups)]
        query, key, value = op.apply_to_several(OperationType.SPLIT, query, axis=2, output_num=3, size_splits=sizes)
    return as_heads(op, query, heads), as_heads(op, key, groups), as_heads(op, value, groups)


def _lengths(op: NodeBuilder, query: Value, seqlens_k: Value, query_seqlens: Value | None) -> Lengths:
    """Compute positions of steps from the position of the last step of each row."""
    batch = query.dims[0]
    last = op.reshape(op.cast(seqlens_k, INT64), (batch, 1))
    end = op.apply(OperationType.ADD, last, op.number(1, INT64))
    if query_seqlens is None:
        # A row that is shorter than its query has padding behind its end, and no past.
        first = op.apply(OperationType.SUB, end, op.size(query, 1))
        first = op.apply(OperationType.MAXIMUM, first, op.number(0, INT64))
    else:
        first = op.apply(OperationType.SUB, end, op.reshape(op.cast(query_seqlens, INT64), (batch, 1)))
    steps = op.apply(OperationType.ADD, first, op.indices(query, 1))
    steps.dims = query.dims[:2]
    return Lengths(last, first, steps)


def _turns(op: NodeBuilder, query: Value, position_ids: Value, total: Value | None) -> Value:
    """Return the positions that rotate the steps. In a first prompt they count up from the first position of all."""
    if total is None:
        return position_ids
    start = op.apply(OperationType.GATHER, op.reshape(position_ids, (-1,)), np.array(0), np.array(0))
    counted = op.apply(OperationType.ADD, op.indices(query, 1), start)
    is_first = op.apply(OperationType.EQUAL, op.reshape(op.cast(total, INT64), ()), op.size(query, 1))
    return op.apply(OperationType.WHERE, is_first, counted, position_ids, dims=query.dims[:2])


def _picked(op: NodeBuilder, past: Value, now: Value, lengths: Lengths, total: Value) -> Value:
    """Return the indices of a row's steps in the past and the new ones together, [batch, steps of the cache].

    Behind the last step that one repeats.
    """
    size, known = past.dims[2], None if total.elements is None else total.elements.item()
    whole: Number
    if isinstance(size, int) and isinstance(known, int):
        whole = max(size, known)
    else:
        whole = known if known is not None and known == size + now.dims[2] else new_dim()
    if isinstance(whole, int):
        places = op.constant(np.arange(whole))
    else:
        maximum = partial(op.apply, OperationType.MAXIMUM, op.size(past, 2), op.cast(total, INT64))
        places = op.places(whole, maximum)
    dims = (lengths.last.dims[0], whole)
    places = op.apply(OperationType.MINIMUM, places, lengths.last, dims=dims)
    distance = op.apply(OperationType.SUB, op.size(past, 2), lengths.first)
    moved = op.apply(OperationType.ADD, places, distance, dims=dims)
    is_past = op.apply(OperationType.LESS, places, lengths.first, dims=dims)
    return op.apply(OperationType.WHERE, is_past, places, moved, dims=dims)


def _append(op: NodeBuilder, past: Value, now: Value, picked: Value) -> Value:
    """Return the steps of the past and the new ones."""
    batch, heads, steps, width = now.dims
    both = op.apply(OperationType.CONCAT, past, now, axis=2, dims=(batch, heads, past.dims[2] + steps, width))
    return pick_steps(op, both, picked, 2)
