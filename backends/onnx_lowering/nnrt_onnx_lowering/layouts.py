"""Rules for ONNX operators on tensors whose dimensions are not in logical order in memory.

Only this module knows them. An operator without a rule gets its operands in logical order, transposed where needed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnrt_hdi.tensor import Shape
from nnrt_onnx_lowering.engine import names
from nnrt_onnx_lowering.memory_order import axis_in_memory, normalized_layout
from nnrt_onnx_lowering.value import Value

Values = list[Value | None]
Attrs = dict[str, Any]
# Operands and attributes in the order of memory; layout and rank of the results.
Arrangement = tuple[Values, Attrs, Shape, int | None]
# Batch, channels, height and width.
IMAGE_RANK = 4
Rule = Callable[[Values, Attrs, Shape], Arrangement]


def arrange(op_type: str, values: Values, attrs: Attrs) -> Arrangement:
    """Return an operator's operands and attributes in the order of memory, and the layout and rank of its results."""
    layout = next((value.layout for value in values if value is not None and value.layout), ())
    if not layout:
        return values, attrs, (), _rank(op_type, values)
    rule = _RULES.get(op_type)
    if rule and all(value is None or value.rank is not None for value in values):
        return rule(values, attrs, layout)
    return [value and value.op.plain(value) for value in values], attrs, (), _rank(op_type, values)


def _rank(op_type: str, values: Values) -> int | None:
    if op_type in _POINTWISE:
        ranks = [value.rank for value in values if value is not None]
        return None if None in ranks else max(rank for rank in ranks if rank is not None)
    if op_type == "Gather":
        x, indices = values
        assert x is not None and indices is not None
        return None if x.rank is None or indices.rank is None else x.rank - 1 + indices.rank
    return values[0].rank if op_type in _KEEP_RANK and values and values[0] is not None else None


def _pointwise(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
    rank = max(value.rank or 0 for value in values if value is not None)
    layout = _common([value for value in values if value is not None and value.rank == rank])
    return [value and _spread(value, rank, layout) for value in values], attrs, layout, rank


def _common(values: Sequence[Value]) -> Shape:
    """Return the common layout of operands of one rank: the layout of an operand that needs the fewest transposes.

    If several layouts need equally few, another layout is preferred to the logical order. Operands that aren't images
    get the logical order, which operators on sequences expect. Operators on images take other layouts too.
    """
    if len(values) > 1 and values[0].rank != IMAGE_RANK:
        return ()
    layouts = sorted({value.layout for value in values}, reverse=True)
    return min(layouts, key=lambda layout: sum(not value.op.has_layout(value, layout) for value in values), default=())


def _spread(value: Value, rank: int, layout: Shape) -> Value:
    """Return an operand that may be broadcast, arranged to fit operands of this rank and layout."""
    if value.rank == rank:
        return value.op.in_layout(value, layout)
    value = value.op.plain(value)
    if not value.rank or not layout or value.shape == (1,):
        return value
    if value.data is not None:
        shape = (1,) * (rank - value.rank) + value.data.shape
        return value.op.in_layout(value.op.constant(value.data.reshape(shape)), layout)
    if value.rank == 1:
        behind = rank - 1 - axis_in_memory(layout, rank - 1)
        return value.op.unsqueeze(value, range(1, 1 + behind))
    return value.op.in_layout(value.op.unsqueeze(value, range(rank - value.rank)), layout)


def _along_axis(default: int) -> Rule:
    """Return the rule for operators along `axis`.

    Operands with the rank of the result get a common layout. `axis` becomes the index of its dimension in memory.
    """

    def rule(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
        rank = len(layout)
        common = _common([value for value in values if value is not None and value.rank == rank])
        ordered = [
            value.op.in_layout(value, common) if value is not None and value.rank == rank else value for value in values
        ]
        at = axis_in_memory(common, attrs.get("axis", default) % rank)
        return ordered, {**attrs, "axis": at}, common, rank

    return rule


def _scaled(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
    """Arrange QuantizeLinear or DequantizeLinear, which has an axis if it has several scales."""
    scale = values[1]
    if scale is not None and scale.rank == 0:
        return values, attrs, layout, len(layout)
    return _along_axis(1)(values, attrs, layout)


def _reduced(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
    """Arrange a reduction over dimensions that a constant operand names; in logical order if they aren't constant."""
    x, axes = values
    assert x is not None
    if axes is None or axes.data is None:
        return [x.op.plain(x), axes], attrs, (), x.rank if attrs.get("keepdims", 1) else None
    folded = [axis_in_memory(layout, int(axis)) for axis in axes.data]
    arranged_values: Values = [x, x.op.ints(sorted(folded))]
    if attrs.get("keepdims", 1):
        return arranged_values, attrs, layout, len(layout)
    return arranged_values, attrs, _without(layout, folded), len(layout) - len(folded)


def _searched(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
    """Arrange ArgMax, which reduces the dimension `axis`."""
    at = axis_in_memory(layout, attrs.get("axis", 0))
    attrs = {**attrs, "axis": at}
    if attrs.get("keepdims", 1):
        return values, attrs, layout, len(layout)
    return values, attrs, _without(layout, [at]), len(layout) - 1


def _without(layout: Shape, folded: Sequence[int]) -> Shape:
    """Return the layout without the dimensions at these indices in memory."""
    kept = [axis for at, axis in enumerate(layout) if at not in folded]
    numbers = {axis: number for number, axis in enumerate(sorted(kept))}
    return normalized_layout(tuple(numbers[axis] for axis in kept))


def _padded(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
    """Arrange Pad, whose constant operand has the paddings before all dimensions, then those after all dimensions."""
    x, pads, *rest = values
    assert x is not None
    if pads is None or pads.data is None:
        return [x.op.plain(x), pads, *rest], attrs, (), x.rank
    permuted = pads.data.reshape(2, -1)[:, list(layout)].reshape(-1)
    return [x, x.op.constant(permuted), *rest], attrs, layout, x.rank


def _sliced(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
    """Arrange Slice along dimensions that a constant operand names; in logical order if they aren't constant."""
    x, starts, ends, axes, *steps = values
    assert x is not None
    if axes is None or axes.data is None:
        return [x.op.plain(x), starts, ends, axes, *steps], attrs, (), x.rank
    places = x.op.ints([axis_in_memory(layout, int(axis)) for axis in axes.data])
    return [x, starts, ends, places, *steps], attrs, layout, x.rank


def _picked(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
    """Arrange Gather with a vector of indices along `axis`.

    The operand keeps its layout, unless `axis` is last in memory: then Gather would copy each element alone.
    """
    x, indices = values
    assert x is not None
    axis = attrs.get("axis", 0)
    if indices is None or indices.rank != 1 or not x.layout or axis_in_memory(layout, axis) == len(layout) - 1 > axis:
        return [value and value.op.plain(value) for value in values], attrs, (), _rank("Gather", values)
    return [x, indices], {**attrs, "axis": axis_in_memory(layout, axis)}, layout, x.rank


def _resized(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
    """Arrange Resize, whose operands have a size or a scale for each dimension."""
    x, roi, *given = values
    assert x is not None
    return [x, roi, *(value and _permuted(value, layout) for value in given)], attrs, layout, len(layout)


def _permuted(numbers: Value, layout: Shape) -> Value:
    """Permute a vector with a number for each dimension to the order of memory."""
    if numbers.data is None:
        return numbers.op.Gather(numbers, numbers.op.ints(layout))
    return numbers.op.constant(numbers.data[list(layout)])


def _tiled(values: Values, attrs: Attrs, layout: Shape) -> Arrangement:
    """Arrange Tile, whose constant operand has a number for each dimension; in logical order if it isn't constant."""
    x, repeats = values
    assert x is not None
    if repeats is None or repeats.data is None:
        return [x.op.plain(x), repeats], attrs, (), x.rank
    return [x, x.op.constant(np.asarray(repeats.data)[list(layout)])], attrs, layout, x.rank


_POINTWISE = names(
    """
    Abs Add And BitwiseAnd BitwiseXor Cast Ceil Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual
    HardSigmoid HardSwish Identity IsNaN LeakyRelu Less LessOrEqual Log Max Min Mod Mul Neg Not Or PRelu Pow
    Reciprocal Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum Tanh Where Xor
    """
)
_REDUCTIONS = names("ReduceL2 ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare")
_KEEP_RANK = names(
    """
    AveragePool BatchNormalization Concat Conv ConvTranspose DequantizeLinear GatherElements GlobalAveragePool
    InstanceNormalization LRN LayerNormalization LogSoftmax MaxPool Pad QuantizeLinear Resize ScatterND Slice
    Softmax Split Tile TopK
    """
)
_RULES: dict[str, Rule] = {
    **dict.fromkeys(_POINTWISE, _pointwise),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    **dict.fromkeys(("Concat", "GatherElements", "Split"), _along_axis(0)),
    **dict.fromkeys(("Softmax", "LogSoftmax", "TopK"), _along_axis(-1)),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _scaled),
    "ArgMax": _searched,
    "Gather": _picked,
    "Pad": _padded,
    "Resize": _resized,
    "Slice": _sliced,
    "Tile": _tiled,
}
