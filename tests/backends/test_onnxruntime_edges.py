"""Edges at which ONNX Runtime by itself means something else than NNRt, or isn't sure: by hand, and on two threads."""

import resource
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from net import Net
from nnrt_backend_onnxruntime.backend import OnnxRuntimeBackend
from nnrt_backend_onnxruntime.providers import ProviderDevice
from numpy.typing import NDArray
from operators.single_node import Pair, array_of, graph_of, spec, without_dims
from operators.tolerances import require_close

from nnrt_client.conformance import Case, Level, cases
from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import (
    ActivationType,
    CoordinateTransformMode,
    DataType,
    Format,
    NearestMode,
    NodeType,
    ReduceMode,
    ResizeMethod,
)
from nnrt_hdi.errors import NnrtError, OutOfMemory
from nnrt_hdi.tensor import QuantParam, data_type_of

AnyArray = NDArray[Any]
N = NodeType
BACKEND = OnnxRuntimeBackend(ProviderDevice("cpu", 0, 2))


def compute(node_type: NodeType, arrays: Sequence[AnyArray], attrs: Mapping[str, Any], *given: int) -> list[AnyArray]:
    """The outputs of a node, the operands `given` by the run and the others constants."""
    operands: list[Pair] = [
        (spec(array.shape, data_type_of(array.dtype)), None if at in given else array)
        for at, array in enumerate(arrays)
    ]
    model = BACKEND.prepare(graph_of(node_type, operands, attrs), ModelConfig(), lambda _: None)
    return model.run([arrays[at] for at in given], Cancellation())


ROWS = np.arange(24, dtype="f4").reshape(2, 3, 4)
CUTS = [case for case in cases(Level.VALUES) if "/STRIDED_SLICE-python_" in case.name and not case.is_dynamic]


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "unknown"])
@pytest.mark.parametrize("case", CUTS, ids=lambda case: case.name)
def test_positions_that_only_a_run_knows(case: Case, is_known: bool) -> None:
    """STRIDED_SLICE takes what Python takes, when some or all of its positions come with the run."""
    (node,) = case.graph.nodes
    (right,) = case.runs
    vectors = [np.asarray(case.graph.constants[at].data) for at in node.inputs[1:]]
    x: Pair = (case.graph.input_specs[0], None)
    for given in ((1,), (2,), (1, 2), (1, 2, 3)):
        operands = [
            (pair[0], None if at in given else vectors[at - 1]) for at, pair in enumerate(map(_pair, vectors), 1)
        ]
        graph = graph_of(node.type, [x if is_known else without_dims(x, 0, 2), *operands], node.attrs)
        model = BACKEND.prepare(graph, ModelConfig(), lambda _: None)
        outputs = model.run([*right.inputs, *(vectors[at - 1] for at in given)], Cancellation())
        assert [distance.reason for distance in case.distances(outputs, right)] == [""]


def test_an_element_that_is_not_there_is_refused_in_a_run() -> None:
    vectors = [np.array(numbers, "i8") for numbers in ((2,), (0,), (1,))]
    with pytest.raises(NnrtError, match="STRIDED_SLICE node 0"):
        compute(N.STRIDED_SLICE, [ROWS, *vectors], {"shrink_axis_mask": 1}, 0, 1, 2, 3)


@pytest.mark.parametrize("keep_dims", [True, False])
@pytest.mark.parametrize("axes", [(1,), (-1, 0)])
@pytest.mark.parametrize(
    ("mode", "fold"),
    [
        (ReduceMode.SUM, np.add),
        (ReduceMode.MAX, np.maximum),
        (ReduceMode.MIN, np.minimum),
        (ReduceMode.PROD, np.multiply),
    ],
)
def test_axes_that_only_a_run_knows(mode: ReduceMode, fold: np.ufunc, axes: Sequence[int], keep_dims: bool) -> None:
    wanted = fold.reduce(ROWS, axis=tuple(axes), keepdims=keep_dims)
    (y,) = compute(N.REDUCE_FUSION, [ROWS, np.array(axes)], {"mode": mode, "keep_dims": keep_dims}, 0, 1)
    assert y.shape == wanted.shape
    np.testing.assert_allclose(y, wanted, rtol=1e-5)


def _pair(vector: AnyArray) -> Pair:
    return spec(vector.shape, data_type_of(vector.dtype)), None


@pytest.mark.parametrize("old", [6, 7, 10, 49])
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i8", "?"])
def test_positions_of_pixels_are_exact(old: int, dtype: str) -> None:
    """Pixel i of new ones lies at i old / new, whatever their ratio is in floating point."""
    row = np.arange(old).astype(dtype)
    for new in (3, 7, 10, 21, 49, 98):
        attrs = {"method": ResizeMethod.NEAREST, "new_height": 1, "new_width": new, "nearest_mode": NearestMode.FLOOR}
        (y,) = compute(N.RESIZE, [row.reshape(1, 1, old, 1)], attrs, 0)
        np.testing.assert_array_equal(y.reshape(-1), row[np.arange(new) * old // new])


@pytest.mark.parametrize(("mode", "wanted"), [(NearestMode.NORMAL, [1, 3]), (NearestMode.ROUND_HALF_DOWN, [0, 2])])
def test_halves_of_pixels(mode: NearestMode, wanted: list[int]) -> None:
    attrs = {
        "method": ResizeMethod.NEAREST,
        "new_height": 1,
        "new_width": 2,
        "coordinate_transform_mode": CoordinateTransformMode.HALF_PIXEL,
        "nearest_mode": mode,
    }
    (y,) = compute(N.RESIZE, [np.arange(4, dtype="f4").reshape(1, 1, 4, 1)], attrs, 0)
    assert y.reshape(-1).tolist() == wanted


def test_updates_of_the_same_place_are_all_counted() -> None:
    """Many, so that threads would share them."""
    count = 1 << 18
    places = np.arange(count, dtype="i4").reshape(-1, 1) % 4
    (y,) = compute(N.SCATTER_ND, [places, np.ones((count, 2), "f4"), array_of(5, 2, dtype="i4")], {}, 0, 1)
    assert y.tolist() == [[count / 4] * 2] * 4 + [[0, 0]]
    places, values = np.zeros((count, 2), "i4"), np.arange(count, dtype="i4")
    (y,) = compute(N.SPARSE_TO_DENSE, [places, values, array_of(1, 2, dtype="i4")], {}, 0, 1)
    assert y.tolist() == [[count - 1, 0]]


@pytest.mark.parametrize("is_known", [True, False], ids=["constant", "given"])
@pytest.mark.parametrize(
    ("node_type", "arrays", "at"),
    [
        (N.GATHER, [array_of([1, 2], [3, 4]), array_of(0, -1, dtype="i4"), array_of(0, dtype="i4")], 1),
        (N.GATHER, [array_of([1, 2], [3, 4]), array_of(2, dtype="i8"), array_of(0, dtype="i4")], 1),
        (N.GATHER_ND, [array_of([1, 2], [3, 4]), array_of([0, -1], dtype="i4")], 1),
        (N.GATHER_ND, [array_of([1, 2], [3, 4]), array_of([0, 2], dtype="i8")], 1),
        # Inside, if positions were only counted.
        (N.SCATTER_ND, [array_of([0, 3], dtype="i4"), array_of(1), array_of(2, 3, dtype="i4")], 0),
        (N.SCATTER_ND, [array_of([1, -1], dtype="i8"), array_of(1), array_of(2, 3, dtype="i4")], 0),
        (N.SPARSE_TO_DENSE, [array_of([0, 3], dtype="i8"), array_of(1), array_of(2, 3, dtype="i4")], 0),
        (N.SPARSE_TO_DENSE, [array_of([1, -1], dtype="i4"), array_of(1), array_of(2, 3, dtype="i4")], 0),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_indices_outside(node_type: NodeType, arrays: list[AnyArray], at: int, is_known: bool) -> None:
    given = [index for index in (0, 1) if not (is_known and index == at)]
    with pytest.raises(NnrtError, match=r"out of data bounds|out of bounds|invalid ind"):
        compute(node_type, arrays, {}, *given)


@pytest.mark.parametrize("values", [[3, 2**32 - 1], [-(2**31), -1], [2**62 + 1, 2**62 + 2**31], [0, 2**63 - 1]])
def test_integers_of_64_bits_are_compared_whole(values: list[int]) -> None:
    """Long vectors, for which ONNX Runtime compares several at a time."""
    (low, high), count = values, 9
    a, b = np.full(count, low), np.full(count, high)
    for x, y in ((a, b), (b, a), (a, b[:1])):
        np.testing.assert_array_equal(compute(N.MAXIMUM, [x, y], {}, 0, 1)[0], b)
        np.testing.assert_array_equal(compute(N.MINIMUM, [x, y], {}, 0, 1)[0], a)
    row, axis = np.where(np.arange(count) == 4, high, low), array_of(0, dtype="i4")
    assert compute(N.REDUCE_FUSION, [row, axis], {"mode": ReduceMode.MAX}, 0)[0].item() == high
    assert compute(N.REDUCE_FUSION, [-1 - row, axis], {"mode": ReduceMode.MIN}, 0)[0].item() == -1 - high
    image = np.stack([row, a]).reshape(1, 3, 3, 2)
    everywhere: dict[str, Any] = {"global": True}
    assert compute(N.MAX_POOL_FUSION, [image], everywhere, 0)[0].max() == high
    relu = {"activation_type": ActivationType.RELU}
    np.testing.assert_array_equal(compute(N.ACTIVATION, [b], relu, 0)[0], np.maximum(b, 0))
    relu6 = {"activation_type": ActivationType.RELU6}
    np.testing.assert_array_equal(compute(N.ACTIVATION, [b], relu6, 0)[0], np.clip(b, 0, 6))


@pytest.mark.parametrize("layout", [Format.NHWC, Format.NCHW])
@pytest.mark.parametrize(
    ("dtype", "attrs", "wanted"),
    [
        # The windows hold the squares 1 + 4, 1 + 4 + 9 and 4 + 9.
        ("f8", {}, [1 / 6**0.5, 2 / 15**0.5, 3 / 14**0.5]),
        ("f4", {"alpha": 0.0, "bias": 4.0}, [0.5, 1, 1.5]),
        ("f4", {"beta": -1.0}, [6, 30, 42]),
    ],
)
def test_windows_that_onnx_has_no_kernel_for(
    layout: Format, dtype: str, attrs: dict[str, float], wanted: list[float]
) -> None:
    x = array_of(1, 2, 3, dtype=dtype).reshape((1, 1, 1, 3) if layout is Format.NHWC else (1, 3, 1, 1))
    graph = graph_of(N.LRN, [(spec(x.shape, data_type_of(x.dtype), layout), None)], {"depth_radius": 1, **attrs})
    (y,) = BACKEND.prepare(graph, ModelConfig(), lambda _: None).run([x], Cancellation())
    require_close(y, np.array(wanted, dtype).reshape(x.shape))


@pytest.mark.parametrize("layout", [Format.NHWC, Format.NCHW])
def test_standardized_images_of_any_size(layout: Format) -> None:
    """Also of none, which ONNX Runtime would read beyond its memory; somebody asks for the sum of it."""
    net, pixels = Net(layout), (1, 2) if layout is Format.NHWC else (2, 3)
    shape = [2, 3, 3, 3]
    for axis in pixels:
        shape[axis] = -1
    ones, zeros = (net.constant(np.full(3, number, np.float32)) for number in (1, 0))
    y = net.op(N.INSTANCE_NORM, net.input(*shape), ones, zeros)
    total = net.op(N.REDUCE_FUSION, net.op(N.ABS, y), net.constant(array_of(*pixels, dtype="i4")), mode=ReduceMode.SUM)
    model = BACKEND.prepare(net.graph(y, total), ModelConfig(), lambda _: None)
    x = np.random.default_rng(0).standard_normal((2, 3, 3, 3)).astype(np.float32)
    wanted = (x - x.mean(pixels, keepdims=True)) / x.std(pixels, keepdims=True)
    require_close(np.asarray(model.run([x], Cancellation())[0]), wanted)
    empty = np.zeros([0 if dim == -1 else dim for dim in shape], np.float32)
    with pytest.raises(NnrtError):
        model.run([empty], Cancellation())


def test_no_channels_in_groups() -> None:
    """Of a transposed convolution, to the number of which nothing is known of the image."""
    net = Net()
    x = net.input(1, -1, -1, 4)
    y = net.op(N.CONV2D_TRANSPOSE_FUSION, x, net.weights(0, 2, 2, 2), net.weights(0), group=2)
    (result,) = BACKEND.prepare(net.graph(y), ModelConfig(), lambda _: None).run(
        [np.ones((1, 3, 3, 4), "f4")], Cancellation()
    )
    assert result.shape == (1, 4, 4, 0)


def test_a_window_beyond_all_channels() -> None:
    x, attrs = array_of(1, 2, 3).reshape(1, 1, 1, 3), {"depth_radius": 2**62, "bias": 2.0, "beta": 1.0}
    np.testing.assert_allclose(compute(N.LRN, [x], attrs, 0)[0].reshape(3), [1 / 16, 2 / 16, 3 / 16], rtol=1e-6)
    (support,) = BACKEND.supported(graph_of(N.LRN, [without_dims((spec(x.shape), None), 3)], attrs))
    assert "channels whose number is not known" in support.reason


@pytest.mark.parametrize(("node_type", "shape", "wanted"), [(N.SOFTMAX, (4,), 2), (N.ABS, (), 1)])
def test_elements_without_scale_stand_for_zero(node_type: NodeType, shape: tuple[int, ...], wanted: int) -> None:
    x = replace(spec(shape, DataType.INT8), quant=(QuantParam(0.0, 0),))
    y = replace(x, quant=(QuantParam(0.25, 1),))
    model = BACKEND.prepare(graph_of(node_type, [(x, None)], {}, y), ModelConfig(), lambda _: None)
    elements = array_of(5, -128, 0, 127, dtype="i1")[: int(np.prod(shape))].reshape(shape)
    np.testing.assert_array_equal(model.run([elements], Cancellation())[0], np.full(shape, wanted))


@pytest.mark.parametrize("regular", [False, True])
@pytest.mark.parametrize(
    ("attrs", "wanted"),
    [
        ({}, [0.9, 0.75, 0.25, 0]),
        ({"nms_io_u_threshold": 0.625}, [0.9, 0.75, 0.5, 0.25]),
        ({"nms_score_threshold": 0.75}, [0.9, 0.75, 0, 0]),
        ({"nms_score_threshold": 1.0}, [0, 0, 0, 0]),
        ({"max_detections": 1}, [0.9]),
        ({"max_detections": 0}, []),
    ],
)
def test_detections(attrs: dict[str, Any], wanted: list[float], regular: bool) -> None:
    """Four boxes of one class, their anchors; 1 and 2 overlap by 3/5, 0 has no area. A score may be the threshold."""
    boxes, scores = np.zeros((1, 4, 4), "f4"), array_of([[0.9], [0.5], [0.75], [0.25]])
    anchors = array_of([4, 4, 0, 2], [1, 1, 2, 2], [1, 1.5, 2, 2], [8, 8, 2, 2])
    common = {"scale": (1.0,) * 4, "num_classes": 1, "nms_io_u_threshold": 0.5, "max_detections": 4}
    every = {**common, **attrs, "use_regular_nms": regular}
    corners, _, found, count = compute(N.DETECTION_POST_PROCESS, [boxes, scores, anchors], every, 0, 1, 2)
    np.testing.assert_array_equal(found, array_of(wanted))
    assert count == np.count_nonzero(wanted)
    assert corners.shape == (1, len(wanted), 4)


def test_detections_among_no_boxes() -> None:
    operands = [np.zeros(shape, "f4") for shape in ((1, 0, 4), (1, 0, 2), (0, 4))]
    pairs = [without_dims((spec(array.shape), None), axis) for array, axis in zip(operands, (1, 1, 0), strict=True)]
    attrs = {"scale": (1.0,) * 4, "num_classes": 2, "nms_io_u_threshold": 0.5, "max_detections": 3}
    for regular in (False, True):
        graph = graph_of(N.DETECTION_POST_PROCESS, pairs, {**attrs, "use_regular_nms": regular})
        for output in BACKEND.prepare(graph, ModelConfig(), lambda _: None).run(operands, Cancellation()):
            assert not output.any()


@pytest.mark.parametrize(
    ("node_type", "arrays", "attrs"),
    [
        (N.ONE_HOT, [array_of(1, dtype="i4"), array_of(2**28, dtype="i4"), array_of(7), array_of(8)], {}),
        (N.RANGE, [array_of(1)], {"limit": 2**28}),
        (N.FILL, [array_of(7), array_of(2**14, 2**14, dtype="i4")], {}),
        (N.SCATTER_ND, [array_of([0], dtype="i4"), array_of(7), array_of(2**28, dtype="i4")], {}),
        (N.RESIZE, [np.zeros((1, 2, 2, 1), "f4")], {"new_height": 2**14, "new_width": 2**14}),
        (N.RESIZE, [np.zeros((1, 2, 2, 1), "f8")], {"new_height": 2**28, "new_width": 1}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_what_is_too_large_is_not_made_to_be_refused(
    node_type: NodeType, arrays: list[AnyArray], attrs: Mapping[str, Any]
) -> None:
    operands: list[Pair] = [(spec(array.shape, data_type_of(array.dtype)), array) for array in arrays]
    graph = graph_of(node_type, operands, attrs)
    before = peak_bytes()
    assert BACKEND.supported(graph)[0].supported
    with pytest.raises(OutOfMemory, match="are allowed"):
        BACKEND.prepare(graph, ModelConfig(max_tensor_bytes=1 << 20), lambda _: None)
    assert peak_bytes() - before < 1 << 28


def peak_bytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
