"""Graphs with which torch's libraries crash if they get their numbers as they are."""

from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from loaded import loaded
from operators.single_node import graph_of, infer_all, spec

from nnrt_hdi.backend import Backend, Cancellation, ModelConfig, RunEnd, StartableModel, load_backend
from nnrt_hdi.enums import ActivationType, DataType, Format, NodeType, PadMode
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.tensor import Shape

pytest.importorskip("torch", reason="needs torch: `make test-torch` has it")

CONVOLUTION, TRANSPOSED = NodeType.CONV2D_FUSION, NodeType.CONV2D_TRANSPOSE_FUSION
LARGE = 2**31 - 1


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    backend = load_backend("torch")
    yield backend
    backend.close()


@pytest.mark.parametrize(
    ("node_type", "image", "taps", "attrs"),
    [
        (CONVOLUTION, (1, 1, 5, 64), (2, 1, 4, 16), {"stride": (1, 1 << 30), "pad_mode": PadMode.SAME}),
        (CONVOLUTION, (1, 1, 5, 5), (2, 1, 1, 1), {"dilation": (LARGE, LARGE)}),
        (CONVOLUTION, (1, 1, 1, 1), (1, 1, 2, 2), {"pad_list": (1, 1, 9, 9), "pad_mode": PadMode.PAD}),
        (TRANSPOSED, (1, 4, 500, 1), (4, 1, 2, 31), {"stride": (1, 65535), "pad_mode": PadMode.VALID}),
        (TRANSPOSED, (1, 1, 20000, 1), (1, 1, 1, 2), {"stride": (1, 65535), "pad_mode": PadMode.VALID}),
        (TRANSPOSED, (2, 1, 17, 2), (1, 1, 1, 31), {"stride": (12000, 2), "pad_mode": PadMode.VALID}),
        (TRANSPOSED, (1, 6, 7, 1), (6, 2, 2, 16), {"stride": (16, LARGE), "group": 3, "pad_mode": PadMode.VALID}),
    ],
)
def test_convolutions_with_large_steps(
    node_type: NodeType, image: Shape, taps: Shape, attrs: dict[str, Any], backend: Backend
) -> None:
    if node_type is TRANSPOSED:  # The operator's weight has as many outputs, and inputs of a group.
        taps = (taps[1] * attrs.get("group", 1), image[1] // attrs.get("group", 1), *taps[2:])
    specs = [spec(shape, DataType.FLOAT32, Format.NCHW) for shape in (image, taps)]
    specs.append(spec((taps[0],), DataType.FLOAT32))
    operands = [(each, None) for each in specs]
    graph = graph_of(node_type, operands, attrs, *infer_all(node_type, operands, attrs))
    rng = np.random.default_rng(1)
    inputs = [rng.standard_normal(each.shape).astype(np.float32) for each in specs]
    (wanted,), (given,) = (
        each.prepare(graph, ModelConfig(), lambda _: None).run(inputs, Cancellation())
        for each in (loaded("reference"), backend)
    )
    np.testing.assert_allclose(given.astype(np.float64), wanted.astype(np.float64), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("node_type", [NodeType.MAX_POOL_FUSION, NodeType.AVGPOOL_FUSION])
def test_long_windows_are_reduced_soon(node_type: NodeType, backend: Backend) -> None:
    """In as many steps as the logarithm of their length."""
    image = spec((1, 1, 1, 400_000), DataType.FLOAT32, Format.NCHW)
    attrs = {"kernel_size": (1, 200_000), "strides": (1, 1), "pad_mode": PadMode.VALID}
    graph = graph_of(node_type, [(image, None)], attrs, *infer_all(node_type, [(image, None)], attrs))
    x = np.random.default_rng(1).standard_normal(image.shape).astype(np.float32)
    (y,) = backend.prepare(graph, ModelConfig(), lambda _: None).run([x], Cancellation())
    reduce = np.max if node_type is NodeType.MAX_POOL_FUSION else np.mean
    for position in (0, 1, 123_456, 200_000):
        wanted = reduce(x[0, 0, 0, position : position + 200_000].astype(np.float64))
        np.testing.assert_allclose(float(y[0, 0, 0, position].item()), wanted, rtol=1e-5, atol=1e-6)


def test_a_long_product_is_stopped(backend: Backend) -> None:
    matrix = spec((2500, 2500), DataType.INT32)
    graph = graph_of(NodeType.MATMUL_FUSION, [(matrix, None)] * 2, {}, matrix)
    model = backend.prepare(graph, ModelConfig(), lambda _: None)
    assert isinstance(model, StartableModel)
    x, cancellation, ends = np.ones((2500, 2500), np.int32), Cancellation(), SimpleQueue[RunEnd]()
    model.start([x, x], cancellation, [], ends.put)
    cancellation.cancel()
    assert isinstance(ends.get(timeout=60), NnrtError)


def test_attributes_beyond_the_type(backend: Backend) -> None:
    x = spec((3,), DataType.FLOAT32)
    for activation_type, attrs in (
        (ActivationType.THRESHOLDRELU, {"alpha": 1e300}),
        (ActivationType.HARD_TANH, {"min_val": -1e300, "max_val": 1e300}),
    ):
        graph = graph_of(NodeType.ACTIVATION, [(x, None)], {"activation_type": activation_type, **attrs}, x)
        (y,) = backend.prepare(graph, ModelConfig(), lambda _: None).run([np.ones(3, np.float32)], Cancellation())
        np.testing.assert_array_equal(y, np.ones(3))
