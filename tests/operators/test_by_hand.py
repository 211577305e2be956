"""Results of the reference backend, by hand, where neither the kit nor an oracle has the case."""

from typing import Any

import numpy as np
import pytest
from nnrt_backend_reference.kernels import convolution, normalization, pieces
from numpy.typing import NDArray

from nnrt_client.conformance.cases.samples import SAMPLES
from nnrt_hdi.enums import DataType, Format, NodeType, PaddingMode, PadMode, ReduceMode
from nnrt_hdi.tensor import TensorSpec

from .single_node import array_of, compute, graph_of, infer_all, pairs, prepare, run

AnyArray = NDArray[Any]
N = NodeType
NAN, INF = np.nan, np.inf
BOXES = [(1, 100, 4), (1, 100, 3), (100, 4)]
BOXES_ATTRS = {"num_classes": 3, "scale": (1.0, 1.0, 1.0, 1.0), "max_detections": 20}


@pytest.mark.parametrize(
    ("numbers", "dtype", "code", "wanted"),
    [
        ([1.9, -1.9, 300, -300, INF, -INF, NAN], "f4", 2, [1, -1, 127, -128, 127, -128, 0]),
        ([1.9, -1.9, 3e9, -3e9], "f8", 4, [1, -1, 2**31 - 1, -(2**31)]),
        ([2.0**63, -(2.0**63), 1e30], "f4", 5, [2**63 - 1, -(2**63), 2**63 - 1]),
        ([-1, 6e4, INF], "f2", 6, [0, 255, 255]),
    ],
)
def test_numbers_that_no_integer_is_near(numbers: list[float], dtype: str, code: int, wanted: list[float]) -> None:
    result = compute(N.CAST, [np.array(numbers, dtype), array_of(code, dtype="i4")])
    np.testing.assert_array_equal(result, np.array(wanted, result.dtype))


def test_a_coeff_of_almost_nothing_counts_as_none() -> None:
    x, axis = array_of([1, 2], [3, 4]), array_of(0, dtype="i4")
    attrs = {"mode": ReduceMode.SUM, "reduce_to_end": True, "coeff": 1e-6}
    assert compute(N.REDUCE_FUSION, [x, axis], attrs) == 10


def test_symmetric_padding_repeats_the_edge() -> None:
    x, paddings = array_of([1, 2, 3]), array_of((0, 0), (2, 3), dtype="i4")
    result = compute(N.PAD_FUSION, [x, paddings], {"padding_mode": PaddingMode.SYMMETRIC})
    np.testing.assert_array_equal(result, [[2, 1, 1, 2, 3, 3, 2, 1]])


def test_reshape_copies_dimensions_of_nothing() -> None:
    assert compute(N.RESHAPE, [np.ones((0, 3, 4), "f4"), array_of(0, -1, dtype="i8")]).shape == (0, 12)


def test_matmul_in_the_declared_type() -> None:
    a, b = array_of([100, 100], dtype="i1"), array_of([100], [1], dtype="i1")
    declared = (TensorSpec(DataType.INT32, (1, 1)),)
    np.testing.assert_array_equal(compute(N.MATMUL_FUSION, [a, b], {}, declared), [[10100]])
    np.testing.assert_array_equal(compute(N.MATMUL_FUSION, [a, b]), [[10100 - 39 * 256]])


def test_shape_in_the_declared_type() -> None:
    result = compute(N.SHAPE, [np.ones((2, 3), "f4")], {}, (TensorSpec(DataType.INT64, (2,)),))
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, [2, 3])


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_rows_that_need_their_maximum_and_others(axis: int) -> None:
    """Rows that overflow, underflow, are masked, or hold no number: none changes what another gives."""
    inf, nan = np.inf, np.nan
    x = array_of(
        [0, 0], [100, 100], [-200, -200], [88.5, 88.5], [-inf, 3], [-inf, -inf], [inf, 0], [nan, 0], [-60, -160]
    )
    half, none = [0.5, 0.5], [nan, nan]
    right = np.array([half, half, half, half, [0, 1], none, none, none, [1, np.exp(-100.0)]], np.float32)
    result = compute(N.SOFTMAX, [x if axis == 1 else np.ascontiguousarray(x.T)], {"axis": (axis,)})
    np.testing.assert_allclose(result if axis == 1 else result.T, right, rtol=1e-6)


def test_an_average_of_padding_alone_is_no_number() -> None:
    attrs = {"kernel_size": (3, 1), "pad": (2, 2, 0, 0)}
    assert np.isnan(compute(N.AVGPOOL_FUSION, [np.ones((1, 0, 3, 1), "f4")], attrs)).all()


def test_average_of_integers_rounds_towards_zero() -> None:
    x = array_of(1, 2, -1, -2, dtype="i1").reshape(1, 1, 4, 1)
    result = compute(N.AVGPOOL_FUSION, [x], {"kernel_size": (1, 2), "strides": (1, 2)})
    np.testing.assert_array_equal(result.reshape(-1), [1, -1])


def test_a_format_that_only_the_output_declares_turns_nothing() -> None:
    row, declared = (
        np.arange(5, dtype="f4").reshape(1, 1, 5, 1),
        TensorSpec(DataType.FLOAT32, (1, 1, 5, 1), Format.NCHW),
    )
    np.testing.assert_array_equal(compute(N.MAX_POOL_FUSION, [row], {"kernel_size": (1, 1)}, (declared,)), row)


@pytest.mark.parametrize("block_bytes", [1, 200, 3000])
def test_convolution_in_blocks(monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    """However small the blocks, the result is the same."""
    for sample in (sample for sample in SAMPLES if sample.node_type is N.CONV2D_FUSION):
        arrays = sample.arrays()
        graph = graph_of(sample.node_type, pairs(sample, arrays), sample.attrs)
        whole = run(graph, arrays)
        with monkeypatch.context() as patch:
            patch.setattr(convolution, "BLOCK_BYTES", block_bytes)
            np.testing.assert_allclose(run(graph, arrays), whole, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("node_type", [N.MATMUL_FUSION, N.FULL_CONNECTION, N.LRN])
@pytest.mark.parametrize("steps", [1, 7, 100])
def test_work_in_pieces(monkeypatch: pytest.MonkeyPatch, node_type: NodeType, steps: int) -> None:
    """However small the pieces, the result is the same."""
    for sample in (sample for sample in SAMPLES if sample.node_type is node_type):
        arrays = sample.arrays()
        graph = graph_of(sample.node_type, pairs(sample, arrays), sample.attrs)
        whole = run(graph, arrays)
        with monkeypatch.context() as patch:
            for module in (pieces, normalization):
                patch.setattr(module, "PIECE_STEPS", steps)
            patch.setattr(pieces, "PIECE_PRODUCTS", steps)
            np.testing.assert_allclose(run(graph, arrays), whole, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "node_type",
    [
        N.ACTIVATION,
        N.ERF,
        N.AVGPOOL_FUSION,
        N.MAX_POOL_FUSION,
        N.INSTANCE_NORM,
        N.LAYER_NORM_FUSION,
        N.LOG_SOFTMAX,
        N.SOFTMAX,
        N.REDUCE_FUSION,
    ],
)
@pytest.mark.parametrize("cached", [1, 7, 100])
def test_work_in_parts_that_a_cache_holds(monkeypatch: pytest.MonkeyPatch, node_type: NodeType, cached: int) -> None:
    """However small the parts, the result is the same to the last bit."""
    for sample in (sample for sample in SAMPLES if sample.node_type is node_type):
        known = pairs(sample, sample.arrays())
        graph = graph_of(sample.node_type, known, sample.attrs)
        inputs = [array for array, (_, value) in zip(sample.arrays(), known, strict=True) if value is None]
        whole = run(graph, inputs)
        with monkeypatch.context() as patch:
            patch.setattr(pieces, "CACHED", cached)
            np.testing.assert_array_equal(run(graph, inputs), whole)


@pytest.mark.parametrize(
    ("node_type", "shapes", "attrs", "wanted"),
    [
        pytest.param(N.MATMUL_FUSION, [(2, 3, 4), (4, 5)], {}, 120, id="matmul"),
        pytest.param(N.MATMUL_FUSION, [(4, 3), (4, 5)], {"transpose_a": True}, 60, id="transposed"),
        pytest.param(N.FULL_CONNECTION, [(2, 3, 4), (5, 4)], {}, 120, id="fully connected"),
        pytest.param(N.CONV2D_FUSION, [(1, 8, 8, 2), (6, 3, 3, 1), (6,)], {"group": 2}, 6 * 6 * 54, id="convolution"),
        pytest.param(N.CONV2D_TRANSPOSE_FUSION, [(1, 2, 2, 2), (6, 3, 3, 2), (6,)], {}, 4 * 108, id="its transpose"),
        pytest.param(
            N.LSTM,
            [(5, 2, 3), (1, 16, 3), (1, 16, 4), (1, 32), (1, 2, 4), (1, 2, 4)],
            {},
            5 * 2 * (48 + 64),
            id="lstm",
        ),
        pytest.param(
            N.MAX_POOL_FUSION, [(1, 9, 8, 5)], {"kernel_size": (3, 2), "strides": (2, 1)}, 4 * 7 * 5 * 6, id="pool"
        ),
        pytest.param(
            N.AVGPOOL_FUSION,
            [(1, 4, 5, 2)],
            {"kernel_size": (9, 3), "pad_mode": PadMode.SAME},
            4 * 5 * 2 * 4 * 3,
            id="window larger than the image",
        ),
        pytest.param(N.AVGPOOL_FUSION, [(2, 4, 5, 3)], {"global": True}, 2 * 4 * 5 * 3, id="global pool"),
        pytest.param(N.LRN, [(1, 2, 3, 10)], {"depth_radius": 2}, 60 * 5, id="lrn"),
        pytest.param(N.LRN, [(1, 2, 3, 10)], {"depth_radius": 99}, 60 * 10, id="lrn of all channels"),
        pytest.param(N.DETECTION_POST_PROCESS, BOXES, {**BOXES_ATTRS}, 20 * 100 * 4, id="boxes"),
        pytest.param(
            N.DETECTION_POST_PROCESS,
            BOXES,
            {**BOXES_ATTRS, "use_regular_nms": True, "detections_per_class": 7},
            3 * 7 * 100 * 4,
            id="boxes class by class",
        ),
        pytest.param(
            N.DETECTION_POST_PROCESS, BOXES, {**BOXES_ATTRS, "max_detections": 999}, 100 * 100 * 4, id="all boxes"
        ),
        pytest.param(N.SQUARE, [(100,)], {}, 0, id="elementwise"),
    ],
)
@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.FLOAT16])
def test_multiply_adds(
    node_type: NodeType, shapes: list[tuple[int, ...]], attrs: dict[str, Any], wanted: int, data_type: DataType
) -> None:
    operands = [(TensorSpec(data_type, shape), None) for shape in shapes]
    graph = graph_of(node_type, operands, attrs, *infer_all(node_type, operands, attrs))
    inputs = [np.ones(shape, data_type.name.lower()) for shape in shapes]
    assert prepare(graph).sizes(inputs).multiply_adds == (wanted if data_type is DataType.FLOAT32 else wanted // 16)
