"""Images resized to sizes that only a run knows: ONNX Runtime's Resize does it, where the graph does just the same."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from nnrt_backend_onnxruntime.backend import create
from nnrt_backend_onnxruntime.kernels import Kernels
from nnrt_onnx_lowering.lowered import lower
from onnx_models import REFERENCE, AnyArray, Graph, run_imported, run_onnxruntime

from nnrt_client import from_onnx
from nnrt_client.model.model import parts_of
from nnrt_hdi.backend import Backend, Cancellation, ModelConfig
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Constant
from nnrt_hdi.graph import Graph as HdiGraph
from nnrt_hdi.ops import inferred_graph

N = NodeType
COORDINATES = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
# Rows and columns before and after: more, fewer, as many, from one and to one.
SIZES = [((3, 4), (6, 11)), ((7, 9), (3, 5)), ((5, 6), (5, 6)), ((1, 1), (4, 3)), ((5, 4), (1, 1)), ((3, 8), (7, 4))]
HALF = np.dtype(np.float16)
LINEAR: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
NEAREST: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
NAMES = ["batch", 2, "height", "width"]
# A node in whose place there could be another one.
OTHERS = {
    N.FLOOR: N.CEIL,
    N.CEIL: N.FLOOR,
    N.MINIMUM: N.MAXIMUM,
    N.MAXIMUM: N.MINIMUM,
    N.ADD_FUSION: N.SUB_FUSION,
    N.MUL_FUSION: N.ADD_FUSION,
    N.DIV_FUSION: N.MUL_FUSION,
}


@pytest.fixture(scope="module")
def backend() -> Backend:
    return create({"threads": "1"})


def resized_to_other(dtype: Any = np.float32, **how: Any) -> onnx.ModelProto:
    """An image brought to the size of another one."""
    g = Graph()
    x, other = g.input("x", NAMES, dtype), g.input("other", ["batch", 1, "rows", "columns"])  # type: ignore[arg-type]
    sizes = g.op("Concat", g.op("Shape", x, end=2), g.op("Shape", other, start=2), axis=0)
    return g.model(g.op("Resize", x, "", "", sizes, **how))


def fed(old: tuple[int, int], new: tuple[int, int], dtype: Any = np.float32) -> dict[str, AnyArray]:
    rng = np.random.default_rng(3)
    return {"x": rng.standard_normal((2, 2, *old)).astype(dtype), "other": np.zeros((2, 1, *new), np.float32)}


def lowered_nodes(graph: HdiGraph) -> list[onnx.NodeProto]:
    made = lower(inferred_graph(graph), Kernels([("CPUExecutionProvider", {})]))
    return list(made.model.graph.node)


def op_types(graph: HdiGraph) -> list[str]:
    """The nodes that a graph is lowered to."""
    return [node.op_type for node in lowered_nodes(graph)]


def measures_real_numbers(graph: HdiGraph) -> bool:
    """A shape is that of numbers that were dequantized for it."""
    nodes = lowered_nodes(graph)
    real = {node.output[0] for node in nodes if node.op_type == "DequantizeLinear"}
    return any(node.op_type == "Shape" and node.input[0] in real for node in nodes)


def require_resized(proto: onnx.ModelProto) -> None:
    kinds = op_types(parts_of(from_onnx(proto.SerializeToString())).graph)
    assert kinds.count("Resize") == 1
    assert not {"Range", "TopK", "Transpose", "Floor", "Where"} & set(kinds)


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["FLOAT32", "FLOAT16"])
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_weighted_pixels_are_resized(coordinates: str, dtype: Any, backend: Backend) -> None:
    proto = resized_to_other(dtype, mode="linear", coordinate_transformation_mode=coordinates)
    require_resized(proto)
    require_same(proto, backend, dtype)


@pytest.mark.parametrize("rounding", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("coordinates", [*COORDINATES, "tf_half_pixel_for_nn"])
def test_picked_pixels_are_resized(coordinates: str, rounding: str, backend: Backend) -> None:
    how = {"coordinate_transformation_mode": coordinates, "nearest_mode": rounding}
    proto = resized_to_other(mode="nearest", **how)
    require_resized(proto)
    require_same(proto, backend)


def require_same(proto: onnx.ModelProto, backend: Backend, dtype: Any = np.float32) -> None:
    model, tolerance = from_onnx(proto.SerializeToString()), 1e-5 if dtype is np.float32 else 2e-3
    for old, new in SIZES:
        feeds = fed(old, new, dtype)
        (mine,), (theirs,) = run_imported(model, feeds, backend), run_onnxruntime(proto, feeds)
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_an_image_enlarged_by_factors_is_resized(coordinates: str, backend: Backend) -> None:
    g = Graph()
    scales = g.constant(np.array([1, 1, 3, 2], np.float32))
    how = {"mode": "linear", "coordinate_transformation_mode": coordinates}
    proto = g.model(g.op("Resize", g.input("x", NAMES), "", scales, **how))  # type: ignore[arg-type]
    require_resized(proto)
    for old, _ in SIZES:
        feeds = {"x": fed(old, old)["x"]}
        (mine,), (theirs,) = (
            run_imported(from_onnx(proto.SerializeToString()), feeds, backend),
            run_onnxruntime(proto, feeds),
        )
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_columns_alone_are_resized(backend: Backend) -> None:
    g = Graph()
    x, width = g.input("x", NAMES), g.input("width", [1], np.int64)  # type: ignore[arg-type]
    proto = g.model(g.op("Resize", x, "", "", width, axes=[3], **LINEAR))
    require_resized(proto)
    feeds = {"x": fed((5, 4), (5, 4))["x"], "width": np.array([9])}
    (mine,), (theirs,) = (
        run_imported(from_onnx(proto.SerializeToString()), feeds, backend),
        run_onnxruntime(proto, feeds),
    )
    np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("how", [LINEAR, NEAREST], ids=["linear", "nearest"])
def test_quantized_pixels_are_resized(how: dict[str, Any], backend: Backend) -> None:
    g = Graph()
    x, other = g.input("x", NAMES), g.input("other", ["batch", 1, "rows", "columns"])  # type: ignore[arg-type]
    scaling = g.constant(np.float32(0.02)), g.constant(np.uint8(128))

    def rounded(real: str) -> str:
        dequantized: str = g.op("DequantizeLinear", g.op("QuantizeLinear", real, *scaling), *scaling)
        return dequantized

    image = rounded(x)
    sizes = g.op("Concat", g.op("Shape", image, end=2), g.op("Shape", other, start=2), axis=0)
    proto = g.model(rounded(g.op("Resize", image, "", "", sizes, **how)))
    require_resized(proto)
    assert not measures_real_numbers(parts_of(from_onnx(proto.SerializeToString())).graph)
    for old, new in SIZES:
        feeds = fed(old, new)
        (mine,), (theirs,) = (
            run_imported(from_onnx(proto.SerializeToString()), feeds, backend),
            run_onnxruntime(proto, feeds),
        )
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=0.0201)


def test_cubic_weights_are_computed(backend: Backend) -> None:
    """Four pixels along each dimension count: nothing that is recognised."""
    proto = resized_to_other(mode="cubic")
    assert "Resize" not in op_types(parts_of(from_onnx(proto.SerializeToString())).graph)
    feeds = fed((5, 6), (8, 9))
    (mine,), (theirs,) = (
        run_imported(from_onnx(proto.SerializeToString()), feeds, backend),
        run_onnxruntime(proto, feeds),
    )
    np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def near_misses(graph: HdiGraph) -> Iterator[HdiGraph]:
    """The graph with one number, or one node, changed."""
    for tensor, constant in graph.constants.items():
        data = constant.data
        if data is not None and data.dtype == np.float32:
            changed = Constant.of(np.asarray(data + np.float32(0.25)))
            yield replace(graph, constants={**graph.constants, tensor: changed})
    for at, node in enumerate(graph.nodes):
        if other := OTHERS.get(node.type):
            yield with_node(graph, at, replace(node, type=other))
        if node.type in (N.SUB_FUSION, N.DIV_FUSION):
            yield with_node(graph, at, replace(node, inputs=node.inputs[::-1]))


def with_node(graph: HdiGraph, at: int, node: Any) -> HdiGraph:
    return replace(graph, nodes=(*graph.nodes[:at], node, *graph.nodes[at + 1 :]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        LINEAR,
        {**LINEAR, "coordinate_transformation_mode": "align_corners"},
        {"mode": "nearest", "coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"},
    ],
    ids=lambda how: f"{how['mode']} {how['coordinate_transformation_mode']}",
)
def test_what_is_nearly_a_resizing_is_computed_as_it_is(how: dict[str, Any], backend: Backend) -> None:
    graph = parts_of(from_onnx(resized_to_other(**how).SerializeToString())).graph
    feeds = list(fed((5, 6), (7, 4)).values())
    compared = 0
    for changed in near_misses(graph):
        try:
            wanted = run(changed, feeds, REFERENCE)
        except NnrtError:
            # It picks pixels that there are not.
            assert "Range" in op_types(changed)
            continue
        np.testing.assert_allclose(run(changed, feeds, backend), wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
        compared += 1
    assert compared


def run(graph: HdiGraph, feeds: list[AnyArray], backend: Backend) -> AnyArray:
    prepared = backend.prepare(graph, ModelConfig(), lambda _: None)
    try:
        (y,) = prepared.run(feeds, Cancellation())
        return y
    finally:
        prepared.close()
