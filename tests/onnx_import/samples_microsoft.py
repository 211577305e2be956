"""Samples of ONNX Runtime's own operators, family by family."""

from typing import Any

import numpy as np
from onnx_models import AnyArray
from ort_tools import MICROSOFT
from samples import Sample


def real(*shape: int) -> AnyArray:
    return np.random.default_rng(sum(shape) + len(shape)).uniform(-2, 2, shape).astype("f4")


def ints(*shape: int, low: int = 0, high: int = 10, dtype: str = "i8") -> AnyArray:
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(dtype)


_QUANT = (np.float32(0.05), np.uint8(120))
_SIGNED = (np.float32(0.05), np.int8(-3))
_BYTES, _OTHER_BYTES = ints(2, 3, 4, high=256, dtype="u1"), ints(3, 1, high=256, dtype="u1")
_IMAGE = ints(1, 2, 5, 4, high=256, dtype="u1")
_LAST = np.ascontiguousarray(_IMAGE.transpose(0, 2, 3, 1))


def _sample(
    op_type: str, *given: Any, constant: tuple[int, ...] = (), outputs: int = 1, atol: float = 1e-5, **attributes: Any
) -> Sample:
    return Sample(op_type, 17, given, frozenset(constant), attributes, outputs, domain=MICROSOFT, atol=atol)


def _signed(array: Any) -> Any:
    return (array.astype("i2") - 128).astype("i1")


_LINEAR = [
    _sample(name, *operands, constant=(1, 2, 4, 5, 6, 7))
    for name in ("QLinearAdd", "QLinearMul")
    for operands in (
        (_BYTES, *_QUANT, _BYTES[::-1].copy(), np.float32(0.02), np.uint8(0), np.float32(0.1), np.uint8(100)),
        (_BYTES, *_QUANT, _OTHER_BYTES, *_QUANT, *_QUANT),
        (_signed(_BYTES), *_SIGNED, _signed(_OTHER_BYTES), *_SIGNED, np.float32(0.1), np.int8(7)),
    )
]
_UNARY = [
    _sample(name, *operands, constant=(1, 2, 3, 4), **attributes)
    for name, attributes in (
        ("QLinearSigmoid", {}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearLeakyRelu", {}),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}),
        ("QLinearSoftmax", {"axis": 1, "opset": 13}),
        ("QLinearSoftmax", {"axis": 1, "opset": 12}),
    )
    for operands in (
        (_BYTES, *_QUANT, np.float32(1 / 64), np.uint8(0)),
        (_signed(_BYTES), *_SIGNED, np.float32(1 / 64), np.int8(-128)),
    )
]
_POOLED = [
    _sample("QLinearGlobalAveragePool", _IMAGE, *_QUANT, *_QUANT, constant=(1, 2, 3, 4)),
    _sample("QLinearGlobalAveragePool", _LAST, *_QUANT, *_QUANT, constant=(1, 2, 3, 4), channels_last=1),
    _sample("QLinearAveragePool", _IMAGE, *_QUANT, *_QUANT, constant=(1, 2, 3, 4), kernel_shape=[2, 2]),
    _sample(
        "QLinearAveragePool",
        _IMAGE,
        *_QUANT,
        *_QUANT,
        constant=(1, 2, 3, 4),
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        strides=[2, 1],
    ),
    _sample(
        "QLinearAveragePool",
        _LAST,
        *_QUANT,
        *_QUANT,
        constant=(1, 2, 3, 4),
        kernel_shape=[3, 3],
        pads=[1, 1, 1, 1],
        count_include_pad=1,
        channels_last=1,
    ),
]
_CONVOLVED = [
    _sample(
        "QLinearConv",
        image,
        *_QUANT,
        ints(3, 2, 2, 2, low=-128, high=128, dtype="i1"),
        np.array([0.01, 0.02, 0.03], "f4"),
        np.zeros(3, "i1"),
        np.float32(0.4),
        np.uint8(128),
        ints(3, low=-500, high=500, dtype="i4"),
        constant=(1, 2, 3, 4, 5, 6, 7, 8),
        pads=[1, 1, 1, 1],
        channels_last=channels_last,
    )
    for image, channels_last in ((_LAST, 1), (_IMAGE, 0))
]
_MATRIX = ints(5, 3, high=256, dtype="u1")
_WEIGHT, _CHANNELS = ints(3, 4, low=-128, high=128, dtype="i1"), np.array([0.01, 0.02, 0.03, 0.04], "f4")
_BIAS = ints(4, low=-500, high=500, dtype="i4")
_GEMM = [
    _sample("QGemm", _MATRIX, *_QUANT, *weight, *rest, constant=(1, 2, 3, 4, 5, 6, 7, 8), **attributes)
    for weight, rest, attributes in (
        ((_WEIGHT, np.float32(0.02), np.int8(0)), (_BIAS, np.float32(0.3), np.uint8(128)), {}),
        ((_WEIGHT.T.copy(), _CHANNELS, np.zeros(4, "i1")), (_BIAS, np.float32(0.3), np.uint8(128)), {"transB": 1}),
        ((_WEIGHT, _CHANNELS, np.zeros(4, "i1")), (None, np.float32(0.3), np.uint8(128)), {}),
        ((_WEIGHT, np.float32(0.02), np.int8(0)), (_BIAS,), {}),
        ((_WEIGHT, np.float32(0.02), np.int8(0)), (), {"alpha": 0.5}),
    )
]
_PARTS = (_BYTES, *_QUANT, _BYTES[:, :1].copy(), np.float32(0.1), np.uint8(30))
_JOINED = [
    _sample("QLinearConcat", *_QUANT, *_PARTS, constant=(0, 1, 3, 4, 6, 7), axis=1),
    _sample("QLinearWhere", ints(3, 4, high=2, dtype="?"), *_PARTS, *_QUANT, constant=(2, 3, 5, 6, 7, 8)),
]
_REAL = real(2, 5, 3)
_DYNAMIC = [
    _sample("DynamicQuantizeMatMul", _REAL, _WEIGHT, *rest, constant=(1, 2, 3, 4))
    for rest in (
        (np.float32(0.02),),
        (np.float32(0.02), np.int8(3)),
        (_CHANNELS, np.zeros(4, "i1"), real(4)),
        (_CHANNELS, ints(4, low=-9, dtype="i1"), real(4)),
    )
]
_DYNAMIC += [Sample("DynamicQuantizeLinear", 13, (x,), outputs=3) for x in (_REAL, np.abs(_REAL), 0 * _REAL)]
_TO_FLOAT = [
    _sample("MatMulIntegerToFloat", _MATRIX, _WEIGHT, np.float32(0.05), *rest, constant=(1, 3, 4, 5, 6))
    for rest in (
        (np.float32(0.02),),
        (_CHANNELS, np.uint8(120), ints(4, low=-9, dtype="i1")),
        (_CHANNELS, np.uint8(120), None, real(4)),
    )
]
_CONVERTED = [
    _sample("QuantizeLinear", _REAL, *_QUANT, constant=(1, 2)),
    _sample("DequantizeLinear", _BYTES, *_QUANT, constant=(1, 2)),
]
_GATES = (*(ints(2, rows, 12, low=-128, high=128, dtype="i1") for rows in (4, 3)), real(2, 24))
_SCALES = [
    (np.full(shape, 0.01, "f4"), np.zeros(shape, "i1"), np.full(shape, 0.005, "f4"), np.full(shape, point, "i1"))
    for shape, point in ((2, 3), ((2, 12), 0))
]
_LSTM = [
    _sample(
        "DynamicQuantizeLSTM",
        real(5, 2, 4),
        *(part[:count] for part in _GATES),
        None,
        real(count, 2, 3),
        real(count, 2, 3),
        None,
        *(part[:count] for part in scales),
        constant=(1, 2, 3, 8, 9, 10, 11),
        outputs=3,
        # ONNX Runtime rounds the inputs to 8 bits.
        atol=0.03,
        hidden_size=3,
        direction=direction,
    )
    for count, direction in ((1, "forward"), (1, "reverse"), (2, "bidirectional"))
    for scales in _SCALES
]
QUANTIZED = [
    *_LINEAR,
    *_UNARY,
    *_POOLED,
    *_CONVOLVED,
    *_GEMM,
    *_JOINED,
    *_DYNAMIC,
    *_TO_FLOAT,
    *_CONVERTED,
    *_LSTM,
]

_Cases = list[tuple[str, dict[str, Any]]]
_X, _SKIP, _ROW = real(2, 5, 8), real(2, 5, 8)[::-1].copy(), real(8)
_ACTIVATIONS = [
    *(_sample(name, _X) for name in ("Gelu", "FastGelu", "QuickGelu")),
    _sample("QuickGelu", _X, alpha=1.0),
    _sample("FastGelu", _X, _ROW, constant=(1,)),
    _sample("BiasGelu", _X, _ROW, constant=(1,)),
]
_BEHIND_GEMM: _Cases = [
    ("Relu", {}),
    ("Tanh", {}),
    ("Sigmoid", {}),
    ("LeakyRelu", {"activation_alpha": 0.3}),
    ("HardSigmoid", {"activation_alpha": 0.2, "activation_beta": 0.4}),
]
_PRODUCTS = [
    _sample("FusedMatMul", real(2, 3, 4), real(2, 4, 5), alpha=0.5),
    _sample("FusedMatMul", real(2, 4, 3), real(2, 5, 4), transA=1, transB=1),
    _sample("FusedMatMul", real(4, 3), real(5, 4), transA=1, transB=1, alpha=2.0),
    _sample("FusedMatMul", real(4), real(2, 4, 3)),
    *(
        _sample("FusedGemm", real(3, 4), real(5, 4), real(5), constant=(1, 2), transB=1, activation=name, **given)
        for name, given in _BEHIND_GEMM
    ),
]
_BEHIND_CONV: _Cases = [
    ("Relu", {}),
    ("Tanh", {}),
    ("Clip", {"activation_params": [0.0, 6.0]}),
    ("Clip", {"activation_params": [-1.0, 0.5]}),
    ("LeakyRelu", {"activation_params": [0.3]}),
    ("HardSigmoid", {"activation_params": [0.2, 0.4]}),
]
_PICTURE, _TAPS = real(1, 3, 6, 5), real(4, 3, 3, 3)
_CONVOLUTIONS = [
    _sample("FusedConv", _PICTURE, _TAPS, real(4), constant=(1, 2), pads=[1, 1, 1, 1], activation=name, **given)
    for name, given in _BEHIND_CONV
]
_SUMMED = [
    _sample("FusedConv", _PICTURE, _TAPS, real(4), real(1, 4, 4, 3), constant=(1, 2), activation="Relu"),
    _sample("FusedConv", _PICTURE, _TAPS, None, real(1, 4, 4, 3), constant=(1,)),
]
_NORMALIZED = [
    _sample("SkipLayerNormalization", _X, _SKIP, _ROW, _ROW[::-1].copy(), constant=(2, 3)),
    _sample("SkipLayerNormalization", _X, real(5, 8), _ROW, None, _ROW, constant=(2, 4), epsilon=0.1),
    _sample("SkipSimplifiedLayerNormalization", _X, _SKIP, _ROW, constant=(2,), epsilon=1e-5),
    _sample("SkipSimplifiedLayerNormalization", _X, _SKIP, _ROW, _ROW, constant=(2, 3)),
    Sample("SimplifiedLayerNormalization", 17, (_X, _ROW), frozenset({1})),
    Sample("SimplifiedLayerNormalization", 17, (_X, real(5, 8)), frozenset({1}), {"axis": 1, "epsilon": 0.1}),
    Sample("LayerNormalization", 13, (_X, _ROW, _ROW), frozenset({1, 2})),
]
_TOKENS, _TABLE = ints(2, 5, high=9, dtype="i4"), real(9, 8)
_STEPS, _EVERY_BYTE = np.float32(1 / 64), np.uint8(128)
_TABLES = [ints(rows, 8, high=256, dtype="u1") for rows in (9, 7, 2)]
_ROWS = [ints(8, high=256, dtype="u1")] * 2
_MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], "i4")
_EMBEDDED = [
    _sample("EmbedLayerNormalization", *given, constant=(2, 3, 4, 5, 6), outputs=2)
    for given in (
        (_TOKENS, _TOKENS % 2, _TABLE, real(7, 8), real(2, 8), _ROW, _ROW, _MASK),
        (_TOKENS, None, _TABLE, real(7, 8), None, _ROW, _ROW),
        (_TOKENS, None, _TABLE, real(7, 8), None, _ROW, _ROW, None, _TOKENS % 7),
    )
]
_EMBEDDED += [
    _sample(
        "QEmbedLayerNormalization",
        _TOKENS,
        _TOKENS % 2,
        *_TABLES,
        *_ROWS,
        _MASK,
        *[_STEPS] * 5,
        *[_EVERY_BYTE] * 5,
        constant=tuple(at for at in range(2, 18) if at != 7),
        outputs=2,
    )
]
_PROJECTION = real(8, 24), real(24)
_ATTENTION = [
    _sample("Attention", _X, *_PROJECTION, *rest, constant=(1, 2), num_heads=2, **attributes)
    for rest, attributes in (
        ((), {}),
        ((_MASK,), {}),
        ((np.array([3, 5], "i4"),), {}),
        ((np.repeat(_MASK[:, None], 5, 1),), {"scale": 0.7}),
        ((), {"unidirectional": 1}),
        ((None, None, real(2, 2, 5, 5)), {}),
    )
]
_ATTENTION += [
    _sample("Attention", _X, real(8, 20), real(20), constant=(1, 2), num_heads=2, qkv_hidden_sizes=[8, 8, 4]),
    _sample(
        "Attention",
        _X,
        *_PROJECTION,
        None,
        real(2, 2, 2, 3, 4),
        constant=(1, 2),
        outputs=2,
        num_heads=2,
        unidirectional=1,
    ),
    _sample(
        "QAttention",
        ints(2, 5, 8, high=256, dtype="u1"),
        ints(8, 24, low=-128, high=128, dtype="i1"),
        real(24),
        np.float32(0.01),
        np.float32(0.01),
        _MASK,
        np.uint8(128),
        np.int8(0),
        constant=(1, 2, 3, 4, 6, 7),
        num_heads=2,
    ),
    *(
        _sample("MultiHeadAttention", _X, *given, num_heads=2, outputs=outputs)
        for given, outputs in (
            ((real(2, 7, 8), real(2, 7, 8)), 1),
            ((real(2, 5, 8), real(2, 5, 8), None, _MASK), 1),
            ((real(2, 5, 8), real(2, 5, 8), None, None, real(1, 2, 5, 5)), 1),
            ((real(2, 5, 8), real(2, 5, 8), None, None, None, real(2, 2, 3, 4), real(2, 2, 3, 4)), 3),
        )
    ),
    _sample("MultiHeadAttention", _X, _SKIP, _X, real(24), constant=(3,), num_heads=2),
    _sample("MultiHeadAttention", _X, _SKIP, _X, num_heads=2, unidirectional=1, scale=0.2),
]
_ANGLES = real(9, 2), real(9, 2)
_TURNED = [
    _sample("RotaryEmbedding", *given, *_ANGLES, constant=(2, 3), **attributes)
    for given, attributes in (
        ((_X, ints(2, 5, high=9)), {}),
        ((_X, ints(2, 5, high=9)), {"interleaved": 1}),
        ((_X, np.array([3], "i8")), {"interleaved": 1}),
        ((real(2, 3, 5, 4), ints(2, 5, high=9)), {}),
        ((real(2, 3, 5, 6), np.array([2], "i8")), {"num_heads": 3, "rotary_embedding_dim": 4}),
    )
]
_FEW_BITS = [
    _sample("MatMulNBits", real(2, 3, 40), *given, constant=(1, 2, 3, 5), K=40, N=6, block_size=16, bits=bits)
    for bits, given in (
        (4, (ints(6, 3, 8, high=256, dtype="u1"), real(6, 3))),
        (4, (ints(6, 3, 8, high=256, dtype="u1"), real(18), ints(6, 2, high=256, dtype="u1"))),
        (4, (ints(6, 3, 8, high=256, dtype="u1"), real(18), real(6, 3), None, real(6))),
        (8, (ints(6, 3, 16, high=256, dtype="u1"), real(6, 3))),
    )
]
# Whole blocks, which a device may keep as they are.
_FEW_BITS += [
    _sample("MatMulNBits", real(2, 3, 48), *given, constant=(1, 2, 3, 4), K=48, N=6, block_size=16, bits=bits)
    for bits, given in (
        (4, (ints(6, 3, 8, high=256, dtype="u1"), real(18))),
        (4, (ints(6, 3, 8, high=256, dtype="u1"), real(18), ints(6, 2, high=256, dtype="u1"))),
        (8, (ints(6, 3, 16, high=256, dtype="u1"), real(18), ints(6, 3, high=256, dtype="u1"))),
        # Columns of a block in several places.
        (4, (ints(6, 3, 8, high=256, dtype="u1"), real(18), None, np.arange(48, dtype="i4")[::-1] * 5 % 48 // 16)),
    )
]
_LAST_POOLED = [_sample("NhwcMaxPool", array, kernel_shape=[2, 2], strides=[2, 1]) for array in (_LAST, _signed(_LAST))]
FUSED = [
    *_TURNED,
    *_FEW_BITS,
    *_LAST_POOLED,
    *_ACTIVATIONS,
    *_PRODUCTS,
    *_CONVOLUTIONS,
    *_SUMMED,
    *_NORMALIZED,
    *_EMBEDDED,
    *_ATTENTION,
]

# Samples with texts, whose number and lengths are known only at run time.
OF_TEXTS = [*_DYNAMIC[:4], *_NORMALIZED[:4], *_EMBEDDED, *_ATTENTION, *_TURNED, *_FEW_BITS]


# Dimensions of an operand for the number of texts and for their length, by its rank.
TEXTS_AND_STEPS = {1: (0, None), 2: (0, 1), 3: (0, 1), 4: (0, 2), 5: (1, 3)}
