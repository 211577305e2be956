"""Operators refuse wrong nodes, and say what was given and what would be right."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nnrt_hdi.enums import DataType, Format, NodeType, PadMode
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import QuantParam, TensorSpec

from .refusals import CASES
from .refusals.case import c, quantized, t
from .single_node import Pair, infer, infer_all

N = NodeType


IMAGE, INT8 = t(1, 8, 8, 4), DataType.INT8
CONV = [IMAGE, t(6, 3, 3, 4), t(6)]


@pytest.mark.parametrize(
    ("node_type", "operands", "attrs", "message"), CASES, ids=lambda part: getattr(part, "name", "")
)
def test_refusal(node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        infer(node_type, operands, attrs)
    assert re.search(message, str(refusal.value)), str(refusal.value)


every_operator = pytest.mark.parametrize("node_type", sorted(OPERATORS), ids=lambda node_type: node_type.name)


@every_operator
def test_no_operator_does_without_operands(node_type: NodeType) -> None:
    names = ", ".join(rule.name for rule in OPERATORS[node_type].operands)
    with pytest.raises(InvalidParameter, match=rf"it has 0 inputs; give .*\({re.escape(names)}\)"):
        OPERATORS[node_type].infer([], {})


@every_operator
def test_no_operator_takes_an_attribute_it_has_not(node_type: NodeType) -> None:
    with pytest.raises(InvalidParameter, match="it has no attribute 'colour'; it has "):
        OPERATORS[node_type].bind({"colour": 1})


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


@pytest.mark.parametrize(
    ("given", "declared", "message"),
    [
        (DataType.FLOAT32, DataType.FLOAT16, "declared FLOAT16; use FLOAT32"),
        (DataType.FLOAT64, DataType.FLOAT64, "declared FLOAT64; use FLOAT32"),
        (DataType.FLOAT16, DataType.FLOAT64, "declared FLOAT64; use FLOAT16 or FLOAT32"),
    ],
)
def test_declared_type_of_detections_that_is_refused(given: DataType, declared: DataType, message: str) -> None:
    operands = [t(*shape, data_type=given) for shape in ((1, 6, 4), (1, 6, 2), (6, 4))]
    attrs = {"scale": (1.0,) * 4, "num_classes": 2, "max_detections": 3}
    known = infer_all(N.DETECTION_POST_PROCESS, operands, attrs)
    with pytest.raises(InvalidParameter, match=message):
        infer_all(N.DETECTION_POST_PROCESS, operands, attrs, tuple(replace(spec, data_type=declared) for spec in known))


def test_which_operators_take_no_quantized_tensors() -> None:
    refusing = {
        kind for kind, op in OPERATORS.items() if not any(op.takes_quantized(operand) for operand in op.operands)
    }
    assert refusing == {
        *(N.ALL, N.LOGICAL_AND, N.LOGICAL_NOT, N.LOGICAL_OR, N.ASSERT, N.CAST),
        *(N.CONSTANT_OF_SHAPE, N.RANGE, N.DETECTION_POST_PROCESS, N.LSTM),
    }


@pytest.mark.parametrize(
    ("node_type", "operands", "attrs"),
    [
        (N.RESHAPE, [quantized(2, 3), c(6)], {}),
        (N.TRANSPOSE, [quantized(2, 3), c(1, 0)], {}),
        (N.SQUEEZE, [quantized(1, 3)], {}),
        (N.UNSQUEEZE, [quantized(2)], {"axis": (0,)}),
        (N.CONCAT, [quantized(2), quantized(3)], {}),
        (N.STACK, [quantized(2), quantized(2)], {}),
        (N.SLICE_FUSION, [quantized(2), c(0), c(1)], {}),
        (N.STRIDED_SLICE, [quantized(2), c(0), c(1), c(1)], {}),
        (N.CROP, [quantized(2), c(1)], {}),
        (N.TILE_FUSION, [quantized(2), c(2)], {}),
        (N.BROADCAST_TO, [quantized(2)], {"shape": (3, 2)}),
        (N.EXPAND_DIMS, [quantized(2), c(0)], {}),
        (N.FLATTEN, [quantized(2, 3)], {}),
        (N.GATHER, [quantized(2), c(1), c(0)], {}),
        (N.GATHER_ND, [quantized(2), c((1,))], {}),
        (N.FILL, [quantized(), c(2)], {}),
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
    ("node_type", "operands", "attrs", "layout"),
    [
        (N.SLICE_FUSION, [c(1), c(1)], {"axes": (0,)}, Format.NHWC),
        (N.CROP, [c(1, 1, 1, 1)], {}, Format.NHWC),
        (N.SPLIT, [], {"output_num": 1}, Format.NHWC),
        (N.STRIDED_SLICE, [c(0), c(1), c(1)], {}, Format.NHWC),
        (N.STRIDED_SLICE, [c(0), c(1), c(1)], {"shrink_axis_mask": 1}, Format.NONE),
        (N.STRIDED_SLICE, [c(0, 0), c(1, 1), c(1, 1)], {"shrink_axis_mask": 1, "new_axis_mask": 2}, Format.NONE),
        (N.TILE_FUSION, [c(1, 2, 3, 1)], {}, Format.NHWC),
        (N.TILE_FUSION, [c(1, 2, 3, 1, 1)], {}, Format.NONE),
        (N.BROADCAST_TO, [], {"shape": (2, 3, 4, 5)}, Format.NHWC),
        (N.BROADCAST_TO, [], {"shape": (1, 2, 3, 4, 5)}, Format.NONE),
        (N.GATHER, [c(0), c(3)], {}, Format.NHWC),
        (N.GATHER, [c((0,)), c(3)], {}, Format.NONE),
        (N.ARGMAX_FUSION, [], {"keep_dims": True}, Format.NHWC),
        (N.ARGMAX_FUSION, [], {}, Format.NONE),
        (N.EXPAND_DIMS, [c(0)], {}, Format.NONE),
        (N.FLATTEN, [], {}, Format.NONE),
    ],
)
def test_layout_stays_where_dimensions_keep_their_meaning(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], layout: Format
) -> None:
    image = t(2, 3, 4, 5, layout=Format.NHWC)
    assert infer(node_type, [image, *operands], attrs).format is layout


I32 = DataType.INT32


def test_what_is_known_of_several_outputs() -> None:
    x, columns = t(-1, 6), t(-1, 3)
    outputs = TensorSpec(DataType.FLOAT32, (-1,)), TensorSpec(DataType.FLOAT32, (-1,))
    assert [y.shape for y in infer_all(N.SPLIT, [x], {"size_splits": (1, 3)})] == [(1, 6), (3, 6)]
    assert [y.shape for y in infer_all(N.SPLIT, [x], {"axis": 1, "output_num": 2})] == [(-1, 3), (-1, 3)]
    assert [y.shape for y in infer_all(N.UNSTACK, [columns], {"axis": 1})] == [(-1,)] * 3
    assert [y.shape for y in infer_all(N.UNSTACK, [columns], {}, outputs)] == [(3,)] * 2
    assert [y.shape for y in infer_all(N.TOPK_FUSION, [x, t(data_type=I32)], {})] == [(-1, -1)] * 2
    assert [y.shape for y in infer_all(N.TOPK_FUSION, [x, c(2)], {"axis": 0})] == [(2, 6)] * 2
    with pytest.raises(InvalidParameter, match="it has 2 outputs; give 3"):
        infer_all(N.UNSTACK, [columns], {"axis": 1}, outputs)
    with pytest.raises(InvalidParameter, match="it has 2 outputs; give 3"):
        infer_all(N.SPLIT, [x], {"axis": 1, "output_num": 3}, outputs)


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
        (N.RANK, [t(-1, -1)], {}, ()),
        (N.EXPAND_DIMS, [t(-1, 3), c(1)], {}, (-1, 1, 3)),
        (N.EXPAND_DIMS, [t(2, 3), t(data_type=I32)], {}, (-1, -1, -1)),
        (N.FLATTEN, [t(-1, 3, 4)], {}, (-1, 12)),
        (N.FLATTEN, [t(0, -1, 4)], {"axis": 2}, (0, 4)),
        (N.STACK, [t(-1, 3), t(2, -1)], {"axis": 1}, (2, 2, 3)),
        (N.SLICE_FUSION, [t(-1, -1), c(1), c(2)], {"axes": (1,)}, (-1, 2)),
        (N.SLICE_FUSION, [t(4, 5), t(2, data_type=I32), c(3, 2)], {}, (3, 2)),
        (N.SLICE_FUSION, [t(4, 5), c(1), t(-1, data_type=I32)], {"axes": (0,)}, (-1, 5)),
        (N.CROP, [t(-1, -1), c(4, 3)], {"axis": 1}, (-1, 3)),
        (N.CROP, [t(4, 5), t(2, data_type=I32)], {"axis": 1}, (4, -1)),
        (N.STRIDED_SLICE, [t(-1, 5, 6), c(0, 1), c(2, 4), c(1, 2)], {}, (-1, 2, 6)),
        (
            N.STRIDED_SLICE,
            [t(4, 5, 6), *[t(3, data_type=I32)] * 3],
            {"new_axis_mask": 1, "shrink_axis_mask": 2},
            (1, -1, 6),
        ),
        (N.STRIDED_SLICE, [t(4, 5, 6), *[t(2, data_type=I32)] * 3], {"ellipsis_mask": 1}, (4, 5, -1)),
        (N.STRIDED_SLICE, [t(-1), c(3), c(3), c(1)], {"begin_mask": 1, "shrink_axis_mask": 1}, ()),
        (N.TILE_FUSION, [t(-1, 3), c(2, 2)], {}, (-1, 6)),
        (N.TILE_FUSION, [t(-1, 3), c(0, 2)], {}, (0, 6)),
        (N.TILE_FUSION, [t(2, 3), t(3, data_type=I32)], {}, (-1, -1, -1)),
        (N.TILE_FUSION, [t(2, 3), t(1, data_type=I32)], {"dims": (1,)}, (2, -1)),
        (N.BROADCAST_TO, [t(-1, 3)], {"shape": (4, 5, -1)}, (4, 5, 3)),
        (N.BROADCAST_TO, [t(-1, 3)], {"shape": (-1, 3)}, (-1, 3)),
        (N.GATHER, [t(4, 5), t(-1, 2, data_type=I32), c(1)], {}, (4, -1, 2)),
        (N.GATHER, [t(4, 5), t(3, data_type=I32), t(data_type=I32)], {}, (-1, -1)),
        (N.GATHER_ND, [t(4, -1, 6), t(-1, 1, data_type=I32)], {}, (-1, -1, 6)),
        (N.SCATTER_ND, [t(3, 1, data_type=I32), t(3, 5), t(2, data_type=I32)], {}, (-1, 5)),
        (N.SCATTER_ND, [t(-1, 1, data_type=I32), t(3, -1), c(4, 5)], {}, (4, -1)),
        (N.SPARSE_TO_DENSE, [t(-1, -1, data_type=I32), t(-1), t(2, data_type=I32)], {}, (-1, -1)),
        (N.ONE_HOT, [t(-1, 3, data_type=I32), t(data_type=I32), t(), t()], {"axis": 1}, (-1, -1, 3)),
        (N.ARGMAX_FUSION, [t(-1, -1)], {"top_k": 3}, (-1, 3)),
        (N.ARGMAX_FUSION, [t(-1, -1)], {}, (-1,)),
        (N.FILL, [t(), t(2, data_type=I32)], {}, (-1, -1)),
        (N.CONSTANT_OF_SHAPE, [t(3)], {}, (-1, -1, -1)),
        (N.RANGE, [t(-1)], {"limit": 7, "delta": 2}, (4,)),
        (N.MATMUL_FUSION, [t(-1, -1, 3), t(5, -1, 4)], {}, (5, -1, 4)),
        (N.FULL_CONNECTION, [t(-1, 3, 4), t(5, 12)], {"axis": 1}, (-1, 5)),
        (N.FULL_CONNECTION, [t(-1, 12), t(-1, 12)], {}, (-1, -1)),
        (N.REDUCE_FUSION, [t(-1, 3), c(1)], {"keep_dims": True}, (-1, 1)),
        (N.REDUCE_FUSION, [t(2, 3), t(1, data_type=DataType.INT32)], {}, (-1,)),
        (N.CONV2D_FUSION, [t(-1, -1, 8, 4), *CONV[1:]], {"pad_mode": PadMode.SAME}, (-1, -1, 8, 6)),
        (N.AVGPOOL_FUSION, [t(-1, -1, -1, 4)], {"global": True}, (-1, 1, 1, 4)),
        (N.ALL, [t(2, 3), t(1, data_type=DataType.INT32)], {}, (-1,)),
        (N.INSTANCE_NORM, [t(-1, -1, -1, 4), t(3), t(-1)], {}, (-1, -1, -1, 4)),
        (N.RESIZE, [t(-1, -1, -1, 4)], {"new_height": 3, "new_width": 5}, (-1, 3, 5, 4)),
        (
            N.RESIZE,
            [t(2, -1, 8, 4)],
            {"new_height": 3, "new_width": 5, "preserve_aspect_ratio": True},
            (2, -1, -1, 4),
        ),
        (N.BATCH_TO_SPACE_ND, [t(-1, 3, -1, 4)], {"block_shape": (2, 2), "crops": ((1, 0), (0, 0))}, (-1, 5, -1, 4)),
        (N.SPACE_TO_BATCH_ND, [t(2, -1, 6, -1)], {"block_shape": (3, 2)}, (12, -1, 3, -1)),
        (N.DEPTH_TO_SPACE, [t(-1, 3, -1, 8)], {"block_size": 2}, (-1, 6, -1, 2)),
        (N.SPACE_TO_DEPTH, [t(-1, -1, 4, -1)], {"block_size": 2}, (-1, -1, 2, -1)),
        (N.PRELU_FUSION, [t(-1, -1), t(-1)], {}, (-1, -1)),
        (N.ELTWISE, [t(-1, 3), t(2, -1)], {}, (2, 3)),
        (N.SCALE_FUSION, [t(-1, -1, 4), t(3), t(-1)], {"axis": 1}, (-1, 3, 4)),
        (N.LESS, [t(-1, 3), t(4, 1)], {}, (4, 3)),
        (N.WHERE, [t(-1), t(2, 1), t()], {}, (2, -1)),
        (N.SELECT, [t(5), t(-1, 3), t(-1, -1)], {}, (5, 3)),
        (N.SELECT, [t(-1), t(-1, 3), t(-1, -1)], {}, (-1, 3)),
        (N.SELECT, [t(-1, 4), t(-1, -1), t(3, -1)], {}, (3, 4)),
    ],
)
def test_what_is_known_of_unknown_shapes(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], shape: tuple[int, ...]
) -> None:
    assert infer(node_type, operands, attrs).shape == shape
