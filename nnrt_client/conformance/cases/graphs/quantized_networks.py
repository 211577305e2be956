"""Quantized networks in INT8 and UINT8, and casts between real and quantized tensors."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from nnrt_client.conformance.cases.graphs.net import QUANTIZED_LAYERS, Made, Net, Network
from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, PadMode
from nnrt_hdi.tensor import QuantParam

N = NodeType
RELU = {"activation_type": ActivationType.RELU}
BOTH = (Format.NHWC, Format.NCHW)


def networks() -> Iterator[Network]:
    """Yield the quantized networks."""
    for dtype in ("i1", "u1"):
        name = np.dtype(dtype).name
        yield Network(f"quantized_cnn_{name}", partial(cnn, dtype), "quantization", QUANTIZED_LAYERS, BOTH)
        yield Network(f"quantized_mlp_{name}", partial(mlp, dtype), "quantization", QUANTIZED_LAYERS)
        yield Network(f"quantized_residual_{name}", partial(residual, dtype), "quantization", QUANTIZED_LAYERS, BOTH)
        for title, cast in (("cast", N.QUANT_DTYPE_CAST), ("cast_v2", N.QUANT_DTYPE_CAST_V2)):
            yield Network(f"{title}_{name}", partial(casts, dtype, cast), "quantization", QUANTIZED_LAYERS)
        yield Network(f"cast_per_channel_{name}", partial(cast_per_channel, dtype), "quantization", QUANTIZED_LAYERS)
        yield Network(f"requantized_{name}", partial(requantized, dtype), "quantization", QUANTIZED_LAYERS)


def _zero(dtype: str, offset: int = 0) -> int:
    """Return a zero point at or near the middle of the type's range."""
    return offset if dtype == "i1" else 128 + offset


def _quantize(net: Net, x: int, dtype: str, scale: float, offset: int = 0, kind: NodeType = N.QUANT_DTYPE_CAST) -> int:
    data_type = DataType.INT8 if dtype == "i1" else DataType.UINT8
    attrs = {"src_t": int(DataType.FLOAT32), "dst_t": int(data_type)}
    attrs |= {"axis": 0} if kind is N.QUANT_DTYPE_CAST_V2 else {}
    return net.op(kind, x, quant=[(scale, _zero(dtype, offset))], data_type=data_type, **attrs)


def _dequantize(net: Net, x: int, kind: NodeType = N.QUANT_DTYPE_CAST) -> int:
    attrs = {"src_t": int(net.spec(x).data_type), "dst_t": int(DataType.FLOAT32)}
    attrs |= {"axis": 0} if kind is N.QUANT_DTYPE_CAST_V2 else {}
    return net.op(kind, x, data_type=DataType.FLOAT32, **attrs)


def _weights(net: Net, dtype: str, *shape: int, per_channel: bool) -> tuple[int, list[float]]:
    """Add symmetric weights in -1..1, with one scale in total or one per output channel."""
    scales = [2.0**-7 * (1 + at % 3 if per_channel else 1) for at in range(shape[0] if per_channel else 1)]
    zero = _zero(dtype)
    elements = net.numbers.integers(zero - 100, zero + 101, shape).astype(dtype)
    weight = net.constant(elements, [QuantParam(scale, zero) for scale in scales])
    return net.laid_out(weight) if len(shape) == 4 else weight, scales


def _bias(net: Net, count: int, scale: float, scales: list[float]) -> int:
    """Add a bias within -0.5..0.5, in steps of input scale times weight scale."""
    reals = net.numbers.reals(-0.5, 0.5, (count,))
    return net.constant(np.rint(reals / (scale * np.resize(scales, count))).astype("i4"))


def _conv(net: Net, x: int, dtype: str, out: int, scale: float, *, per_channel: bool, **attrs: object) -> int:
    spec = net.spec(x)
    weight, scales = _weights(net, dtype, out, 3, 3, spec.shape[spec.channel_axis], per_channel=per_channel)
    bias = _bias(net, out, spec.quant[0].scale, scales)
    merged = {"pad_mode": PadMode.SAME, **attrs}
    return net.op(N.CONV2D_FUSION, x, weight, bias, quant=[(scale, _zero(dtype, -20))], **merged)


def cnn(dtype: str, net: Net) -> Made:
    x = net.input(1, 8, 8, 2)
    y = _quantize(net, x, dtype, 2.0**-6, 3)
    y = _conv(net, y, dtype, 4, 2.0**-4, per_channel=False, **RELU)
    y = net.op(N.MAX_POOL_FUSION, y, kernel_size=(2, 2), strides=(2, 2), quant=[(2.0**-4, _zero(dtype, -20))])
    y = _conv(net, y, dtype, 4, 2.0**-2, per_channel=True)
    y = net.op(N.AVGPOOL_FUSION, y, kernel_size=(4, 4), quant=[(2.0**-3, _zero(dtype))])
    row = net.op(N.RESHAPE, y, net.ints(1, -1))
    return net.graph(_dequantize(net, row), y), [[net.reals(1, 8, 8, 2)], [net.reals(1, 8, 8, 2)]]


def mlp(dtype: str, net: Net) -> Made:
    x = net.input(3, 8)
    y = _quantize(net, x, dtype, 2.0**-6)
    for out in (6, 4):
        weight, scales = _weights(net, dtype, out, net.spec(y).shape[1], per_channel=out == 6)
        bias = _bias(net, out, net.spec(y).quant[0].scale, scales)
        y = net.op(N.FULL_CONNECTION, y, weight, bias, has_bias=True, quant=[(2.0**-4, _zero(dtype, 5))])
    chances = net.op(N.SOFTMAX, y, axis=(-1,), quant=[(2.0**-8, -128 if dtype == "i1" else 0)])
    return net.graph(chances, y), [[net.reals(3, 8)]]


def residual(dtype: str, net: Net) -> Made:
    """Build a residual whose two summands have different parameters."""
    x = net.input(1, 6, 6, 3)
    y = _quantize(net, x, dtype, 2.0**-6)
    z = _conv(net, y, dtype, 3, 2.0**-3, per_channel=True)
    total = net.op(N.ADD_FUSION, y, z, quant=[(2.0**-3, _zero(dtype, 10))], **RELU)
    both = net.op(N.CONCAT, total, y, z, axis=net.spec(x).channel_axis, quant=[(2.0**-2, _zero(dtype))])
    return net.graph(both, total), [[net.reals(1, 6, 6, 3)]]


def casts(dtype: str, kind: NodeType, net: Net) -> Made:
    """Build casts to the quantized type and back, with some numbers beyond its range."""
    x = net.input(4, 5)
    y = _quantize(net, x, dtype, 2.0**-6, 7, kind)
    edges = net.reals(4, 5)
    edges[0] = [1e30, -1e30, 0, 2.0**-7, -(2.0**-6)]
    return net.graph(y, _dequantize(net, y, kind)), [[net.reals(4, 5)], [edges]]


def cast_per_channel(dtype: str, net: Net) -> Made:
    """Build constants that are dequantized along an axis."""
    x = net.input(2, 3)
    weight, _ = _weights(net, dtype, 3, 4, per_channel=True)
    attrs = {"src_t": int(net.spec(weight).data_type), "dst_t": int(DataType.FLOAT32), "axis": 0}
    real = net.op(N.QUANT_DTYPE_CAST_V2, weight, data_type=DataType.FLOAT32, **attrs)
    return net.graph(net.op(N.MATMUL_FUSION, x, real)), [[net.reals(2, 3)]]


def requantized(dtype: str, net: Net) -> Made:
    """Build nodes that move elements, with outputs of the same quantization parameters and of others."""
    x = net.input(2, 6)
    y = _quantize(net, x, dtype, 2.0**-6)
    same = net.op(N.TRANSPOSE, y, net.ints(1, 0), quant=[(2.0**-6, _zero(dtype))])
    other = net.op(N.RESHAPE, y, net.ints(3, 4), quant=[(2.0**-5, _zero(dtype, 9))])
    padded = net.op(N.PAD_FUSION, y, net.constant(np.array([[1, 0], [0, 2]], "i4")), quant=[(2.0**-6, _zero(dtype))])
    return net.graph(same, other, padded), [[net.reals(2, 6)]]
