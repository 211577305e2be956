"""Patterns that become Resize: images whose pixels are repeated, or are weighted at positions that a run computes."""

from collections.abc import Sequence

import numpy as np

from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.graph import Node
from nnrt_onnx_lowering.builder import Onnx
from nnrt_onnx_lowering.compositions.composition import Composition, Sources, pattern
from nnrt_onnx_lowering.engine import Operator
from nnrt_onnx_lowering.lowering.lowering import channels_first, in_format
from nnrt_onnx_lowering.value import FLOAT32, INT64, Value

N = NodeType
# The types for which engines have a Resize, ONNX Runtime among them.
RESIZED = frozenset({DataType.FLOAT32, DataType.FLOAT16, DataType.INT32, DataType.INT8, DataType.UINT8})
# Resizing in which each new pixel takes the old pixel whose block it is in.
REPEATING = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


@pattern(N.DEPTH_TO_SPACE)
def enlargement(sources: Sources, node: Node) -> Composition | None:
    """Recognize the repetition of each pixel as a square: channels repeated, then rearranged as blocks."""
    attrs = sources.attrs(node)
    (repeated,), (y,) = node.inputs, node.outputs
    spec = sources.graph.tensors[repeated]
    x, multiples, *_ = sources.operands(repeated, N.TILE_FUSION)
    times = sources.data(multiples)
    if (
        attrs.mode == "CRD"
        or times is None
        or sources.graph.tensors[x].rank != 4
        or not _are_alike(sources, x, repeated, y)
    ):
        return None
    channels = 1 if spec.format is Format.NCHW else 3
    wanted = [attrs.block_size**2 if axis == channels else 1 for axis in range(4)]
    if times.reshape(-1).tolist() != wanted or sources.attrs(sources.graph.nodes[sources.nodes[repeated]]).dims:
        return None
    scales = np.array([1, 1, attrs.block_size, attrs.block_size], np.float32)

    def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
        image = channels_first(given[0], spec)
        return [in_format(op.Resize(image, None, scales, **REPEATING), spec)]

    return Composition((y,), (x,), make, Operator("Resize", (spec.numpy_dtype, None, FLOAT32), REPEATING))


def _are_alike(sources: Sources, *tensors: int) -> bool:
    """Return whether the tensors have one type, one quantization, and Resize supports the type."""
    kinds = {(spec.data_type, spec.quant) for spec in map(sources.graph.tensors.__getitem__, tensors)}
    return len(kinds) == 1 and next(iter(kinds))[0] in RESIZED


@pattern(N.GATHER)
def picked(sources: Sources, node: Node) -> Composition | None:
    return _repetition(sources, node) or resized(sources, node)


@pattern(N.ADD_FUSION, N.TRANSPOSE)
def resized(sources: Sources, node: Node) -> Composition | None:
    """Recognize the resizing of an image to a size that only a run knows."""
    (y,) = node.outputs
    resizing = sources.resizing(y)
    if resizing is None or not _are_alike(sources, resizing.x, y):
        return None

    def make(op: Onnx, given: Sequence[Value]) -> list[Value]:
        image, measured, *sizes = given
        wanted: list[int | Value] = [op.size(measured, axis) for axis in range(4)]
        for axis, size in zip(resizing.sizes, sizes, strict=True):
            wanted[axis] = size
        for axis, factor in resizing.factors.items():
            wanted[axis] = wanted[axis] * factor
        return [op.Resize(image, None, None, op.vector(wanted), **resizing.how)]

    inputs = (resizing.x, sources.quantized_source(resizing.x), *resizing.sizes.values())
    dtype = sources.graph.tensors[y].numpy_dtype
    return Composition((y,), inputs, make, Operator("Resize", (dtype, None, None, INT64), resizing.how))


def _repetition(sources: Sources, node: Node) -> Composition | None:
    """Recognize pixels picked at constant positions so that each row and each column is repeated."""
    second, first = _repeated(sources, node), _repeated(sources, sources.node(node.inputs[0], N.GATHER))
    if first is None or second is None or {first[0], second[0]} not in ({1, 2}, {2, 3}):
        return None
    scales = np.ones(4, np.float32)
    for axis, count in (first, second):
        scales[axis] = count
    x = sources.operands(node.inputs[0], N.GATHER)[0]
    if not _are_alike(sources, x, *node.inputs[:1], *node.outputs):
        return None
    needs = Operator("Resize", (sources.graph.tensors[x].numpy_dtype, None, FLOAT32), REPEATING)
    return Composition(node.outputs, (x,), lambda op, given: [op.Resize(given[0], None, scales, **REPEATING)], needs)


def _repeated(sources: Sources, gather: Node | None) -> tuple[int, int] | None:
    """Return the dimension of a rank 4 tensor whose entries a GATHER repeats, and how often."""
    if gather is None:
        return None
    x, indices, axes = gather.inputs
    positions, axis, spec = sources.data(indices), sources.data(axes), sources.graph.tensors[x]
    if positions is None or axis is None or positions.ndim != 1 or axis.size != 1:
        return None
    if spec.rank != 4:
        return None
    at = int(axis.item()) % 4
    size = spec.shape[at]
    count = positions.size // size if size > 0 else 0
    return (at, count) if count > 1 and np.array_equal(positions, np.repeat(np.arange(size), count)) else None
