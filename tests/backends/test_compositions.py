"""Nodes that the ONNX Runtime backend lowers together as one operator, and those like them that it doesn't."""

from typing import Any

import numpy as np
import pytest
from onnxruntime_graphs import AnyArray, Net, lowered, op_types, reference, require_close, run

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
