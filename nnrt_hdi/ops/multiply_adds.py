"""Multiply-adds of a graph's run: the work of operators that take far longer than their tensors are large.

An addition or comparison of numbers counts as one, too. Some backends do with fewer where windows overlap.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import cast

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import AttrValue, Graph
from nnrt_hdi.ops.convolution import ImageShape
from nnrt_hdi.ops.spatial import BOX_NUMBERS
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape, TensorSpec

# Types whose multiply-adds count as they are. Of other ones no processor does more than so many in the same time.
_WIDE = (DataType.FLOAT32, DataType.FLOAT64)
_NARROWER = 16
# Multiply-adds by the shapes of inputs and outputs, the images of the first ones, and the attributes that a node sets.
# Dimensions may be OpenDims, as in inference.
_Rule = Callable[[Sequence[Shape], Sequence[Shape], Sequence[TensorSpec], Mapping[str, AttrValue]], int]


def _positions(image: TensorSpec) -> int:
    shape = ImageShape.of(image)
    return shape.batch * shape.height * shape.width


def _pooled(x: Sequence[Shape], y: Sequence[Shape], specs: Sequence[TensorSpec], attrs: Mapping[str, AttrValue]) -> int:
    """Count each element of each window, as far as windows can lie inside the image."""
    image = ImageShape.of(specs[0])
    if attrs.get("global"):
        return prod(x[0])
    height, width = cast("Sequence[int]", attrs["kernel_size"])
    return prod(y[0]) * min(height, image.height) * min(width, image.width)


def _compared(
    x: Sequence[Shape], y: Sequence[Shape], specs: Sequence[TensorSpec], attrs: Mapping[str, AttrValue]
) -> int:
    """Count the numbers of each box that a selected one is compared with, if as many are selected as may be."""
    boxes, detections = x[0][1], cast("int", attrs.get("max_detections", 0))
    if not attrs.get("use_regular_nms"):
        return min(detections, boxes) * boxes * BOX_NUMBERS
    per_class = min(cast("int", attrs.get("detections_per_class", 0)) or detections, detections)
    return cast("int", attrs["num_classes"]) * min(per_class, boxes) * boxes * BOX_NUMBERS


_RULES: dict[NodeType, _Rule] = {
    NodeType.FULL_CONNECTION: lambda x, y, specs, attrs: prod(y[0]) * x[1][1],
    NodeType.MATMUL_FUSION: lambda x, y, specs, attrs: prod(y[0]) * x[0][-2 if attrs.get("transpose_a") else -1],
    # Each pixel of the result, or of the input, meets all elements of the weight.
    NodeType.CONV2D_FUSION: lambda x, y, specs, attrs: _positions(specs[-1]) * prod(x[1]),
    NodeType.CONV2D_TRANSPOSE_FUSION: lambda x, y, specs, attrs: _positions(specs[0]) * prod(x[1]),
    # Each step of each sequence meets all elements of both weights.
    NodeType.AVGPOOL_FUSION: _pooled,
    NodeType.MAX_POOL_FUSION: _pooled,
    NodeType.LRN: lambda x, y, specs, attrs: (
        prod(x[0]) * min(2 * cast("int", attrs.get("depth_radius", 0)) + 1, ImageShape.of(specs[0]).channels)
    ),
    NodeType.DETECTION_POST_PROCESS: _compared,
    NodeType.LSTM: lambda x, y, specs, attrs: prod(x[0][:2]) * (prod(x[1]) + prod(x[2])),
}


def multiply_adds(graph: Graph, tensors: Sequence[TensorSpec]) -> int:
    """Return the multiply-adds of a run with these tensors, counted as FLOAT32 ones that take no longer.

    Nodes with open dimensions count as 0. Nodes of constants count, because backends leave large ones to the runs.
    """
    total = 0
    for node in graph.nodes:
        if rule := _RULES.get(node.type):
            specs = [tensors[at] for at in (*node.inputs, *node.outputs)]
            if not any(UNKNOWN_DIM in spec.shape for spec in specs):
                shapes = [spec.shape for spec in specs]
                count = rule(shapes, shapes[len(node.inputs) :], specs, node.attrs)
                total += count if specs[0].data_type in _WIDE else count // _NARROWER
    return total
