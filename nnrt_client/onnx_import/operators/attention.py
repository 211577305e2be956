"""Attention of several heads, and rotation of elements by their positions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from nnrt_client.enums import OperationType
from nnrt_client.onnx_import.operators.node_builder import NodeBuilder
from nnrt_client.onnx_import.operators.operator import onnx_operator
from nnrt_client.onnx_import.operators.padding import pad_in_run
from nnrt_client.onnx_import.operators.slicing import FARTHEST, slice_between
from nnrt_client.onnx_import.shapes.dims import Number
from nnrt_client.onnx_import.signature import refuse
from nnrt_client.onnx_import.value import Dtype, Value

Outputs = tuple[Value | None, ...]

INT64 = np.dtype(np.int64)
# Order that transposes [batch, steps, heads, width] to [batch, heads, steps, width], and back.
HEADS_FIRST = [0, 2, 1, 3]
# First operator set whose Attention takes a mask that is shorter than the keys.
_SHORT_MASKS = 24

# Most elements of a mask that is a constant.
_MOST_COMPARED = 1 << 20


@dataclass(frozen=True, slots=True)
class Scoring:
    """Rule by which scores become weights of the values.

    Attributes:
        scale: factor of the queries; 0 for 1 / sqrt(width).
        softcap: limit c of the scores, which become c tanh(score / c); 0 for none.
        biases: tensors that are added to the scores.
        seen: tensor of BOOL that is false where a step does not see a key.
        hidden: score of a key that a step does not see.
        kept: tensor of BOOL that is false where a weight is 0 whatever the scores are.
        sink: tensor of a score for each head that takes weight but has no value.
        dtype: data type of the softmax, if it is not that of the queries.
    """

    scale: float = 0.0
    softcap: float = 0.0
    biases: Sequence[Value] = field(default=())
    seen: Value | None = None
    hidden: float = -math.inf
    kept: Value | None = None
    sink: Value | None = None
    dtype: Dtype | None = None


@onnx_operator("Attention", since=23)
def attention(
    op: NodeBuilder,
    q: Value,
    k: Value,
    v: Value,
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    nonpad_kv_seqlen: Value | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    left_window_size: int = -1,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    right_window_size: int = -1,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
) -> Outputs:
    """CONCAT with the past; then MUL, MATMUL, WHERE and ADD of the masks, SOFTMAX and MATMUL of groups of heads."""
    is_flat = q.rank == 3
    if is_flat:
        q = split_heads(op, q, q_num_heads)
        k, v = (split_heads(op, part, kv_num_heads) for part in (k, v))
    if past_key is not None and past_value is not None:
        k, v = append_steps(op, past_key, k), append_steps(op, past_value, v)
    before, behind = (None if size < 0 else size for size in (left_window_size, right_window_size))
    behind = 0 if is_causal else behind
    places = op.indices(k, 2)
    seen = []
    if nonpad_kv_seqlen is not None:
        seen.append(op.once(("filled", places, nonpad_kv_seqlen), partial(_are_filled, op, places, nonpad_kv_seqlen)))
    band = []
    if before is not None or behind is not None:
        band = near(op, places, _own_places(op, q, k, places, past_key, nonpad_kv_seqlen), before, behind)
    mask = None if attn_mask is None else _whole_mask(op, attn_mask, k)
    if mask is not None and mask.dtype == np.bool_:
        seen.append(mask)
    # A step sees itself unless more than a causal mask hides keys.
    is_full = not seen and (not band or (is_causal and before is None))
    shown = all_of(op, [*seen, *band])
    bias = None if mask is None or mask.dtype == np.bool_ else op.cast(mask, q.dtype)
    scoring = Scoring(
        scale=scale or 0.0,
        softcap=softcap,
        biases=() if bias is None else [bias],
        seen=shown,
        kept=_kept(op, shown, bias) if bias is not None else None if is_full else shown,
        dtype=op.dtype(softmax_precision) if softmax_precision else None,
    )
    y, *stages = attend(op, q, k, v, scoring)
    return merge_heads(op, y) if is_flat else y, k, v, stages[qk_matmul_output_mode]


def _are_filled(op: NodeBuilder, places: Value, lengths: Value) -> Value:
    """Return whether places are within the length of a row, as [batch, 1, 1, places]."""
    return op.apply(OperationType.LESS, places, op.unsqueeze(lengths, [1, 2, 3]))


def _own_places(op: NodeBuilder, q: Value, k: Value, places: Value, past: Value | None, lengths: Value | None) -> Value:
    """Return the positions of the steps of q, as [steps] or [batch, 1, steps]."""
    if lengths is not None:
        return op.once(("own", lengths, q.dims[2]), partial(_last_filled, op, q, lengths))
    if past is None:
        return op.indices(q, 2)
    if k.dims[2] == past.dims[2] + q.dims[2]:
        return last_places(op, places, q, k)
    return op.apply(OperationType.ADD, op.indices(q, 2), op.size(past, 2))


def _last_filled(op: NodeBuilder, q: Value, lengths: Value) -> Value:
    first = op.apply(OperationType.SUB, op.unsqueeze(lengths, [1, 2]), op.size(q, 2))
    return op.apply(OperationType.ADD, first, op.indices(q, 2))


def last_places(op: NodeBuilder, places: Value, q: Value, k: Value) -> Value:
    """Return the positions of the steps of q, which are the last of those of k."""
    if q.dims[2] == k.dims[2]:
        return places
    if places.array is not None and isinstance(q.dims[2], int):
        return op.constant(places.array[places.array.size - q.dims[2] :])
    return op.once(("last", places, q.dims[2]), lambda: _slice_last(op, places, q, k))


def _slice_last(op: NodeBuilder, places: Value, q: Value, k: Value) -> Value:
    start = op.reshape(op.apply(OperationType.SUB, op.size(k, 2), op.size(q, 2)), (1,))
    last = slice_between(op, places, start, [FARTHEST], [0], [1])
    last.dims = (q.dims[2],)
    return last


def near(op: NodeBuilder, places: Value, steps: Value, before: int | None, behind: int | None) -> list[Value]:
    """Return masks [..., steps, places] of the places from `before` before a step to `behind` behind it.

    None is no limit.
    """
    return [
        op.once(("near", kind, places, steps, distance), partial(_compare, op, kind, places, steps, distance))
        for kind, distance in (
            (OperationType.GREATER_EQUAL, None if before is None else -before),
            (OperationType.LESS_EQUAL, behind),
        )
        if distance is not None
    ]


def _compare(op: NodeBuilder, kind: OperationType, places: Value, steps: Value, distance: int) -> Value:
    """Compare places with those at a distance from steps, at import if all are constants and not many."""
    if places.array is not None and steps.array is not None and places.array.size * steps.array.size <= _MOST_COMPARED:
        rows = steps.array[..., None] + distance
        is_last = kind is OperationType.LESS_EQUAL
        return op.constant(places.array <= rows if is_last else places.array >= rows)
    moved = op.apply(OperationType.ADD, steps, op.number(distance, INT64)) if distance else steps
    return op.apply(kind, places, op.unsqueeze(moved, [-1]))


def all_of(op: NodeBuilder, conditions: Sequence[Value]) -> Value | None:
    """Return whether all conditions are true, or None without conditions."""
    result = None
    for part in conditions:
        result = part if result is None else op.once(("and", result, part), partial(_both, op, result, part))
    return result


def _both(op: NodeBuilder, a: Value, b: Value) -> Value:
    return op.apply(OperationType.LOGICAL_AND, a, b)


def _whole_mask(op: NodeBuilder, mask: Value, k: Value) -> Value:
    """Extend a mask to all keys. It hides those behind its end."""
    if op.opset < _SHORT_MASKS or mask.dims[-1] == k.dims[2]:
        return mask
    return pad_keys(op, mask, k, 0 if mask.dtype == np.bool_ else -math.inf)


def pad_keys(op: NodeBuilder, x: Value, k: Value, number: float) -> Value:
    """Pad the last dimension of x with a number, up to the count of keys."""
    if x.dims[-1] == k.dims[2]:
        return x
    return op.once(("padded", x, k.dims[2], number), lambda: _pad(op, x, k, number))


def _pad(op: NodeBuilder, x: Value, k: Value, number: float) -> Value:
    missing = op.apply(OperationType.SUB, op.size(k, 2), op.size(x, -1))
    pads = op.apply(OperationType.CONCAT, np.zeros(1, np.int64), op.reshape(missing, (1,)), axis=0)
    padded = pad_in_run(op, x, pads, [x.rank - 1], "constant", number)
    padded.dims = (*x.dims[:-1], k.dims[2])
    return padded


def _kept(op: NodeBuilder, seen: Value | None, bias: Value) -> Value:
    """Return for each step whether it sees a key at all: one whose bias is above -infinity."""
    return op.once(("kept", seen, bias), lambda: _are_kept(op, seen, bias))


def _are_kept(op: NodeBuilder, seen: Value | None, bias: Value) -> Value:
    nothing = op.number(-math.inf, bias.dtype)
    if seen is not None:
        bias = op.apply(OperationType.WHERE, seen, bias, nothing)
    most = op.apply(OperationType.REDUCE_MAX, bias, np.array([bias.rank - 1]), keep_dims=True)
    return op.apply(OperationType.NOT_EQUAL, most, nothing)


def attend(op: NodeBuilder, q: Value, k: Value, v: Value, scoring: Scoring) -> tuple[Value, Value, Value, Value, Value]:
    """Compute softmax(q k^T scale) v of heads [batch, heads, steps, width].

    Consecutive heads of q share one head of k and v if these have fewer.

    Returns:
        The result, and the scores: scaled, below the softcap, masked, and as weights.
    """
    batch, heads, steps, width = q.dims
    groups, seen, out = k.dims[1], k.dims[2], v.dims[3]
    if not (isinstance(heads, int) and isinstance(groups, int) and isinstance(width, int) and isinstance(out, int)):
        refuse(f"the number or width of its heads {q} and {k} is known only in a run")
    if heads % groups:
        refuse(f"{heads} heads of its queries can't share {groups} heads of its keys")
    rows: Number = heads // groups * steps
    dims = (batch, heads, steps, seen)
    q = op.apply(OperationType.MUL, q, op.number(scoring.scale or 1 / math.sqrt(width), q.dtype), dims=q.dims)
    q = op.reshape(q, (batch, groups, rows, width))
    products = op.apply(OperationType.MATMUL, q, k, transpose_b=True, dims=(batch, groups, rows, seen))
    scores = capped = op.reshape(products, dims)
    if scoring.softcap:
        limit = op.number(scoring.softcap, q.dtype)
        capped = op.apply(OperationType.TANH, op.apply(OperationType.DIV, scores, limit, dims=dims), dims=dims)
        capped = op.apply(OperationType.MUL, capped, limit, dims=dims)
    masked = capped
    for bias in scoring.biases:
        masked = op.apply(OperationType.ADD, masked, bias, dims=dims)
    if scoring.seen is not None:
        hidden = op.number(scoring.hidden, q.dtype)
        masked = op.apply(OperationType.WHERE, scoring.seen, masked, hidden, dims=dims)
    weights = _weights(op, masked, scoring)
    y = op.apply(OperationType.MATMUL, op.reshape(weights, (batch, groups, rows, seen)), v)
    y.dims = (batch, groups, rows, out)
    return op.reshape(y, (batch, heads, steps, out)), scores, capped, masked, weights


def _weights(op: NodeBuilder, scores: Value, scoring: Scoring) -> Value:
    """Compute the softmax of the scores."""
    wide = op.cast(scores, scoring.dtype or scores.dtype)
    weights = op.apply(OperationType.SOFTMAX, wide, axis=3, dims=scores.dims)
    if scoring.sink is not None:
        # The logarithm of the sum of exp(scores): at the largest score a weight is exp(score) divided by that sum.
        axis = np.array([3])
        largest, most = (op.apply(OperationType.REDUCE_MAX, x, axis, keep_dims=True) for x in (wide, weights))
        total = op.apply(OperationType.SUB, largest, op.apply(OperationType.LOG, most))
        sink = op.unsqueeze(op.cast(scoring.sink, wide.dtype), [1, 2])
        share = op.apply(OperationType.SIGMOID, op.apply(OperationType.SUB, total, sink))
        weights = op.apply(OperationType.MUL, weights, share, dims=scores.dims)
    weights = op.cast(weights, scores.dtype)
    if scoring.kept is None:
        return weights
    return op.apply(OperationType.WHERE, scoring.kept, weights, op.number(0, weights.dtype), dims=scores.dims)


def split_heads(op: NodeBuilder, x: Value, heads: int) -> Value:
    """Reshape and transpose [batch, steps, heads * width] to [batch, heads, steps, width]."""
    return op.transpose(as_heads(op, x, heads), HEADS_FIRST)


def as_heads(op: NodeBuilder, x: Value, heads: Number) -> Value:
    """Reshape [batch, steps, heads * width] to [batch, steps, heads, width]."""
    if x.rank != 3:
        refuse(f"{x} is no tensor [batch, steps, hidden]")
    batch, steps, width = x.dims
    if not isinstance(width, int) or not isinstance(heads, int) or heads < 1 or width % heads:
        refuse(f"{x} is not of {heads} heads side by side")
    return op.reshape(x, (batch, steps, heads, width // heads))


def merge_heads(op: NodeBuilder, y: Value) -> Value:
    """Transpose and reshape [batch, heads, steps, width] to [batch, steps, heads * width]."""
    batch, heads, steps, width = y.dims
    return op.reshape(op.transpose(y, HEADS_FIRST), (batch, steps, heads * width))


def append_steps(op: NodeBuilder, past: Value, now: Value) -> Value:
    """Concatenate the steps of the past and the current ones."""
    batch, heads, _, width = now.dims
    steps: Number = past.dims[2] + now.dims[2]
    return op.apply(OperationType.CONCAT, past, now, axis=2, dims=(batch, heads, steps, width))


@onnx_operator("RotaryEmbedding", since=23)
def rotary_embedding(
    op: NodeBuilder,
    x: Value,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Value | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Value:
    """GATHER of sines and cosines, and rotation of pairs of elements by SPLIT, MUL, ADD, SUB and CONCAT."""
    parts = as_heads(op, x, num_heads) if x.rank == 3 else x
    cos, sin = angles(op, cos_cache, sin_cache, position_ids, 1 if x.rank == 4 else 2)
    turned = rotate(op, parts, cos, sin, is_interleaved=bool(interleaved))
    return op.reshape(turned, x.dims) if x.rank == 3 else turned


def angles(op: NodeBuilder, cos: Value, sin: Value, positions: Value | None, heads_at: int) -> tuple[Value, Value]:
    """Return cosines and sines of steps, with a dimension for heads. Without positions there is a row for each step."""

    def rows(part: Value) -> Value:
        picked = part if positions is None else op.apply(OperationType.GATHER, part, positions, np.array(0))
        return op.unsqueeze(picked, [heads_at])

    return op.once(("angles", cos, sin, positions, heads_at), lambda: (rows(cos), rows(sin)))


def rotate(op: NodeBuilder, x: Value, cos: Value, sin: Value, *, is_interleaved: bool) -> Value:
    """Rotate pairs of elements of the last of four dimensions; elements behind those that have an angle stay.

    A pair are neighbours if `is_interleaved`, else two elements that are as far apart as there are angles.
    """
    width, half = x.dims[3], cos.dims[-1]
    if not isinstance(width, int) or not isinstance(half, int):
        refuse(f"the width of its heads {x}, or the number of angles in {cos}, is known only in a run")
    if width < 2 * half:
        refuse(f"{half} angles are for {2 * half} elements, but its heads {x} have {width}")
    rest = []
    if width > 2 * half:
        x, kept = op.apply_to_several(
            OperationType.SPLIT, x, axis=3, output_num=2, size_splits=[2 * half, width - 2 * half]
        )
        rest = [kept]
    if is_interleaved:
        x = op.reshape(x, (*x.dims[:3], half, 2))
        first, second = (
            op.squeeze(part, [4])
            for part in op.apply_to_several(OperationType.SPLIT, x, axis=4, output_num=2, size_splits=[1, 1])
        )
    else:
        first, second = op.apply_to_several(OperationType.SPLIT, x, axis=3, output_num=2, size_splits=[half] * 2)
    dims = first.dims
    new = [
        op.apply(
            kind,
            op.apply(OperationType.MUL, first, a, dims=dims),
            op.apply(OperationType.MUL, second, b, dims=dims),
            dims=dims,
        )
        for kind, a, b in ((OperationType.SUB, cos, sin), (OperationType.ADD, sin, cos))
    ]
    if is_interleaved:
        pairs = op.apply(OperationType.CONCAT, *(op.unsqueeze(part, [4]) for part in new), axis=4)
        new = [op.reshape(pairs, (*dims[:3], 2 * half))]
    return new[0] if len([*new, *rest]) == 1 else op.apply(OperationType.CONCAT, *new, *rest, axis=3)
