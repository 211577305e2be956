"""Samples of every form of each imported ONNX operator: operands, and which of them are constant."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, numpy_helper
from onnx_models import AnyArray


@dataclass(frozen=True)
class Sample:
    """Sample of one node.

    `given` are its operands, None for omitted ones. `constant` has the positions of constant operands; the others are
    inputs.
    """

    op_type: str
    opset: int
    given: tuple[Any, ...]
    constant: frozenset[int] = frozenset()
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    # True if ONNX Runtime lacks this form; onnx's reference evaluator is the oracle then.
    by_reference: bool = False
    domain: str = ""
    atol: float = 1e-5

    def __str__(self) -> str:
        attributes = ",".join(f"{name}={value}" for name, value in self.attributes.items() if np.ndim(value) < 2)
        return f"{self.op_type}-{self.opset}" + (f"[{attributes}]" if len(attributes) < 40 else "")


def _sample(
    op_type: str,
    opset: int,
    *given: Any,
    constant: tuple[int, ...] = (),
    outputs: int = 1,
    by_reference: bool = False,
    **attributes: Any,
) -> Sample:
    return Sample(op_type, opset, given, frozenset(constant), attributes, outputs, by_reference)


def _real(*shape: int, low: float = -2, high: float = 2) -> AnyArray:
    rng = np.random.default_rng(int(np.prod(shape)) + len(shape))
    return rng.uniform(low, high, shape).astype("f4")


def _ints(*shape: int, low: int = 0, high: int = 10, dtype: str = "i8") -> AnyArray:
    return np.random.default_rng(7).integers(low, high, shape).astype(dtype)


def _i64(*values: int) -> AnyArray:
    return np.array(values, np.int64)


_X = _real(2, 3, 4)
_IMAGE = _real(1, 4, 6, 5)
_POSITIVE = _real(2, 3, 4, low=0.1, high=3)
_TRUTH = np.array([[True, False, True]])
_BITS = _real(2, 3) > 0
_QUANT = (np.float32(0.05), np.uint8(7))

_GRU = _real(1, 9, 4), _real(1, 9, 3), _real(1, 18)
_GRU_BOTH = _real(2, 9, 4), _real(2, 9, 3), _real(2, 18), None, _real(2, 3, 3)
_RNN = _real(2, 3, 4), _real(2, 3, 3), _real(2, 6)
_WEIGHTS = _real(1, 12, 4), _real(1, 12, 3), _real(1, 24)
_MATRICES = _ints(2, 3, dtype="u1"), _ints(3, 2, dtype="u1")
_IMAGES = _ints(1, 1, 4, 4, dtype="u1"), _ints(1, 1, 2, 2, dtype="u1")
_OF_ANY = """
    Abs Ceil Cos Erf Exp Floor Identity Neg Relu Round Sigmoid Sign Sin Sinh Cosh Asinh Softplus Softsign Tan Tanh Elu
    Selu LeakyRelu HardSigmoid Celu IsNaN
""".split()  # noqa: SIM905  (one name a line would take a page)
_REDUCTIONS = """
    ReduceMean ReduceMax ReduceMin ReduceProd ReduceSum ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp
""".split()  # noqa: SIM905

SAMPLES = [
    *(_sample(name, 13, _X) for name in _OF_ANY),
    *(_sample(name, 13, _POSITIVE) for name in ("Log", "Sqrt", "Reciprocal")),
    _sample("Acosh", 13, _POSITIVE + 1),
    _sample("Atanh", 13, _X / 3),
    _sample("Celu", 12, _X, alpha=0.5),
    _sample("HardSwish", 14, _X * 3),
    _sample("HardSigmoid", 14, _X * 3, alpha=1 / 6),
    _sample("Mish", 18, _X),
    _sample("Gelu", 20, _X),
    _sample("Gelu", 20, _X, approximate="tanh"),
    _sample("Swish", 24, _X, by_reference=True),
    _sample("Swish", 24, _X, alpha=0.5, by_reference=True),
    _sample("PRelu", 16, _IMAGE, _real(4, 1, 1), constant=(1,)),
    _sample("PRelu", 16, _X, _real(4), constant=(1,)),
    _sample("IsInf", 10, np.array([1, np.inf, -np.inf], "f4")),
    _sample("IsInf", 10, np.array([1, np.inf, -np.inf], "f4"), detect_negative=0),
    _sample("BitwiseNot", 18, _ints(2, 3, low=-5)),
    _sample("Cast", 13, _X, to=TensorProto.INT32),
    _sample("CastLike", 15, _X, _i64(1), constant=(1,)),
    _sample("Clip", 10, _X, min=-0.5, max=1.0),
    _sample("Clip", 13, _X, np.float32(-1), np.float32(0.5), constant=(1, 2)),
    _sample("Clip", 13, _X, None, np.array(0.3, "f4")),
    _sample("Dropout", 10, _X),
    _sample("Dropout", 13, _X),
    *(_sample(name, 14, _X, _real(3, 1)) for name in ("Add", "Sub", "Mul")),
    _sample("Div", 14, _X, _POSITIVE),
    _sample("Div", 14, _ints(2, 3, low=-9), _ints(2, 3, low=1)),
    *(_sample(name, 13, _X, _real(3, 4), _real(4)) for name in ("Sum", "Max", "Min", "Mean")),
    _sample("Pow", 15, _POSITIVE, _X),
    _sample("Pow", 15, _X, _i64(2), constant=(1,)),
    _sample("Mod", 13, _ints(2, 3, low=-9), _i64(4)),
    _sample("Mod", 13, _X, _POSITIVE, fmod=1),
    _sample("BitShift", 11, _ints(2, 3, dtype="u4"), _ints(2, 3, high=4, dtype="u4"), direction="LEFT"),
    _sample("BitShift", 11, _ints(2, 3, high=99, dtype="u4"), _ints(2, 3, high=4, dtype="u4"), direction="RIGHT"),
    *(_sample(name, 13, _X, _real(3, 4)) for name in ("Equal", "Greater", "Less")),
    *(_sample(name, 16, _X, _real(3, 4)) for name in ("GreaterOrEqual", "LessOrEqual")),
    *(_sample(name, 7, _BITS, _TRUTH) for name in ("And", "Or", "Xor")),
    _sample("Not", 7, _BITS),
    _sample("Where", 16, _BITS, _real(2, 3), _real(3)),
    _sample("MatMul", 13, _X, _real(4, 5)),
    _sample("MatMul", 13, _real(4), _real(2, 4, 3)),
    _sample("Einsum", 12, _X, equation="ijk -> kij"),
    _sample("Einsum", 12, _real(2, 3, 4), equation="...i"),
    _sample("Einsum", 12, _real(2, 3, 4, 5), _real(2, 6, 4, 5), equation="bihd,bjhd->bhij"),
    _sample("Einsum", 12, _real(2, 3, 4, 5), _real(4, 5, 6), equation="bihd,hde->bie"),
    _sample("Einsum", 12, _real(2, 3, 4), _real(3, 4, 5, 6), equation="...ij,ijkl->...kl"),
    _sample("Einsum", 12, _real(3), _real(4), equation="i,j"),
    _sample("Einsum", 12, _real(3, 4), _real(3, 5), equation="ij,ik->i"),
    _sample("Einsum", 12, _real(2, 3), _real(3, 4), _real(4, 2), equation="ij,jk,ki->"),
    _sample("Gemm", 13, _real(3, 4), _real(4, 5), _real(5), constant=(1, 2)),
    _sample("Gemm", 13, _real(4, 3), _real(5, 4), _real(3, 5), transA=1, transB=1, alpha=0.5, beta=2.0),
    _sample(
        "LSTM",
        14,
        _real(3, 2, 4),
        _real(1, 12, 4),
        _real(1, 12, 3),
        _real(1, 24),
        constant=(1, 2, 3),
        outputs=3,
        hidden_size=3,
        direction="reverse",
    ),
    _sample(
        "Conv", 11, _IMAGE, _real(6, 2, 3, 3), _real(6), constant=(1, 2), group=2, pads=[1, 0, 2, 1], strides=[2, 1]
    ),
    _sample("Conv", 11, _real(1, 2, 9), _real(3, 2, 3), constant=(1,), strides=[2], auto_pad="SAME_LOWER"),
    _sample("Conv", 11, _real(1, 2, 9), _real(3, 2, 3), constant=(1,), dilations=[2], pads=[2, 1]),
    _sample(
        "ConvTranspose",
        11,
        _IMAGE,
        _real(4, 3, 3, 2),
        _real(6),
        constant=(1, 2),
        group=2,
        strides=[2, 2],
        output_padding=[1, 0],
    ),
    _sample("ConvTranspose", 11, _real(1, 2, 5), _real(2, 3, 3), constant=(1,), strides=[2], pads=[1, 1]),
    _sample("MaxPool", 12, _IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], ceil_mode=1),
    _sample("MaxPool", 12, _real(1, 2, 9), kernel_shape=[3], auto_pad="SAME_UPPER"),
    _sample("AveragePool", 11, _IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    _sample("AveragePool", 11, _real(1, 2, 9), kernel_shape=[3], strides=[2], pads=[1, 1]),
    *(_sample(name, 7, x) for name in ("GlobalAveragePool", "GlobalMaxPool") for x in (_IMAGE, _real(1, 2, 9))),
    _sample("BatchNormalization", 9, _IMAGE, *(_real(4, low=0.5) for _ in range(4)), constant=(1, 2, 3, 4)),
    _sample("BatchNormalization", 15, _real(2, 3, 5), *(_real(3, low=0.5) for _ in range(4)), constant=(1, 2, 3, 4)),
    _sample("InstanceNormalization", 7, _IMAGE, _real(4), _real(4), constant=(1, 2)),
    _sample("LayerNormalization", 17, _X, _real(4), _real(4), constant=(1, 2)),
    _sample("LayerNormalization", 17, _X, _real(2, 3, 4), constant=(1,), axis=0),
    _sample("LRN", 13, _IMAGE, size=3, alpha=0.1, bias=2.0),
    _sample("LpNormalization", 13, _X, axis=1),
    _sample("LpNormalization", 13, _X, axis=1, p=1),
    *(_sample(name, 11, _X, axis=1) for name in ("Softmax", "LogSoftmax")),
    *(_sample(name, 13, _X, axis=1) for name in ("Softmax", "LogSoftmax")),
    _sample("Hardmax", 13, _X, axis=1),
    *(_sample(name, 11, _POSITIVE, axes=[0, 2], keepdims=0) for name in _REDUCTIONS),
    *(_sample(name, 18, _POSITIVE, _i64(-1), constant=(1,)) for name in _REDUCTIONS),
    _sample("Reshape", 13, _X, _i64(0, -1), constant=(1,)),
    _sample("Reshape", 13, _X, _i64(4, 6)),
    _sample("Transpose", 13, _X, perm=[2, 0, 1]),
    _sample("Flatten", 13, _X, axis=2),
    _sample("Squeeze", 11, _real(2, 1, 3), axes=[1]),
    _sample("Squeeze", 13, _real(2, 1, 3), _i64(1), constant=(1,)),
    _sample("Unsqueeze", 11, _X, axes=[0, 4]),
    _sample("Unsqueeze", 13, _X, _i64(0, -1), constant=(1,)),
    _sample("Concat", 13, _X, _X, axis=1),
    _sample("Split", 11, _X, axis=2, split=[1, 3], outputs=2),
    _sample("Split", 13, _X, _i64(1, 2), constant=(1,), axis=1, outputs=2),
    _sample("Split", 18, _real(2, 5), axis=1, num_outputs=2, outputs=2),
    _sample("Slice", 9, _X, starts=[1, -3], ends=[9, -1], axes=[0, 2]),
    _sample("Slice", 13, _X, _i64(3, 0), _i64(-9, 2), _i64(2, 1), _i64(-2, 1), constant=(1, 2, 3, 4)),
    _sample("Slice", 13, _X, _i64(1), _i64(3), _i64(2), constant=(3,)),
    _sample("Shape", 13, _X),
    _sample("Shape", 15, _X, start=1, end=-1),
    _sample("Size", 13, _X),
    _sample("Expand", 13, _real(3, 1), _i64(2, 1, 4), constant=(1,)),
    _sample("Expand", 13, _real(3, 1), _i64(2, 3, 4)),
    _sample("Tile", 13, _X, _i64(1, 2, 1), constant=(1,)),
    _sample("Pad", 10, _X, pads=[0, 1, 2, 1, 0, 0], value=1.5),
    _sample("Pad", 13, _X, _i64(0, 1, -2, 1, 0, 0), np.float32(2), constant=(1, 2)),
    _sample("Pad", 13, _X, _i64(0, 1, 2, 0, 1, 1), constant=(1,), mode="reflect"),
    _sample("Pad", 13, _X, _i64(0, 2, 1, 0, 1, 3), constant=(1,), mode="edge"),
    _sample("Pad", 19, _X, _i64(0, 2, 1, 0, 1, 3), constant=(1,), mode="wrap"),
    _sample("Pad", 13, _X, _i64(0, 1, 1, 0, 1, 1)),
    _sample("Trilu", 14, _X, upper=0),
    _sample("Trilu", 14, _X, np.array(-1, "i8"), upper=0),
    _sample("Gather", 13, _X, _i64(0, -1), axis=1),
    _sample("Einsum", 12, _real(2, 3, 4), _real(2, 4, 5), equation="bij,bjk->bik"),
    _sample("Einsum", 12, _real(2, 3, 4), _real(4, 3), equation="hij,ji"),
    _sample("Einsum", 12, _real(2, 3), _real(4), equation="i j, k -> k i j"),
    _sample("Einsum", 12, _real(2, 1, 3, 4), _real(2, 5, 4, 6), equation="...ij,...jk->...ik"),
    _sample("Einsum", 12, _real(2, 3, 4), _real(4, 2, 5), equation="abc,cae->be"),
    _sample("Einsum", 12, _real(2, 3), _real(3, 4), _real(4, 2), equation="ij,jk,kl->il"),
    _sample("Einsum", 12, _real(3, 3, 2), equation="iij->j"),
    _sample("Einsum", 12, _real(3), _real(3), equation="i,i"),
    _sample("GRU", 14, _real(5, 3, 4), *_GRU, constant=(1, 2, 3), outputs=2, hidden_size=3),
    _sample(
        "GRU",
        14,
        _real(5, 3, 4),
        *_GRU_BOTH,
        constant=(1, 2, 3),
        outputs=2,
        hidden_size=3,
        direction="bidirectional",
        linear_before_reset=1,
    ),
    _sample("RNN", 14, _real(5, 3, 4), *(part[:1] for part in _RNN), constant=(1, 2, 3), outputs=2, hidden_size=3),
    _sample(
        "RNN",
        14,
        _real(5, 3, 4),
        *_RNN,
        constant=(1, 2, 3),
        outputs=2,
        hidden_size=3,
        direction="bidirectional",
        activations=["Relu", "Sigmoid"],
    ),
    _sample("GatherND", 13, _X, _i64(0, 2, 1, -1).reshape(2, 2)),
    _sample("GatherElements", 13, _X, _ints(2, 1, 4, low=-3, high=3), axis=1),
    _sample("ScatterND", 16, _X, _i64(0, 2, 1, -1).reshape(2, 2), _real(2, 4)),
    _sample("ScatterND", 16, _X, _i64(0, 2, 0, 2).reshape(2, 2), _real(2, 4), reduction="add"),
    _sample("ScatterElements", 16, _X, _ints(1, 3, 4, high=2), _real(1, 3, 4)),
    _sample("Scatter", 10, _X, _ints(1, 3, 4, high=2), _real(1, 3, 4)),
    _sample("OneHot", 11, _i64(0, -1, 7, 2), np.array(3), np.array([0.5, 2], "f4")),
    _sample("TopK", 9, _X, k=2, outputs=2),
    _sample("TopK", 11, _X, _i64(2), constant=(1,), largest=0, axis=1, outputs=2),
    *(_sample(name, 13, _X, axis=1, keepdims=0) for name in ("ArgMax", "ArgMin")),
    _sample("ArgMax", 13, _ints(3, 5, high=3, dtype="i4"), axis=1, select_last_index=1),
    _sample("CumSum", 14, _X, np.array(1), constant=(1,), reverse=1, exclusive=1),
    _sample("Constant", 13, value=numpy_helper.from_array(_X)),
    _sample("ConstantOfShape", 20, _i64(2, 3), value=numpy_helper.from_array(_i64(5))),
    _sample("Range", 11, np.array(2), np.array(9), np.array(1), constant=(2,)),
    _sample("EyeLike", 9, _real(3, 4), k=1),
    _sample("DepthToSpace", 10, _IMAGE, blocksize=2),
    _sample("DepthToSpace", 13, _IMAGE, blocksize=2, mode="CRD"),
    _sample("SpaceToDepth", 13, _real(1, 2, 4, 6), blocksize=2),
    _sample("Upsample", 7, _IMAGE, scales=[1.0, 1.0, 2.0, 3.0]),
    _sample("Upsample", 9, _IMAGE, np.array([1, 1, 2, 2], "f4"), constant=(1,), mode="linear"),
    _sample("Resize", 10, _IMAGE, np.array([1, 1, 2, 0.5], "f4"), constant=(1,)),
    _sample("Resize", 13, _IMAGE, None, np.array([1, 1, 2, 2], "f4"), constant=(2,), mode="linear"),
    _sample("Resize", 13, _IMAGE, None, None, _i64(1, 4, 1, 7), constant=(3,), mode="linear"),
    _sample("Resize", 13, _IMAGE, None, None, _i64(1, 4, 9, 7), constant=(3,), mode="cubic"),
    _sample("Resize", 13, _IMAGE, None, None, _i64(1, 4, 3, 7), constant=(3,), mode="nearest"),
    _sample("QuantizeLinear", 13, _X, *_QUANT, constant=(1, 2)),
    _sample("DequantizeLinear", 13, _ints(2, 3, dtype="u1"), *_QUANT, constant=(1, 2)),
    _sample("MatMulInteger", 10, *_MATRICES, np.uint8(9), constant=(2,)),
    _sample("ConvInteger", 10, *_IMAGES, np.uint8(3), constant=(2,)),
    _sample("ConvInteger", 10, *_IMAGES, np.uint8(3), constant=(1, 2)),
    # With so many channels that FLOAT32 can't represent the sums.
    _sample(
        "ConvInteger",
        10,
        _ints(1, 64, 4, 4, high=256, dtype="u1"),
        _ints(2, 64, 3, 3, high=256, dtype="u1"),
        constant=(1,),
    ),
    _sample(
        "QLinearMatMul",
        10,
        _ints(2, 3, dtype="u1"),
        *_QUANT,
        _ints(3, 2, dtype="u1"),
        *_QUANT,
        *_QUANT,
        constant=(1, 2, 3, 4, 5, 6, 7),
    ),
    _sample(
        "QLinearConv",
        10,
        _ints(1, 1, 4, 4, dtype="u1"),
        *_QUANT,
        _ints(1, 1, 2, 2, dtype="u1"),
        *_QUANT,
        *_QUANT,
        constant=(1, 2, 3, 4, 5, 6, 7),
    ),
    # One-dimensional, with a scale per output channel.
    _sample(
        "QLinearConv",
        10,
        _ints(2, 4, 9, dtype="u1"),
        *_QUANT,
        _ints(6, 4, 3, low=-9, high=9, dtype="i1"),
        np.linspace(0.01, 0.06, 6, dtype="f4"),
        np.zeros(6, "i1"),
        *_QUANT,
        constant=(1, 2, 3, 4, 5, 6, 7),
        pads=[2, 1],
        strides=[2],
    ),
]

# ---- samples whose shapes are known only at run time
# Sizes (then scales) of Resize, the positions of its constant operands, and its attributes.
_SIZES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 4, 9, 7), (), {"mode": "linear", "coordinate_transformation_mode": "align_corners"}),
    ((1, 4, 2, 1), (), {"mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"}),
    ((9, 3), (), {"mode": "linear", "axes": [2, 3]}),
    ((9, 3), (3,), {"mode": "cubic", "axes": [2, 3]}),
    ((9, 13), (3,), {"mode": "nearest", "axes": [2, 3], "nearest_mode": "ceil"}),
    ((3, 7), (), {"mode": "nearest", "axes": [3, 2], "coordinate_transformation_mode": "half_pixel_symmetric"}),
]
_SCALES: list[tuple[AnyArray, tuple[float, ...], tuple[int, ...], dict[str, Any]]] = [
    (_IMAGE, (1, 1, 2, 3), (2,), {"mode": "linear"}),
    (_IMAGE, (1, 1, 1.5, 0.6), (2,), {"mode": "linear", "coordinate_transformation_mode": "asymmetric"}),
    (_IMAGE, (1, 1, 1.5, 2), (), {"mode": "nearest", "nearest_mode": "round_prefer_ceil"}),
    (_real(7), (1.7,), (2,), {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}),
]
OF_ANY_SIZE = [
    _sample("Einsum", 12, _real(2, 3, 4, 5), _real(2, 3, 6, 5), equation="bhid,bhjd->bhij"),
    _sample("GatherElements", 13, _X, _ints(2, 1, 4, low=-3, high=3), axis=1),
    _sample("GatherElements", 13, _real(7), _ints(4, low=-3, high=3)),
    _sample("ScatterElements", 16, _X, _ints(1, 3, 4, high=2), _real(1, 3, 4)),
    _sample("ScatterElements", 16, _X, _ints(1, 3, 4, high=2), _real(1, 3, 4), reduction="add"),
    _sample("ScatterND", 16, _X, _i64(0, 2, 1, -1).reshape(2, 2), _real(2, 4), constant=(1,)),
    _sample("Resize", 13, _IMAGE, None, np.array([1, 1, 2, 2], "f4"), constant=(2,), mode="nearest"),
    _sample(
        "Resize",
        13,
        _IMAGE,
        None,
        np.array([1, 1, 3, 3], "f4"),
        constant=(2,),
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    ),
    _sample("Resize", 18, _IMAGE, None, None, _i64(9, 7), constant=(3,), mode="linear", axes=[2, 3]),
    *(_sample("Resize", 19, _IMAGE, None, None, _i64(*sizes), constant=known, **how) for sizes, known, how in _SIZES),
    *(_sample("Resize", 13, x, None, np.array(by, "f4"), constant=known, **how) for x, by, known, how in _SCALES),
    _sample("Flatten", 13, _real(2, 3, 4, 5), axis=2),
    _sample("Softmax", 11, _X, axis=1),
    _sample("Split", 13, _X, _i64(1, 3), axis=-1, outputs=2),
    _sample("Slice", 13, _X, _i64(3, 0), _i64(-9, 2), _i64(2, 1), _i64(-2, 1), constant=(3,)),
    *(_sample("Pad", 13, _X, _i64(0, 1, 2, 0, 1, 1), mode=mode) for mode in ("constant", "reflect", "edge")),
    *(_sample("Pad", 13, _X, _i64(0, 1, 2, 0, 1, 1), constant=(1,), mode=mode) for mode in ("reflect", "edge")),
    *(
        _sample("Pad", 19, _X, _i64(5, 2, 0, 7), None, _i64(2, 0), constant=(3,), mode=mode)
        for mode in ("edge", "wrap")
    ),
    _sample("Pad", 19, _X, _i64(1, 2, 0, 7), np.float32(3), _i64(2, 0), constant=(3,)),
    _sample("Pad", 19, _ints(2, 3), _i64(1, 2, 0, 1), np.int64(2**40 + 1), constant=(1, 2)),
    *(_sample("CumSum", 14, _X, np.array(1), constant=(1,), reverse=way // 2, exclusive=way % 2) for way in range(4)),
    _sample("CumSum", 14, _ints(2, 5), np.array(-1), constant=(1,)),
    *(_sample("Range", 11, *map(np.array, numbers)) for numbers in ((2, 9, 3), (9, 2, -3), (2, 9, 1))),
    _sample("Range", 11, *map(np.float32, (0.5, 4, 0.75))),
    _sample("EyeLike", 9, _real(3, 4), k=1),
    _sample("EyeLike", 9, _real(4, 3), k=-1, dtype=7),
    _sample("Trilu", 14, _X, _i64(-1), constant=(1,), upper=0),
    _sample("Trilu", 14, _X, np.array(1, "i8"), upper=1),
    _sample("Trilu", 14, _X),
    _sample("LSTM", 14, _real(5, 3, 4), *_WEIGHTS, constant=(1, 2, 3), outputs=3, hidden_size=3),
    _sample("TopK", 13, _X, _i64(2), constant=(1,), outputs=2),
]
