"""What operators refuse, and that they say what was given and what would be right."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nnrt_hdi.enums import DataType, Format, NodeType, PadMode
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.tensor import QuantParam

from .refusals import CASES
from .refusals.case import c, quantized, t
from .single_node import Pair, infer

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
