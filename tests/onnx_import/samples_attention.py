"""Samples of attention, and of what decoders have around it: caches, rotation by positions, norms."""

from typing import Any

import numpy as np
from onnx_models import AnyArray
from ort_tools import MICROSOFT
from samples import Sample

_BATCH, _STEPS, _PAST, _HEADS, _GROUPS, _WIDTH = 2, 3, 5, 4, 2, 8
_ALL = _PAST + _STEPS


def _real(*shape: int, dtype: str = "f4") -> AnyArray:
    return np.random.default_rng(sum(shape) + len(shape)).uniform(-2, 2, shape).astype(dtype)


def _bits(*shape: int) -> AnyArray:
    return np.random.default_rng(sum(shape)).uniform(size=shape) < 0.7


def _sample(
    op_type: str, opset: int, *given: Any, constant: tuple[int, ...] = (), outputs: int = 1, **attributes: Any
) -> Sample:
    # ONNX Runtime has these forms for FLOAT and FLOAT16, and masks only as large as they can be.
    mask = given[3] if op_type == "Attention" and len(given) > 3 else None
    is_smaller = mask is not None and (mask.shape[-1] == 2 or mask.shape[-2:] == (1, _STEPS))
    by_reference = given[0].dtype == np.float64 or opset == 25 or is_smaller
    atol = 4e-3 if given[0].dtype == np.float16 else 1e-5
    return Sample(op_type, opset, given, frozenset(constant), attributes, outputs, by_reference, atol=atol)


def _flat(steps: int = _STEPS, heads: int = _GROUPS, dtype: str = "f4") -> AnyArray:
    return _real(_BATCH, steps, heads * _WIDTH, dtype=dtype)


def _split(steps: int = _STEPS, heads: int = _GROUPS, dtype: str = "f4") -> AnyArray:
    return _real(_BATCH, heads, steps, _WIDTH, dtype=dtype)


_OF_HEADS: dict[str, Any] = {"q_num_heads": _HEADS, "kv_num_heads": _GROUPS}
_PAIR = (_split(_PAST), _split(_PAST)[::-1].copy())
_QKV = (_split(heads=_HEADS), _split(), _split()[::-1].copy())
_FLAT_QKV = (_flat(heads=_HEADS), _flat(), _flat()[::-1].copy())
_HIDING = np.where(_bits(_STEPS, _STEPS), 0, -np.inf).astype("f4")
_NOTHING_SEEN = _bits(_STEPS, _STEPS) & (np.arange(_STEPS) != 1)[:, None]

_OF_HEADS_SPLIT = [
    _sample("Attention", opset, *_QKV, *rest, **attributes)
    for opset in (23, 24)
    for rest, attributes in (
        ((), {}),
        ((), {"is_causal": 1, "scale": 0.3}),
        ((_bits(_STEPS, _STEPS),), {"softcap": 2.0}),
        ((_bits(_STEPS, _STEPS),), {"is_causal": 1}),
        ((_NOTHING_SEEN,), {}),
        ((_HIDING,), {"is_causal": 1}),
        ((_real(_STEPS, _STEPS),), {"softcap": 0.5, "is_causal": 1}),
        ((_real(_HEADS, _STEPS, _STEPS),), {}),
        ((_bits(_BATCH, 1, _STEPS, _STEPS),), {}),
        ((_real(_BATCH, _HEADS, 1, _STEPS),), {}),
        ((), {"softmax_precision": 11}),
    )
]
_SCORES = [
    _sample("Attention", 24, *_QKV, mask, outputs=4, qk_matmul_output_mode=mode, softcap=1.5, is_causal=is_causal)
    for mode, mask, is_causal in (
        (0, _bits(_STEPS, _STEPS), 0),
        (1, _real(_STEPS, _STEPS), 1),
        (2, _real(_BATCH, 1, _STEPS, _STEPS), 0),
        (3, _NOTHING_SEEN, 1),
    )
]
_WITH_PAST = [
    _sample("Attention", opset, *qkv, mask, *_PAIR, outputs=3, is_causal=is_causal, **heads)
    for opset in (23, 24)
    for qkv, heads in ((_FLAT_QKV, _OF_HEADS), (_QKV, {}))
    for mask, is_causal in ((None, 1), (_bits(_STEPS, _ALL), 0), (_real(_BATCH, 1, _STEPS, _ALL), 1))
]
_OTHER_LENGTHS = [
    _sample("Attention", 23, _split(2, _HEADS), _split(7), _split(7), is_causal=1),
    _sample("Attention", 23, _split(6, _HEADS), _split(4), _split(4), is_causal=1),
    _sample("Attention", 23, _split(2, _HEADS), _split(7), _split(7), None, *_PAIR, outputs=3, is_causal=1),
    _sample("Attention", 23, _split(3, _HEADS), _split(3), _real(_BATCH, _GROUPS, 3, 5)),
    _sample("Attention", 23, _split(1, 1), _split(1, 1), _split(1, 1), is_causal=1),
    _sample("Attention", 24, *_QKV, _bits(_STEPS, 2)),
    _sample("Attention", 24, *_QKV, _real(_STEPS, 2)),
]
_OF_A_BUFFER = [
    _sample("Attention", 24, _split(2, 4), _split(9), _split(9), mask, None, None, np.array([3, 9]), is_causal=causal)
    for mask, causal in ((None, 0), (None, 1), (_bits(2, 9), 1), (_real(2, 9), 0))
]
_OTHER_TYPES = [
    _sample("Attention", 23, *(part.astype(dtype) for part in _QKV), mask, is_causal=1)
    for dtype in ("f2", "f8")
    for mask in (None, _bits(_STEPS, _STEPS), _real(_STEPS, _STEPS).astype(dtype))
]
_WINDOWS = [
    _sample("Attention", 25, *_QKV, None, *_PAIR, outputs=3, is_causal=1, left_window_size=2),
    _sample("Attention", 25, *_QKV, left_window_size=1, right_window_size=1),
    _sample("Attention", 25, *_QKV, _bits(_STEPS, _STEPS), right_window_size=0),
]
_ANGLES = _real(9, _WIDTH // 2), _real(9, _WIDTH // 2)[::-1].copy()
_PLACES = np.array([[4, 0, 8], [1, 2, 3]])
_TURNED = [
    _sample("RotaryEmbedding", 23, *given, constant=(1, 2) if len(given) > 3 else (), **attributes)
    for given, attributes in (
        ((_QKV[0], *_ANGLES, _PLACES), {}),
        ((_QKV[0], *_ANGLES, _PLACES), {"interleaved": 1}),
        ((_FLAT_QKV[0], *_ANGLES, _PLACES), {"num_heads": _HEADS}),
        ((_FLAT_QKV[0], _ANGLES[0][:, :2], _ANGLES[1][:, :2], _PLACES), {"num_heads": 4, "rotary_embedding_dim": 4}),
        ((_QKV[0], _real(2, 3, 4), _real(2, 3, 4)), {"interleaved": 1}),
        ((_FLAT_QKV[0], _real(2, 3, 4), _real(2, 3, 4)), {"num_heads": _HEADS}),
        ((_QKV[0].astype("f2"), *(part.astype("f2") for part in _ANGLES), _PLACES), {}),
    )
]
_NORMED = [
    _sample("RMSNormalization", 23, _FLAT_QKV[0], _real(3, 32), constant=(1,), axis=1, epsilon=0.1),
    *(
        # 300, because FLOAT16 has no place for the squares.
        _sample("RMSNormalization", 23, 300 * _FLAT_QKV[0].astype(dtype), _real(32, dtype=dtype), constant=(1,))
        for dtype in ("f2", "f4", "f8")
    ),
]
_WRITTEN = [
    _sample("TensorScatter", 24, *given, **attributes)
    for given, attributes in (
        ((_split(9), _split()), {}),
        ((_split(9), _split(), np.array([6, 2])), {}),
        ((_split(9), _split(), np.array([8, 16])), {"mode": "circular"}),
        ((_flat(9), _flat(), np.array([0, 6])), {"axis": 1}),
        ((_split(9), _split(9), np.array([4, 0])), {"mode": "circular"}),
        ((_real(2, 3, 9), _real(2, 3, 2), np.array([1, 7])), {"axis": -1}),
        ((_split(9)[:1], _split()[:1], np.array([4])), {"axis": 2}),
        ((_split(9, dtype="f2"), _split(dtype="f2"), np.array([6, 2])), {}),
    )
]
# ONNX Runtime's own operators in FLOAT16.
_X, _ROW = 300 * _real(2, 3, 32, dtype="f2"), _real(32, dtype="f2")
_SEEN = np.array([[1] * 6 + [0] * 2, [1] * 8], "i4")
_HALVES = [
    Sample(op_type, 21, given, frozenset(constant), attributes, outputs, domain=domain, atol=4e-3)
    for op_type, domain, given, constant, outputs, attributes in (
        ("SimplifiedLayerNormalization", "", (_X, _ROW), [1], 1, {}),
        ("SkipSimplifiedLayerNormalization", MICROSOFT, (_X, _X / 2, _ROW, _ROW), [2, 3], 1, {}),
        ("RotaryEmbedding", MICROSOFT, (_X / 300, _PLACES, *(x.astype("f2") for x in _ANGLES)), [2, 3], 1, {}),
        (
            "MultiHeadAttention",
            MICROSOFT,
            (*[_X / 300] * 3, None, _SEEN, None, *[_real(2, 4, 5, 8, dtype="f2")] * 2),
            [],
            3,
            {"num_heads": 4},
        ),
        (
            "MatMulNBits",
            MICROSOFT,
            (_X / 300, np.arange(96, dtype="u1").reshape(6, 2, 8), np.full(12, 0.02, "f2")),
            [1, 2],
            1,
            {"K": 32, "N": 6, "block_size": 16},
        ),
    )
]
ATTENTION = [
    *_OF_HEADS_SPLIT,
    *_SCORES,
    *_WITH_PAST,
    *_OTHER_LENGTHS,
    *_OF_A_BUFFER,
    *_OTHER_TYPES,
    *_WINDOWS,
    *_TURNED,
    *_NORMED,
    *_WRITTEN,
    *_HALVES,
]

# The kernels of ONNX Runtime rotate heads of this width or more.
_WIDE = 16
_TURNS = _real(20, _WIDE // 2), _real(20, _WIDE // 2)[::-1].copy()


def _grouped(
    lengths: tuple[int, ...],
    steps: int,
    past: int | None,
    *rest: Any,
    dtype: str = "f4",
    is_packed: bool = False,
    **attributes: Any,
) -> Sample:
    """Make a sample whose rows have these lengths after it, with a past of a size, or none."""
    batch = len(lengths)
    q, k, v = (_real(batch, steps, heads * _WIDE, dtype=dtype) for heads in (_HEADS, _GROUPS, _GROUPS))
    given = (np.concatenate([q, k, -v], 2), None, None) if is_packed else (q, k, -v)
    cache = None if past is None else _real(batch, _GROUPS, past, _WIDE, dtype=dtype)
    ends, longest = np.array(lengths, "i4") - 1, np.array(max(lengths), "i4")
    attributes = {"num_heads": _HEADS, "kv_num_heads": _GROUPS, **attributes}
    return Sample(
        "GroupQueryAttention",
        21,
        (*given, cache, cache if cache is None else -cache, ends, longest, *rest),
        frozenset({7, 8}),
        attributes,
        outputs=3,
        domain=MICROSOFT,
        atol=4e-3 if dtype == "f2" else 1e-5,
    )


_AHEAD = np.array([[3, 4, 5, 6], [7, 8, 9, 10]])
GROUPED = [
    # Prompts: without a past, with an empty one, into a buffer; rows that are padded behind their end.
    *(_grouped((4, 4), 4, past) for past in (None, 0, 9)),
    *(_grouped((4, 2), 4, past) for past in (None, 0, 9)),
    _grouped((4, 2), 4, 0, *_TURNS, do_rotary=1),
    _grouped((4, 4), 4, 0, *_TURNS, _AHEAD, do_rotary=1),
    _grouped((4, 2), 4, 9, causal=0),
    # Steps: of rows that are equally long, and of others; in a cache that grows, and in a buffer.
    _grouped((6, 6), 1, 5),
    _grouped((6, 3), 1, 5),
    _grouped((6, 3), 1, 9),
    _grouped((1, 1), 1, 0),
    _grouped((7,), 1, 6),
    _grouped((9,), 4, 5),
    _grouped((9,), 4, 12),
    _grouped((6, 3), 1, 5, *_TURNS, do_rotary=1),
    _grouped((6, 3), 1, 9, *_TURNS, do_rotary=1, rotary_interleaved=1),
    _grouped((6, 3), 1, 9, *_TURNS, np.array([[11], [4]]), do_rotary=1),
    _grouped((9,), 4, 5, *_TURNS, do_rotary=1, is_packed=True),
    _grouped((6, 3), 1, 5, is_packed=True, scale=0.2),
    _grouped((6, 3), 1, 5, dtype="f2"),
    # Scores: softcap, windows, sinks, biases.
    _grouped((6, 3), 1, 5, softcap=0.5),
    *(_grouped((9,), 4, 5, local_window_size=size) for size in (1, 3)),
    _grouped((6, 3), 1, 5, smooth_softmax=1),
    _grouped((6, 3), 1, 5, None, None, None, None, _real(_HEADS)),
    _grouped((6, 3), 1, 5, None, None, None, _real(1, _HEADS, 1, 6)),
    _grouped((6, 3), 1, 9, None, None, None, _real(_BATCH, 1, 1, 6), softcap=0.5),
    # Chunks of a prompt, padded behind their ends.
    _grouped((8, 5), 4, 12, *[None] * 9, np.array([3, 2], "i4")),
    _grouped((8, 5), 4, 12, *_TURNS, *[None] * 7, np.array([4, 2], "i4"), do_rotary=1),
]
