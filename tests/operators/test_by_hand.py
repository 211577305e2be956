"""Results worked out by hand, where no oracle has the operator, the type or the case."""

from typing import Any

import numpy as np
import pytest
from nnrt_backend_reference.kernels import convolution, normalization, pieces
from numpy.typing import NDArray

from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, PaddingMode, PadMode, ReduceMode
from nnrt_hdi.tensor import TensorSpec

from .samples import SAMPLES
from .single_node import compute, graph_of, of, pairs, run

AnyArray = NDArray[Any]
N = NodeType
NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])
def test_integer_division(dtype: str) -> None:
    lowest = np.iinfo(dtype).min
    a, b = of(7, -7, 7, -7, 5, -5, 0, lowest, dtype=dtype), of(2, 2, -2, -2, 0, 0, 0, -1, dtype=dtype)
    np.testing.assert_array_equal(compute(N.DIV_FUSION, [a, b]), [3, -3, -3, 3, 0, 0, 0, lowest])


def test_real_division_by_zero() -> None:
    np.testing.assert_array_equal(compute(N.DIV_FUSION, [of(1, -1, 0), of(0, 0, 0)]), [INF, -INF, NAN])


def test_integers_wrap_around() -> None:
    a, b = of(100, -100, 50, dtype="i1"), of(100, -100, 3, dtype="i1")
    np.testing.assert_array_equal(compute(N.ADD_FUSION, [a, b]), [-56, 56, 53])
    np.testing.assert_array_equal(compute(N.MUL_FUSION, [a, b]), [16, 16, -106])


@pytest.mark.parametrize("kind", [ActivationType.RELU, ActivationType.RELU6, ActivationType.RELU1])
def test_not_a_number_passes_a_relu(kind: ActivationType) -> None:
    result = compute(N.ACTIVATION, [of(NAN, -2)], {"activation_type": kind})
    assert np.isnan(result[0])
    assert result[1] == (-1 if kind is ActivationType.RELU1 else 0)


def test_extreme_activations() -> None:
    x = of(-1e4, 1e4)
    for kind, wanted in {
        ActivationType.SIGMOID: [0, 1],
        ActivationType.SOFTPLUS: [0, 1e4],
        ActivationType.TANH: [-1, 1],
        ActivationType.SWISH: [0, 1e4],
        ActivationType.GELU: [0, 1e4],
        ActivationType.HSWISH: [0, 1e4],
    }.items():
        np.testing.assert_array_equal(compute(N.ACTIVATION, [x], {"activation_type": kind}), wanted)


@pytest.mark.parametrize(
    ("numbers", "dtype", "code", "wanted"),
    [
        ([1.9, -1.9, 300, -300, INF, -INF, NAN], "f4", 2, [1, -1, 127, -128, 127, -128, 0]),
        ([1.9, -1.9, 3e9, -3e9], "f8", 4, [1, -1, 2**31 - 1, -(2**31)]),
        ([2.0**63, -(2.0**63), 1e30], "f4", 5, [2**63 - 1, -(2**63), 2**63 - 1]),
        ([-1, 6e4, INF], "f2", 6, [0, 255, 255]),
        ([300, -1], "i4", 6, [44, 255]),
        ([0, 0.5, NAN], "f4", 1, [False, True, True]),
        ([1e6, 1], "f4", 10, [INF, 1]),
        ([7], "i4", 43, [7.0]),
    ],
)
def test_cast(numbers: list[float], dtype: str, code: int, wanted: list[float]) -> None:
    result = compute(N.CAST, [np.array(numbers, dtype), of(code, dtype="i4")])
    np.testing.assert_array_equal(result, np.array(wanted, result.dtype))


@pytest.mark.parametrize(
    ("mode", "real", "integer"),
    [
        (ReduceMode.MEAN, NAN, 0),
        (ReduceMode.MAX, -INF, -128),
        (ReduceMode.MIN, INF, 127),
        (ReduceMode.PROD, 1, 1),
        (ReduceMode.SUM, 0, 0),
        (ReduceMode.SUM_SQUARE, 0, 0),
        (ReduceMode.ASUM, 0, 0),
        (ReduceMode.ALL, 1, 1),
        (ReduceMode.L2, 0, None),
    ],
)
def test_fold_of_nothing(mode: ReduceMode, real: float, integer: int | None) -> None:
    axis = of(1, dtype="i4")
    np.testing.assert_array_equal(compute(N.REDUCE_FUSION, [np.ones((2, 0), "f4"), axis], {"mode": mode}), [real] * 2)
    if integer is not None:
        result = compute(N.REDUCE_FUSION, [np.ones((2, 0), "i1"), axis], {"mode": mode})
        np.testing.assert_array_equal(result, [integer] * 2)


def test_mean_of_integers_rounds_towards_zero() -> None:
    x = of([1, 2], [-1, -2], dtype="i4")
    np.testing.assert_array_equal(compute(N.REDUCE_FUSION, [x, of(1, dtype="i4")]), [1, -1])


def test_coeff_counts_only_with_reduce_to_end() -> None:
    x, axis = of([1, 2], [3, 4]), of(0, dtype="i4")
    attrs = {"mode": ReduceMode.SUM, "coeff": 0.5}
    np.testing.assert_array_equal(compute(N.REDUCE_FUSION, [x, axis], attrs), [4, 6])
    assert compute(N.REDUCE_FUSION, [x, axis], {**attrs, "reduce_to_end": True}) == 5
    assert compute(N.REDUCE_FUSION, [x, axis], {**attrs, "reduce_to_end": True, "coeff": 1e-6}) == 10


def test_symmetric_padding_repeats_the_edge() -> None:
    x, paddings = of([1, 2, 3]), of((0, 0), (2, 3), dtype="i4")
    result = compute(N.PAD_FUSION, [x, paddings], {"padding_mode": PaddingMode.SYMMETRIC})
    np.testing.assert_array_equal(result, [[2, 1, 1, 2, 3, 3, 2, 1]])


def test_reshape_copies_dimensions_of_nothing() -> None:
    assert compute(N.RESHAPE, [np.ones((0, 3, 4), "f4"), of(0, -1, dtype="i8")]).shape == (0, 12)


def test_matmul_in_the_declared_type() -> None:
    a, b = of([100, 100], dtype="i1"), of([100], [1], dtype="i1")
    declared = (TensorSpec(DataType.INT32, (1, 1)),)
    np.testing.assert_array_equal(compute(N.MATMUL_FUSION, [a, b], {}, declared), [[10100]])
    np.testing.assert_array_equal(compute(N.MATMUL_FUSION, [a, b]), [[10100 - 39 * 256]])


def test_shape_in_the_declared_type() -> None:
    result = compute(N.SHAPE, [np.ones((2, 3), "f4")], {}, (TensorSpec(DataType.INT64, (2,)),))
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, [2, 3])


def test_softmax_does_not_overflow() -> None:
    np.testing.assert_array_equal(compute(N.SOFTMAX, [of(1e30, 1e30, -1e30)]), [0.5, 0.5, 0])


@pytest.mark.parametrize("axis", [0, 1])
def test_softmax_of_rows_that_need_their_maximum_and_others(axis: int) -> None:
    """Rows that overflow, underflow, are masked, or hold no number: none changes what another gives."""
    inf, nan = np.inf, np.nan
    x = of([0, 0], [100, 100], [-200, -200], [88.5, 88.5], [-inf, 3], [-inf, -inf], [inf, 0], [nan, 0], [-60, -160])
    half, none = [0.5, 0.5], [nan, nan]
    right = np.array([half, half, half, half, [0, 1], none, none, none, [1, np.exp(-100.0)]], np.float32)
    result = compute(N.SOFTMAX, [x if axis == 1 else np.ascontiguousarray(x.T)], {"axis": (axis,)})
    np.testing.assert_allclose(result if axis == 1 else result.T, right, rtol=1e-6)


# A row of one channel, [1, 1, 5, 1], under windows with gaps between them.
ROW = np.arange(1, 6, dtype="f4").reshape(1, 1, 5, 1)
GAPS = {"pad_mode": PadMode.SAME}


@pytest.mark.parametrize("node_type", [N.MAX_POOL_FUSION, N.AVGPOOL_FUSION])
def test_same_pooling_with_gaps(node_type: NodeType) -> None:
    result = compute(node_type, [ROW], {"kernel_size": (1, 1), "strides": (1, 2), **GAPS})
    np.testing.assert_array_equal(result.reshape(-1), [1, 3, 5])


@pytest.mark.parametrize(("node_type", "right"), [(N.MAX_POOL_FUSION, -np.inf), (N.AVGPOOL_FUSION, np.nan)])
def test_pooling_of_an_image_without_rows(node_type: NodeType, right: float) -> None:
    """Its windows hold padding alone."""
    result = compute(node_type, [np.ones((1, 0, 3, 1), "f4")], {"kernel_size": (3, 1), "pad": (2, 2, 0, 0)})
    np.testing.assert_array_equal(result, np.full((1, 2, 3, 1), right, "f4"))


def test_same_convolution_with_gaps() -> None:
    ones = np.ones((1, 1, 1, 1), "f4")
    result = compute(N.CONV2D_FUSION, [ROW, ones, of(10)], {"stride": (1, 3), **GAPS})
    np.testing.assert_array_equal(result.reshape(-1), [11, 14])


def test_same_transposed_convolution_with_gaps() -> None:
    """Every pixel is followed by the gap of the stride, which holds the bias alone."""
    ones = np.ones((1, 1, 1, 1), "f4")
    result = compute(N.CONV2D_TRANSPOSE_FUSION, [ROW[:, :, :2], ones, of(10)], {"stride": (1, 2), **GAPS})
    np.testing.assert_array_equal(result.reshape(-1), [11, 10, 12, 10])


def test_same_transposed_convolution_with_output_padding() -> None:
    """Two windows of 3 at stride 2 cover 5, of which SAME keeps the first 4; the output padding adds the fifth."""
    ones = np.ones((1, 1, 3, 1), "f4")
    attrs = {"stride": (1, 2), "output_paddings": (0, 1), **GAPS}
    result = compute(N.CONV2D_TRANSPOSE_FUSION, [ROW[:, :, :2], ones, of(0)], attrs)
    np.testing.assert_array_equal(result.reshape(-1), [1, 1, 3, 2, 2])


def test_average_of_integers_rounds_towards_zero() -> None:
    x = of(1, 2, -1, -2, dtype="i1").reshape(1, 1, 4, 1)
    result = compute(N.AVGPOOL_FUSION, [x], {"kernel_size": (1, 2), "strides": (1, 2)})
    np.testing.assert_array_equal(result.reshape(-1), [1, -1])


def test_a_format_that_only_the_output_declares_turns_nothing() -> None:
    declared = (TensorSpec(DataType.FLOAT32, (1, 1, 5, 1), Format.NCHW),)
    result = compute(N.MAX_POOL_FUSION, [ROW], {"kernel_size": (1, 1)}, declared)
    np.testing.assert_array_equal(result, ROW)


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
