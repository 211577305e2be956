"""What operators refuse, and that they say what was given and what would be right."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, PaddingMode, PadMode, ReduceMode
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import QuantParam, data_type_of

from .single_node import Pair, infer, spec

N = NodeType


def t(*shape: int, data_type: DataType = DataType.FLOAT32, layout: Format = Format.NONE) -> Pair:
    return spec(shape, data_type, layout), None


def c(*values: Any, dtype: str = "i8") -> Pair:
    array = np.array(values, dtype)
    return spec(array.shape, data_type_of(array.dtype)), array


def quantized(*shape: int, scale: float = 0.5) -> Pair:
    return replace(spec(shape, DataType.INT8), quant=(QuantParam(scale, 0),)), None


IMAGE, INT8 = t(1, 8, 8, 4), DataType.INT8
CONV = [IMAGE, t(6, 3, 3, 4), t(6)]

Case = tuple[NodeType, Sequence[Pair], Mapping[str, Any], str]
CASES: list[Case] = [
    (N.ACTIVATION, [t(2)], {"activation_type": 99}, r"activation_type is 99; use one of 0 \(NO_ACTIVATION\)"),
    (N.ACTIVATION, [t(2)], {"alpha": "x"}, "alpha is 'x'; use a number"),
    (N.ACTIVATION, [t(2)], {"beta": 1.0}, "no attribute 'beta'; it has activation_type, alpha"),
    (N.ACTIVATION, [t(2), t(2)], {}, r"it has 2 inputs; give 1 \(x\)"),
    (N.ACTIVATION, [t(2, data_type=DataType.BOOL)], {}, "x is BOOL; use one of FLOAT16, FLOAT32"),
    (N.ACTIVATION, [t(2, data_type=INT8)], {"activation_type": ActivationType.TANH}, "TANH of INT8 .* use a floating"),
    (N.ADD_FUSION, [t(2, 3), t(4)], {}, r"a \[2, 3\] and b \[4\] do not broadcast in dimension -1; make them equal"),
    (N.ADD_FUSION, [t(2), t(2)], {"activation_type": ActivationType.TANH}, "TANH; only RELU and RELU6 can be fused"),
    (N.SUB_FUSION, [t(2, data_type=DataType.BOOL)] * 2, {}, "difference of two BOOL .* cast one"),
    (N.BIAS_ADD, [t(2, 4), t(3)], {}, "bias has 3 elements; give one for each of the 4 channels"),
    (N.BIAS_ADD, [t(2, 3, 4, 5, layout=Format.NCHW), t(5)], {}, "each of the 3 channels"),
    (N.CONV2D_FUSION, [t(8, 8, 4), *CONV[1:]], {}, r"x has rank 3 \(shape \[8, 8, 4\]\); use rank 4"),
    (N.CONV2D_FUSION, CONV, {"stride": (1, 2, 3)}, r"stride is \[1, 2, 3\]; use 2 values of 1 or more"),
    (N.CONV2D_FUSION, CONV, {"stride": (0, 1)}, r"stride is \[0, 1\]; use 2 values of 1 or more"),
    (N.CONV2D_FUSION, CONV, {"pad_list": (1, 1, 1, -1)}, r"pad_list is \[1, 1, 1, -1\]; use 4 values of 0 or more"),
    (N.CONV2D_FUSION, CONV, {"group": 3}, "x has 4 channels, which 3 groups do not divide"),
    (N.CONV2D_FUSION, CONV, {"group": 2}, "weight takes 4 channels in 2 groups but x has 4"),
    (N.CONV2D_FUSION, CONV, {"dilation": (4, 1)}, "the window covers a height of 9 but the padded input has 8"),
    (N.CONV2D_FUSION, [IMAGE, t(6, 3, 3, 4), t(6, data_type=DataType.FLOAT16)], {}, "x is FLOAT32 but bias is FLOAT16"),
    (N.CONV2D_FUSION, CONV[:2], {}, r"it has 2 inputs; give 3 \(x, weight, bias\)"),
    (N.CONV2D_TRANSPOSE_FUSION, CONV, {"output_paddings": (1,)}, r"output_paddings is \[1, 1\]; each must be below"),
    (N.MAX_POOL_FUSION, [IMAGE], {}, r"kernel_size is empty; give \[height, width\], or set global"),
    (N.MAX_POOL_FUSION, [IMAGE], {"kernel_size": (2, 2), "pad": (2, 0, 0, 0)}, "pad less"),
    (N.FULL_CONNECTION, [t(2, 3), t(4, 5)], {}, r"x FLOAT32\[2, 3\] has 6 elements, .* rows of the 5"),
    (N.FULL_CONNECTION, [t(2, 3), t(4, 5)], {"axis": 1}, r"has 3 elements from dimension 1 on but weight .* takes 5"),
    (N.FULL_CONNECTION, [t(2, 3), t(4, 3)], {"has_bias": True}, "has_bias is True but there are 2 inputs"),
    (N.FULL_CONNECTION, [t(2, 3), t(4, 3)], {"axis": 0, "use_axis": False}, "axis is 0 but use_axis is False"),
    (N.FULL_CONNECTION, [t(2, 3), t(4, 3), t(3)], {}, "bias has 3 elements; give one for each of the 4"),
    (N.FULL_CONNECTION, [t(2, 0), t(4, 0)], {}, r"weight FLOAT32\[4, 0\] takes no elements; give it at least one"),
    (N.MATMUL_FUSION, [t(2, 3), t(4, 3)], {}, "rows of 3 elements but b .* columns of 4; make them equal"),
    (N.MATMUL_FUSION, [t(3), t(3, 4)], {}, r"a has rank 1 \(shape \[3\]\); use rank 2 or more"),
    (N.MATMUL_FUSION, [t(2, 2, 3), t(5, 3, 4)], {}, r"the batch of a \[2\] and the batch of b \[5\] do not broadcast"),
    (N.FUSED_BATCH_NORM, [t(2, 4), t(4), t(4), t(3), t(4)], {}, "mean has 3 elements; give one for each of the 4"),
    (N.FUSED_BATCH_NORM, [t(2, 4), *[t(4)] * 4], {"epsilon": -1.0}, "epsilon is -1.0; use 0 or more"),
    (N.SOFTMAX, [t(2, 3)], {"axis": (2,)}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (N.SOFTMAX, [t(2, 3)], {"axis": (0, 1)}, r"axis is \[0, 1\]; use one dimension"),
    (N.SOFTMAX, [t(2, 3, data_type=INT8)], {}, "x is INT8; use one of FLOAT16"),
    (N.RESHAPE, [t(2, 3), c(4, -1)], {}, r"shape is \[4, -1\], which x FLOAT32\[2, 3\] does not fill evenly"),
    (N.RESHAPE, [t(2, 3), c(7)], {}, r"shape is \[7\], .* keep the number of elements"),
    (N.RESHAPE, [t(2, 3), c(-1, -1)], {}, "use at most one -1"),
    (N.RESHAPE, [t(2, 3), c(2, 3, 0)], {}, "whose 0 copies dimension 2, but .* has rank 2"),
    (N.RESHAPE, [t(2, 3), t(2)], {}, "shape is FLOAT32; use one of INT32, INT64"),
    (N.RESHAPE, [t(2, 3), t(-1, data_type=DataType.INT64)], {}, "decides the output's rank, but has an unknown length"),
    (N.TRANSPOSE, [t(2, 3), c(0)], {}, r"permutation INT64\[1\] has 1 elements; give one for each of the 2 dimensions"),
    (N.TRANSPOSE, [t(2, 3), c(0, 0)], {}, r"permutation is \[0, 0\], which names a dimension twice"),
    (N.TRANSPOSE, [t(2, 3), c(0, 2)], {}, r"permutation is 2 but the rank is 2; use -2\.\.1"),
    (N.CONCAT, [t(2, 3)], {}, "it has 1 input; give 2 or more"),
    (N.CONCAT, [t(2, 3), t(2, 4)], {}, r"\[2, 3\], \[2, 4\] differ in dimension 1; only dimension 0 \(axis\)"),
    (N.CONCAT, [t(2, 3), t(2)], {}, "differ in rank; give them one rank"),
    (N.CONCAT, [t(2), t(2, data_type=INT8)], {}, r"parts\[0\] is FLOAT32 but parts\[1\] is INT8"),
    (N.CONCAT, [quantized(2), quantized(2, scale=0.25)], {}, "are quantized differently; give them one scale"),
    (N.PAD_FUSION, [t(2, 3), c((1, 1))], {}, r"paddings INT64\[1, 2\] is not a pair .* give it shape \[2, 2\]"),
    (N.PAD_FUSION, [t(2), c((1, -1))], {}, r"paddings\[0\] is \[1, -1\]; use 0 or more"),
    (N.PAD_FUSION, [t(2), c((2, 0))], {"padding_mode": PaddingMode.REFLECT}, "REFLECT mirrors at most 1 elements"),
    (N.PAD_FUSION, [t(2), c((0, 0))], {"padding_mode": PaddingMode.RESERVED}, "RESERVED; use CONSTANT, REFLECT"),
    (N.PAD_FUSION, [t(2), c((0, 0))], {"paddings": ((0, 0),)}, "leave it empty"),
    (N.PAD_FUSION, [t(2, data_type=INT8), c((1, 0))], {"constant_value": 200.0}, r"is 200.0; use .* in -128\.\.127"),
    (N.PAD_FUSION, [quantized(2), c((0, 0))], {}, "x is quantized, .* dequantize it first"),
    (N.SQUEEZE, [t(1, -1)], {}, r"dimension 1 of x FLOAT32\[1, \?\] goes only if it is 1, which is not known"),
    (N.SQUEEZE, [t(1, 1)], {"axis": (2,)}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (N.UNSQUEEZE, [t(1)], {}, "axis is empty; name the place of at least one"),
    (N.UNSQUEEZE, [t(1)], {"axis": (0, -3)}, r"axis is \[0, -3\], which names a dimension twice"),
    (N.REDUCE_FUSION, [t(2, 3), c(2)], {}, r"axis is 2 but the rank is 2; use -2\.\.1"),
    (N.REDUCE_FUSION, [t(2, 3), c(1, -1)], {}, r"axis is \[1, -1\], which names a dimension twice"),
    (N.REDUCE_FUSION, [t(2, data_type=DataType.BOOL), c(0)], {}, "MEAN of BOOL is not defined; use ALL"),
    (N.REDUCE_FUSION, [t(2, data_type=INT8), c(0)], {"mode": ReduceMode.L2}, "L2 of INT8 .* use a floating-point type"),
    (N.REDUCE_FUSION, [t(*[1] * 8), c(0)], {}, r"x has rank 8 .* use rank 0\.\.7"),
    (N.REDUCE_FUSION, [t(2), t(-1, data_type=DataType.INT32)], {}, "rank depends on axis, which is not known"),
    (N.CAST, [t(2), c(0)], {}, r"0 names no data type; use 1 \(BOOL\) to 12 \(FLOAT64\)"),
    (N.CAST, [t(2), c(1, 2)], {}, r"type INT64\[2\] has 2 elements; give one data type"),
    (N.CAST, [t(2), t(1, data_type=DataType.INT32)], {}, "type must be a constant"),
]


@pytest.mark.parametrize(
    ("node_type", "operands", "attrs", "message"), CASES, ids=lambda part: getattr(part, "name", "")
)
def test_refusal(node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        infer(node_type, operands, attrs)
    assert re.search(message, str(refusal.value)), str(refusal.value)


@pytest.mark.parametrize(
    ("node_type", "operands", "data_type", "message"),
    [
        (N.SHAPE, [t(2, 3)], INT8, "declared INT8; use INT32 or INT64"),
        (N.MATMUL_FUSION, [t(2, 3), t(3, 4)], INT8, r"declared INT8; .* gives FLOAT32 or a higher precision"),
        (N.SOFTMAX, [t(2, 3)], INT8, "declared INT8 but is FLOAT32"),
    ],
)
def test_declared_type_that_is_refused(
    node_type: NodeType, operands: Sequence[Pair], data_type: DataType, message: str
) -> None:
    known = infer(node_type, operands, {})
    with pytest.raises(InvalidParameter, match=message):
        infer(node_type, operands, {}, (replace(known, data_type=data_type),))


def test_only_data_movement_takes_quantized_tensors() -> None:
    takers = {kind for kind, op in OPERATORS.items() if any(rule.accepts.quantized for rule in op.operands)}
    assert takers == {N.RESHAPE, N.TRANSPOSE, N.SQUEEZE, N.UNSQUEEZE, N.CONCAT, N.SHAPE}


@pytest.mark.parametrize(
    ("node_type", "operands", "attrs"),
    [
        (N.RESHAPE, [quantized(2, 3), c(6)], {}),
        (N.TRANSPOSE, [quantized(2, 3), c(1, 0)], {}),
        (N.SQUEEZE, [quantized(1, 3)], {}),
        (N.UNSQUEEZE, [quantized(2)], {"axis": (0,)}),
        (N.CONCAT, [quantized(2), quantized(3)], {}),
    ],
)
def test_data_movement_keeps_quantization(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any]
) -> None:
    assert infer(node_type, operands, attrs).quant == (QuantParam(0.5, 0),)


@pytest.mark.parametrize(
    ("layout", "permutation", "result"),
    [
        (Format.NHWC, (0, 3, 1, 2), Format.NCHW),
        (Format.NCHW, (0, 2, 3, 1), Format.NHWC),
        (Format.NHWC, (0, 2, 3, 1), Format.NONE),
        (Format.NCHW, (0, 3, 1, 2), Format.NONE),
        (Format.NCHW, (0, 1, 2, 3), Format.NCHW),
        (Format.NONE, (0, 3, 1, 2), Format.NONE),
    ],
)
def test_layout_after_transpose(layout: Format, permutation: tuple[int, ...], result: Format) -> None:
    assert infer(N.TRANSPOSE, [t(1, 2, 3, 4, layout=layout), c(*permutation)], {}).format is result


@pytest.mark.parametrize(
    ("node_type", "operands", "attrs", "shape"),
    [
        (N.ADD_FUSION, [t(-1, 3), t(4, 1)], {}, (4, 3)),
        (N.ADD_FUSION, [t(-1), t(1)], {}, (-1,)),
        (N.RESHAPE, [t(-1, 3, 4), c(0, -1)], {}, (-1, 12)),
        (N.RESHAPE, [t(-1, 3, 4), c(-1, 4)], {}, (-1, 4)),
        (N.RESHAPE, [t(-1, 3), c(2, 6)], {}, (2, 6)),
        (N.RESHAPE, [t(2, 3), t(3, data_type=DataType.INT32)], {}, (-1, -1, -1)),
        (N.TRANSPOSE, [t(2, -1), t(2, data_type=DataType.INT32)], {}, (-1, -1)),
        (N.CONCAT, [t(-1, 2), t(3, 2)], {"axis": 1}, (3, 4)),
        (N.CONCAT, [t(-1, -1), t(3, 2)], {}, (-1, 2)),
        (N.PAD_FUSION, [t(-1, 2), c((1, 1), (0, 2))], {}, (-1, 4)),
        (N.SQUEEZE, [t(1, -1, 1)], {"axis": (0,)}, (-1, 1)),
        (N.SHAPE, [t(-1, -1)], {}, (2,)),
        (N.MATMUL_FUSION, [t(-1, -1, 3), t(5, -1, 4)], {}, (5, -1, 4)),
        (N.FULL_CONNECTION, [t(-1, 3, 4), t(5, 12)], {"axis": 1}, (-1, 5)),
        (N.FULL_CONNECTION, [t(-1, 12), t(-1, 12)], {}, (-1, -1)),
        (N.REDUCE_FUSION, [t(-1, 3), c(1)], {"keep_dims": True}, (-1, 1)),
        (N.REDUCE_FUSION, [t(2, 3), t(1, data_type=DataType.INT32)], {}, (-1,)),
        (N.CONV2D_FUSION, [t(-1, -1, 8, 4), *CONV[1:]], {"pad_mode": PadMode.SAME}, (-1, -1, 8, 6)),
        (N.AVGPOOL_FUSION, [t(-1, -1, -1, 4)], {"global": True}, (-1, 1, 1, 4)),
    ],
)
def test_what_is_known_of_unknown_shapes(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], shape: tuple[int, ...]
) -> None:
    assert infer(node_type, operands, attrs).shape == shape
