"""Refused quantization parameters, quantized operands and conversions."""

from dataclasses import replace
from typing import Any

from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.tensor import QuantParam
from operators.single_node import Pair

from .case import Case, c, quantized, t

CAST, CAST_V1 = NodeType.QUANT_DTYPE_CAST_V2, NodeType.QUANT_DTYPE_CAST
ADD = NodeType.ADD_FUSION
TO_INT8: dict[str, Any] = {"src_t": 43, "dst_t": 32}
TO_FLOAT32: dict[str, Any] = {"src_t": 32, "dst_t": 43}
I32 = DataType.INT32


def q(*shape: int, data_type: DataType = DataType.INT8, params: tuple[QuantParam, ...] = ()) -> Pair:
    """Return a quantized operand with these parameters."""
    spec, value = t(*shape, data_type=data_type)
    return replace(spec, quant=params), value


def bad(scale: float = 0.5, zero_point: int = 0, num_bits: int = 8, data_type: DataType = DataType.INT8) -> list[Pair]:
    return [q(2, data_type=data_type, params=(QuantParam(scale, zero_point, num_bits),))]


TWO = (QuantParam(0.5, 0), QuantParam(0.25, 0))
X, WEIGHT = quantized(5, 7), quantized(3, 7)

CASES: list[Case] = [
    (NodeType.SQRT, bad(scale=-1.0), {}, r"the scale of x is -1.0; use a number above 0, or 0 where all elements are"),
    (NodeType.SQRT, bad(scale=float("nan")), {}, "the scale of x is nan"),
    (NodeType.SQRT, bad(scale=float("inf")), {}, "the scale of x is inf"),
    (NodeType.SQRT, bad(zero_point=128), {}, r"the zero point of x is 128; use -128..127 \(INT8\)"),
    (NodeType.SQRT, bad(zero_point=-1, data_type=DataType.UINT8), {}, r"of x is -1; use 0..255 \(UINT8\)"),
    (NodeType.SQRT, bad(num_bits=4), {}, "x is quantized to 4 bits; use 8"),
    (NodeType.SQRT, bad(data_type=DataType.INT16), {}, "x is INT16 with quantization parameters; use INT8 or UINT8"),
    (
        NodeType.SQRT,
        [q(3, 4, params=TWO)],
        {},
        r"x INT8\[3, 4\] has 2 quantization parameters; use 1, or one for each of the 4 channels in dimension 1",
    ),
    (NodeType.SQRT, [q(params=TWO)], {}, "has 2 quantization parameters but no dimension -1 of channels; use 1"),
    (
        NodeType.SQRT,
        [q(2, params=(QuantParam(0.5, 0), QuantParam(0.5, 300)))],
        {},
        "the zero point of channel 1 of x is 300",
    ),
    (NodeType.SQRT, [quantized(2)], {}, "the output has no quantization parameters, but operands are quantized"),
    (NodeType.CAST, [quantized(2), c(7)], {}, "x is quantized, which this operator does not compute; dequantize it"),
    (NodeType.REDUCE_FUSION, [quantized(2), quantized(1)], {}, "axis is quantized, .* dequantize it first"),
    (
        ADD,
        [quantized(2), t(2, data_type=DataType.INT8)],
        {},
        "b is INT8 without quantization parameters beside",
    ),
    (NodeType.ACTIVATION, [quantized(2)], {"activation_type": ActivationType.GELU}, "x is quantized, which GELU"),
    (
        NodeType.FULL_CONNECTION,
        [X, t(3, 7), t(3, data_type=I32)],
        {},
        "bias is INT32, but weight, whose scale decides what it stands for, is not quantized",
    ),
    (
        NodeType.FULL_CONNECTION,
        [q(5, 2, params=TWO), quantized(3, 2), t(3, data_type=I32)],
        {},
        "bias is INT32, but x has 2 scales; quantize x with one",
    ),
    (
        NodeType.FULL_CONNECTION,
        [X, WEIGHT, q(3, data_type=I32, params=(QuantParam(0.25, 0),))],
        {},
        "bias is INT32 with quantization parameters; leave them out",
    ),
    (NodeType.CONCAT, [quantized(2), quantized(2, scale=0.25)], {}, "the output has no quantization parameters"),
    (CAST, [quantized(2)], {"dst_t": 43}, "src_t is missing; give an integer"),
    (CAST, [quantized(2)], TO_INT8, "src_t is FLOAT32 but x is INT8; make them agree"),
    (CAST, [t(2)], {"src_t": 13, "dst_t": 32}, "src_t: 13 names no data type"),
    (CAST, [t(2)], {"src_t": 11, "dst_t": 44}, "both src_t FLOAT32 and dst_t FLOAT64 are floating-point; use CAST"),
    (CAST, [t(2)], {"src_t": 11, "dst_t": 4}, "dst_t is INT32; use FLOAT16, .* or UINT8"),
    (CAST, [t(2, data_type=DataType.INT8)], TO_FLOAT32, r"x INT8\[2\] has no quantization parameters, so what it"),
    (CAST, [t(2)], TO_INT8, r"the output INT8\[2\] has no quantization parameters"),
    (CAST, [quantized(2)], {"src_t": 32, "dst_t": 37}, "the output UINT8.* has no quantization parameters"),
    (CAST, [q(2, 3, params=TWO)], {**TO_FLOAT32, "axis": 1}, "use 1, or one for each of the 3 channels in dimension 1"),
    (CAST, [q(2, 3, params=TWO)], {**TO_FLOAT32, "axis": 2}, r"axis is 2 but the rank is 2; use -2..1"),
    (CAST_V1, [q(2, 3, params=TWO)], TO_FLOAT32, "x has 2 quantization parameters; use 1, or QUANT_DTYPE_CAST_V2"),
]
