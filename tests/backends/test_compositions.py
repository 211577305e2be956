"""Nodes that the ONNX Runtime backend lowers together as one operator, and those like them that it doesn't."""

from typing import Any

import numpy as np
import pytest
from net import AnyArray, Net
from nnrt_backend_onnxruntime.processor import integer_kernels
from onnxruntime_graphs import lowered, op_types, reference, require_close, run, run_lowered

from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.graph import Graph

N = NodeType


def enlarged_by_positions(axes: tuple[int, int], data_type: DataType, positions: Any) -> Graph:
    """An image of 3 rows and 4 columns, of which a GATHER picks rows, and another one columns."""
    net = Net(Format.NHWC if axes == (1, 2) else Format.NCHW)
    shape = [2, 2, 2, 2]
    shape[axes[0]], shape[axes[1]] = 3, 4
    x = net.input(*shape, data_type=data_type)
    for axis in axes:
        x = net.op(N.GATHER, x, net.constant(positions(shape[axis])), net.constant(np.array(axis)))
    return net.graph(x)


def doubled(size: int) -> AnyArray:
    return np.repeat(np.arange(size), 2)


def image(graph: Graph) -> AnyArray:
    (spec,) = graph.input_specs
    return np.random.default_rng(1).integers(0, 100, spec.shape).astype(spec.numpy_dtype)


@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.UINT8, DataType.FLOAT16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("axes", [(1, 2), (2, 3), (2, 1), (3, 2)], ids=str)
def test_pixels_picked_to_be_squares_are_resized(axes: tuple[int, int], data_type: DataType) -> None:
    graph = enlarged_by_positions(axes, data_type, doubled)
    assert [kind for kind in op_types(lowered(graph).model) if kind != "Cast"] == ["Resize"]
    require_close(run(graph, image(graph)), reference(graph, image(graph)))


@pytest.mark.parametrize(
    ("data_type", "positions"),
    [
        (DataType.INT64, doubled),
        (DataType.FLOAT32, np.arange),
        (DataType.FLOAT32, lambda size: np.repeat(np.arange(size), 2)[::-1].copy()),
        (DataType.FLOAT32, lambda size: np.repeat(np.arange(size - 1), 2)),
    ],
    ids=["no kernel", "as they are", "backwards", "without the last"],
)
def test_other_positions_are_picked(data_type: DataType, positions: Any) -> None:
    graph = enlarged_by_positions((2, 3), data_type, positions)
    assert op_types(lowered(graph).model).count("Gather") == 2
    require_close(run(graph, image(graph)), reference(graph, image(graph)))


@pytest.mark.parametrize(
    ("layout", "mode", "is_resized"),
    [(Format.NCHW, "DCR", True), (Format.NHWC, "", True), (Format.NCHW, "CRD", False)],
    ids=["NCHW", "NHWC", "other channels"],
)
def test_channels_repeated_and_laid_out_are_resized(layout: Format, mode: str, is_resized: bool) -> None:
    net = Net(layout)
    channels = 1 if layout is Format.NCHW else 3
    shape = [2, 3, 4, 5]
    multiples = [4 if axis == channels else 1 for axis in range(4)]
    y = net.op(N.TILE_FUSION, net.input(*shape), net.constant(np.array(multiples)))
    graph = net.graph(net.op(N.DEPTH_TO_SPACE, y, block_size=2, mode=mode), y)
    assert ("Resize" in op_types(lowered(graph).model)) == is_resized
    require_close(run(graph, image(graph)), reference(graph, image(graph)))


@pytest.mark.parametrize("is_constant", [False, True])
def test_factors_of_a_product_stand_behind_it(is_constant: bool) -> None:
    """Not of one by a constant, where they may be a part of an activation."""
    net = Net(Format.NONE)
    a = net.op(N.MUL_FUSION, net.input(2, 3, 4), net.constant(np.array([0.5], np.float32)))
    b = net.weights(2, 4, 5) if is_constant else net.input(2, 4, 5)
    graph = net.graph(net.op(N.MATMUL_FUSION, a, b))
    assert op_types(lowered(graph).model) == (["Mul", "MatMul"] if is_constant else ["MatMul", "Mul"])
    given = [np.random.default_rng(3).standard_normal(spec.shape).astype(np.float32) for spec in graph.input_specs]
    require_close(run(graph, *given), reference(graph, *given))


@pytest.mark.parametrize("rank", [0, 2, 3])
def test_products_of_integers_less_their_zero_points(rank: int) -> None:
    """A zero point of a higher rank than the matrix gives the product that rank, which MatMulInteger can't."""
    net = Net(Format.NONE)
    int32 = net.constant(np.array(DataType.INT32.value))
    a = net.op(N.CAST, net.input(2, 4, data_type=DataType.UINT8), int32)
    b = net.constant(np.arange(12, dtype=np.int32).reshape(4, 3))
    less = net.op(N.SUB_FUSION, b, net.constant(np.full((1,) * rank, 5, np.int32)))
    graph = net.graph(net.op(N.MATMUL_FUSION, a, less))
    assert ("MatMulInteger" in op_types(lowered(graph).model)) == (rank < 3)
    given = np.arange(8, dtype=np.uint8).reshape(2, 4)
    (result,) = run(graph, given)
    np.testing.assert_array_equal(
        result, np.matmul(given.astype(np.int32), np.arange(12).reshape(4, 3) - np.full((1,) * rank, 5))
    )


def blocked_product(data_type: DataType, largest: int, points: AnyArray, block: int = 32) -> Graph:
    """A product with the transpose of a matrix of 6 rows of 3 blocks, as the importer writes MatMulNBits."""
    net = Net(Format.NONE)
    dtype = data_type.name.lower()
    steps = net.constant(net.random.integers(0, largest + 1, (6, 3, block)).astype(np.uint8))
    wide = net.op(N.CAST, steps, net.constant(np.array(data_type.value)))
    scale = net.constant(net.random.uniform(0.01, 0.1, (6, 3, 1)).astype(dtype))
    real = net.op(N.MUL_FUSION, net.op(N.SUB_FUSION, wide, net.constant(points.astype(dtype))), scale)
    matrix = net.op(N.RESHAPE, real, net.constant(np.array([6, 3 * block])))
    return net.graph(net.op(N.MATMUL_FUSION, net.input(2, 5, 3 * block, data_type=data_type), matrix, transpose_b=True))


@pytest.mark.parametrize("data_type", [DataType.FLOAT32, DataType.FLOAT16], ids=lambda kind: kind.name)
@pytest.mark.parametrize("points", [np.array(8), np.arange(18).reshape(6, 3, 1) % 16], ids=["one", "of blocks"])
@pytest.mark.parametrize("largest", [15, 255])
def test_a_weight_of_few_bits_is_kept_in_them(data_type: DataType, largest: int, points: AnyArray) -> None:
    graph = blocked_product(data_type, largest, points)
    assert [kind for kind in op_types(lowered(graph).model) if kind != "Cast"] == ["MatMulNBits"]
    given = (image(graph) / 100).astype(data_type.name.lower())
    (actual,), (wanted,) = run(graph, given), reference(graph, given)
    tolerance = 1e-5 if given.dtype == np.float32 else 5e-3
    assert np.abs(actual - wanted).max() <= tolerance * np.abs(wanted).max()


@pytest.mark.parametrize(
    ("points", "block"), [(np.array(7.5), 32), (np.array(-1), 32), (np.array(300), 32), (np.array(8), 24)], ids=str
)
def test_other_blocks_are_multiplied_out(points: AnyArray, block: int) -> None:
    graph = blocked_product(DataType.FLOAT32, 15, points, block)
    assert "MatMulNBits" not in op_types(lowered(graph).model)
    given = image(graph) / 100
    require_close(run(graph, given.astype(np.float32)), reference(graph, given.astype(np.float32)))


def integer_convolution(layout: Format, fraction: float = 0, is_less: bool = True) -> Graph:
    """As the importer writes ConvInteger that is read as real numbers."""
    net = Net(layout)
    shape = (2, 5, 6, 4) if layout is Format.NHWC else (2, 4, 5, 6)
    taps = (3, 2, 2, 4) if layout is Format.NHWC else (3, 4, 2, 2)
    float32 = net.constant(np.array(DataType.FLOAT32.value))
    x = net.op(N.CAST, net.input(*shape, data_type=DataType.UINT8), float32)
    if is_less:
        x = net.op(N.SUB_FUSION, x, net.op(N.CAST, net.input(data_type=DataType.UINT8), float32))
    weight = net.constant(net.random.integers(-128, 128, taps).astype(np.float32) + np.float32(fraction))
    bias = net.constant(np.zeros(3, np.float32))
    return net.graph(net.op(N.CONV2D_FUSION, x, weight, bias, stride=(1, 2), pad_list=(1, 0, 2, 1)))


@pytest.mark.parametrize("is_less", [False, True])
@pytest.mark.parametrize("layout", [Format.NCHW, Format.NHWC], ids=lambda layout: layout.name)
def test_convolutions_of_integers_are_computed_as_such(layout: Format, is_less: bool) -> None:
    graph = integer_convolution(layout, is_less=is_less)
    made = lowered(graph, integer_kernels(frozenset({"sse2", "avx512_vnni"})))
    assert "ConvInteger" in op_types(made.model)
    given = image(integer_convolution(layout, is_less=False)) * 2
    feeds = (given, np.array(7, np.uint8)) if is_less else (given,)
    (actual,), (wanted,) = run_lowered(made, *feeds), reference(graph, *feeds)
    np.testing.assert_array_equal(actual, wanted)


def test_other_convolutions_are_of_real_numbers() -> None:
    graph = integer_convolution(Format.NCHW, fraction=0.5)
    x86 = integer_kernels(frozenset({"sse2", "avx512_vnni"}))
    assert "ConvInteger" not in op_types(lowered(graph, x86).model)
    assert "ConvInteger" not in op_types(lowered(integer_convolution(Format.NCHW)).model)


def test_equal_numbers_are_counted_not_sorted() -> None:
    """As the importer writes a Range whose end only a run knows."""
    net = Net()
    size = net.input(1, data_type=DataType.INT32)
    equals = net.op(N.FILL, net.weights(1), size, outputs=[net.spec((-1,))])
    values = net.spec((-1,)), net.spec((-1,), DataType.INT32)
    net.op(
        N.TOPK_FUSION, equals, net.op(N.CAST, size, net.constant(np.array(DataType.INT64, np.int32))), outputs=values
    )
    graph = net.graph(len(net.tensors) - 1)
    assert [kind for kind in op_types(lowered(graph).model) if kind != "Cast"] == ["Squeeze", "Range"]
    for count in (0, 1, 5):
        (order,) = run(graph, np.array([count], np.int32))
        assert (order.dtype.name, order.tolist()) == ("int32", list(range(count)))


def test_of_the_sizes_that_a_network_picks_and_joins_only_the_unknown_are_made_in_a_run() -> None:
    """The shape of one image with height and width of another, as networks ask to have it resized."""
    net = Net(Format.NCHW)
    x, like = net.input(-1, 3, -1, -1), net.input(-1, 5, -1, -1)
    axis = net.constant(np.array(0, np.int32))

    def part(of: int, *places: int) -> int:
        sizes = net.op(N.SHAPE, of, outputs=[net.spec((4,), DataType.INT64)])
        return net.op(N.GATHER, sizes, net.constant(np.array(places)), axis)

    def size(of: int, place: int) -> int:
        sizes = net.op(N.SHAPE, of, outputs=[net.spec((4,), DataType.INT64)])
        return net.op(N.UNSQUEEZE, net.op(N.GATHER, sizes, net.constant(np.array(place)), axis), axis=(0,))

    wanted = net.op(N.CONCAT, part(x, 0, 1), net.op(N.CONCAT, size(like, 2), size(like, 3), axis=0), axis=0)
    graph = net.graph(wanted)
    assert op_types(lowered(graph).model) == ["Shape", "Shape", "Shape", "Concat"]
    images = np.ones((2, 3, 4, 5), np.float32), np.ones((1, 5, 6, 7), np.float32)
    assert run(graph, *images)[0].tolist() == [2, 3, 6, 7]
