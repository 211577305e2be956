"""Images resized and rearranged, and boxes, where no oracle has the case: by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from loaded import loaded

from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import CoordinateTransformMode, DataType, Format, NearestMode, NodeType, ResizeMethod
from nnrt_hdi.errors import OutOfMemory
from nnrt_hdi.tensor import QuantParam, data_type_of

from .refusals.case import t
from .single_node import (
    AnyArray,
    array_of,
    compute,
    graph_of,
    infer,
    infer_all,
    prepare,
    run,
    run_all,
    spec,
    without_dims,
)

N = NodeType
ROW = np.arange(4, dtype="f4").reshape(1, 1, 4, 1)


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        (NearestMode.NORMAL, [1, 3]),
        (NearestMode.ROUND_HALF_DOWN, [0, 2]),
        (NearestMode.ROUND_HALF_UP, [1, 3]),
        (NearestMode.FLOOR, [0, 2]),
        (NearestMode.CEIL, [1, 3]),
    ],
)
def test_halves(mode: NearestMode, wanted: list[int]) -> None:
    """With HALF_PIXEL two of four pixels lie at 0.5 and 2.5."""
    attrs = {
        "method": ResizeMethod.NEAREST,
        "new_height": 1,
        "new_width": 2,
        "coordinate_transform_mode": CoordinateTransformMode.HALF_PIXEL,
        "nearest_mode": mode,
    }
    np.testing.assert_array_equal(compute(N.RESIZE, [ROW], attrs).reshape(2), wanted)


def test_positions_are_exact() -> None:
    """Pixel i of 49 lies at i of the 7 old ones / 7, whatever 1 / 7 is in floating point."""
    attrs = {"method": ResizeMethod.NEAREST, "new_height": 1, "new_width": 49, "nearest_mode": NearestMode.FLOOR}
    row = np.arange(7).reshape(1, 1, 7, 1)
    np.testing.assert_array_equal(compute(N.RESIZE, [row], attrs).reshape(-1), np.arange(7).repeat(7))


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [((4, 6), (3, 3), (2, 3)), ((3, 2), (4, 4), (4, 3)), ((100, 1), (10, 10), (10, 1)), ((2, 5), (9, 1), (1, 1))],
)
def test_the_ratio_of_the_image(old: tuple[int, int], new: tuple[int, int], wanted: tuple[int, int]) -> None:
    """3 rows of 4, so 3 / 6 of the width; 4 / 3 of 2 columns are 2.7; none is left without a pixel."""
    attrs = {"new_height": new[0], "new_width": new[1], "preserve_aspect_ratio": True}
    assert infer(N.RESIZE, [t(1, *old, 1)], attrs).shape == (1, *wanted, 1)
    assert infer(N.RESIZE, [t(1, 1, *old, layout=Format.NCHW)], attrs).shape == (1, 1, *wanted)


def test_resize_of_nothing() -> None:
    assert compute(N.RESIZE, [np.zeros((0, 4, 6, 3), "f4")], {"new_height": 2, "new_width": 9}).shape == (0, 2, 9, 3)


def test_images_that_are_too_large() -> None:
    size = {"new_height": 1 << 20, "new_width": 1 << 20}
    blocks = {"block_shape": (1, 1), "paddings": ((1 << 20, 0), (1 << 20, 0))}
    for node_type, attrs in ((N.RESIZE, size), (N.SPACE_TO_BATCH_ND, blocks)):
        with pytest.raises(
            OutOfMemory, match=rf"{node_type.name} node 0: FLOAT32\[.*\] needs \d+ bytes; at most \d+ are allowed"
        ):
            prepare(graph_of(node_type, [t(1, 4, 4, 1)], attrs), max_tensor_bytes=1 << 30)


@pytest.mark.parametrize("layout", [Format.NHWC, Format.NCHW])
def test_batch_to_space_is_the_inverse(layout: Format) -> None:
    x = np.arange(2 * 3 * 5 * 7).reshape(2, 3, 5, 7)
    borders = ((1, 2), (3, 0))
    there, back = {"block_shape": (2, 1), "paddings": borders}, {"block_shape": (2, 1), "crops": borders}
    if layout is Format.NHWC:
        x = np.moveaxis(x, 1, 3).copy()
    blocks = run(graph_of(N.SPACE_TO_BATCH_ND, [(spec(x.shape, DataType.INT64, layout), None)], there), [x])
    again = run(graph_of(N.BATCH_TO_SPACE_ND, [(spec(blocks.shape, DataType.INT64, layout), None)], back), [blocks])
    np.testing.assert_array_equal(again, x)


def test_quantized_border_stands_for_zero() -> None:
    x = replace(spec((1, 1, 1, 1), DataType.INT8), quant=(QuantParam(0.5, 3),))
    attrs = {"block_shape": (1, 2), "paddings": ((0, 0), (0, 1))}
    graph = graph_of(N.SPACE_TO_BATCH_ND, [(x, None)], attrs)
    assert graph.output_specs[0].quant == x.quant
    np.testing.assert_array_equal(run(graph, [array_of(9, dtype="i1").reshape(1, 1, 1, 1)]).reshape(-1), [9, 3])


def detect(dtype: str, **attrs: Any) -> list[AnyArray]:
    """Four boxes of one class, without offsets: their anchors. 1 and 2 overlap by 3/5; 3 lies apart, 0 has no area."""
    boxes, scores = np.zeros((1, 4, 4), dtype), array_of([[0.9], [0.5], [0.75], [0.25]], dtype=dtype)
    anchors = array_of([4, 4, 0, 2], [1, 1, 2, 2], [1, 1.5, 2, 2], [8, 8, 2, 2], dtype=dtype)
    common = {"scale": (1.0,) * 4, "num_classes": 1, "nms_io_u_threshold": 0.5, "max_detections": 4}
    operands = [(spec(array.shape, data_type_of(array.dtype)), array) for array in (boxes, scores, anchors)]
    return run_all(graph_of(N.DETECTION_POST_PROCESS, operands, {**common, **attrs}), [])


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("regular", [False, True])
def test_detections(dtype: str, regular: bool) -> None:
    """Box 1, which 2 has beaten, goes; a box without area overlaps none. The rows left are 0; all is of one type."""
    boxes, classes, scores, count = detect(dtype, use_regular_nms=regular)
    assert {array.dtype for array in (boxes, classes, scores, count)} == {np.dtype("f2" if dtype == "f2" else "f4")}
    np.testing.assert_array_equal(boxes, [[[4, 3, 4, 5], [0, 0.5, 2, 2.5], [7, 7, 9, 9], [0, 0, 0, 0]]])
    np.testing.assert_allclose(scores, [[0.9, 0.75, 0.25, 0]], rtol=1e-3)
    np.testing.assert_array_equal(classes, [[0, 0, 0, 0]])
    np.testing.assert_array_equal(count, [3])


@pytest.mark.parametrize("backend", ["reference", "onnxruntime"])
@pytest.mark.parametrize("coordinates", [4, 7])
@pytest.mark.parametrize("declared", [DataType.FLOAT16, DataType.FLOAT32])
def test_detections_of_halves(backend: str, coordinates: int, declared: DataType) -> None:
    """As the model declares them, whatever else a box says, also where only the run knows how much that is."""
    boxes = np.full((1, 2, coordinates), 9, np.float16)
    boxes[..., :4] = 0
    scores, anchors = array_of([[0.25, 0.75], [0.5, 0]], dtype="f2"), array_of([4, 4, 2, 2], [8, 8, 4, 4], dtype="f2")
    arrays = [boxes, scores, anchors]
    attrs = {"scale": (1.0,) * 4, "num_classes": 2, "nms_io_u_threshold": 0.5, "max_detections": 3}
    fixed = [(spec(array.shape, DataType.FLOAT16), None) for array in arrays]
    known = infer_all(N.DETECTION_POST_PROCESS, fixed, attrs)
    assert {output.data_type for output in known} == {DataType.FLOAT16}
    outputs = [replace(output, data_type=declared) for output in known]
    for operands in (fixed, [without_dims(operand) for operand in fixed]):
        graph = graph_of(N.DETECTION_POST_PROCESS, operands, attrs, *outputs)
        model = loaded(backend).prepare(graph, ModelConfig(), lambda _: None)
        found = model.run(arrays, Cancellation())
        assert {array.dtype for array in found} == {outputs[0].numpy_dtype}
        corners, classes, best, count = (array.tolist() for array in found)
        assert corners == [[[3, 3, 5, 5], [6, 6, 10, 10], [0, 0, 0, 0]]]
        assert (classes, best, count) == ([[1, 0, 0]], [[0.75, 0.5, 0]], [2])


@pytest.mark.parametrize(
    ("attrs", "wanted"),
    [
        ({"nms_io_u_threshold": 0.625}, [0.9, 0.75, 0.5, 0.25]),
        ({"nms_score_threshold": 0.5}, [0.9, 0.75, 0, 0]),
        ({"max_detections": 1}, [0.9]),
        ({"max_detections": 0}, []),
        ({"detections_per_class": 2}, [0.9, 0.75, 0, 0]),
        ({"nms_score_threshold": 1.0}, [0, 0, 0, 0]),
    ],
)
def test_limits_of_detections(attrs: dict[str, Any], wanted: list[float]) -> None:
    _, _, scores, count = detect("f4", use_regular_nms=True, **attrs)
    np.testing.assert_array_equal(scores, array_of(wanted))
    assert count == np.count_nonzero(wanted)
