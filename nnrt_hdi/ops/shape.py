"""Data moved, not changed: new shapes, orders, joins and borders."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import numpy as np

from nnrt_hdi.enums import DataType, Format, NodeType, PaddingMode
from nnrt_hdi.ops.operands import (
    ANY,
    FLOATS,
    INDICES,
    AnyTensor,
    IndexVector,
    Logical,
    common_format,
    declared_data_type,
    known_ints,
    known_product,
    normalized_axes,
    normalized_axis,
    same_data_type,
)
from nnrt_hdi.ops.operator import Accepts, IntLists, Ints, Operand, operator, refuse
from nnrt_hdi.tensor import MAX_RANK, UNKNOWN_DIM, Shape, TensorSpec, format_shape

_LAYOUT_CHANGES: dict[tuple[Format, Shape], Format] = {
    (Format.NHWC, (0, 3, 1, 2)): Format.NCHW,
    (Format.NCHW, (0, 2, 3, 1)): Format.NHWC,
    (Format.NHWC, (0, 1, 2, 3)): Format.NHWC,
    (Format.NCHW, (0, 1, 2, 3)): Format.NCHW,
}


@operator(NodeType.RESHAPE)
def reshape(x: AnyTensor, shape: IndexVector) -> TensorSpec:
    """The elements of x, in their order, in another shape: 0 copies a dimension, one -1 takes the rest."""
    wanted = known_ints(shape)
    if wanted is None:
        return _moved(x, (UNKNOWN_DIM,) * _element_count(shape))
    return _moved(x, reshaped(x, wanted))


def reshaped(x: Operand, wanted: Sequence[int]) -> Shape:
    """The shape that RESHAPE gives x. Dimensions that are copied need not be known for the -1 to be."""
    if any(dim < -1 for dim in wanted) or sum(dim == -1 for dim in wanted) > 1:
        refuse(f"shape is {list(wanted)}; use at most one -1, and 0 or more for the others")
    copied = [at for at, dim in enumerate(wanted) if dim == 0]
    if copied and copied[-1] >= x.rank:
        refuse(f"shape is {list(wanted)}, whose 0 copies dimension {copied[-1]}, but {x} has rank {x.rank}")
    total = known_product([dim for at, dim in enumerate(x.shape) if at not in copied])
    given = known_product([dim for dim in wanted if dim > 0])
    result = [x.shape[at] if dim == 0 else dim for at, dim in enumerate(wanted)]
    if total != UNKNOWN_DIM:
        fits = total % given == 0 if -1 in wanted else total == given or (0 in result and 0 in x.shape)
        if not fits:
            refuse(f"shape is {list(wanted)}, which {x} does not fill evenly; keep the number of elements")
        result = [total // given if dim == -1 else size for dim, size in zip(wanted, result, strict=True)]
    return tuple(result)


@operator(NodeType.TRANSPOSE)
def transpose(x: AnyTensor, permutation: IndexVector) -> TensorSpec:
    """y[i0, i1, ...] = x with dimension permutation[n] as the n-th.

    A layout survives only a change from NHWC to NCHW or back; after any other permutation the format is NONE.
    """
    axes = known_ints(permutation)
    count = _element_count(permutation) if axes is None else len(axes)
    if count not in (x.rank, UNKNOWN_DIM):
        refuse(f"{permutation} has {count} elements; give one for each of the {x.rank} dimensions of {x.name}")
    if axes is None:
        return _moved(x, (UNKNOWN_DIM,) * x.rank)
    order = normalized_axes(axes, x.rank, permutation.name)
    return _moved(x, [x.shape[axis] for axis in order], _LAYOUT_CHANGES.get((x.format, order), Format.NONE))


@operator(NodeType.CONCAT)
def concat(*parts: Annotated[Operand, Accepts(ANY, min_rank=1, quantized=True)], axis: int = 0) -> TensorSpec:
    """The parts behind each other along axis; all else in them agrees, quantization parameters included."""
    first = parts[0]
    if len(parts) < 2:
        refuse("it has 1 input; give 2 or more")
    along = normalized_axis(axis, first.rank)
    same_data_type(*parts)
    for part in parts[1:]:
        if part.rank != first.rank:
            refuse(f"{first} and {part} differ in rank; give them one rank")
        if part.quant != first.quant:
            refuse(f"{first.name} and {part.name} are quantized differently; give them one scale and zero point")
    shape = []
    for at, dims in enumerate(zip(*(part.shape for part in parts), strict=True)):
        known = set(dims) - {UNKNOWN_DIM}
        if at == along:
            shape.append(UNKNOWN_DIM if UNKNOWN_DIM in dims else sum(dims))
        elif len(known) > 1:
            shapes = ", ".join(format_shape(part.shape) for part in parts)
            refuse(f"the parts {shapes} differ in dimension {at}; only dimension {along} (axis) may differ")
        else:
            shape.append(known.pop() if known else UNKNOWN_DIM)
    return replace(first.spec, shape=tuple(shape), format=common_format(*parts))


@operator(NodeType.PAD_FUSION)
def pad(
    x: Logical,
    paddings: Annotated[Operand, Accepts(INDICES, min_rank=2, max_rank=2)],
    *,
    paddings_: IntLists = (),
    padding_mode: PaddingMode = PaddingMode.CONSTANT,
    constant_value: float = 0.0,
) -> TensorSpec:
    """x with paddings[i, 0] elements before and paddings[i, 1] behind in dimension i.

    They hold constant_value, or mirror x at its edge: REFLECT without the edge itself, SYMMETRIC with it. The
    attribute paddings stays empty, the operand counts.
    """
    if paddings_:
        refuse(f"the attribute paddings is {paddings_}; leave it empty, the operand of that name counts")
    if padding_mode is PaddingMode.RESERVED:
        refuse("padding_mode is RESERVED; use CONSTANT, REFLECT or SYMMETRIC")
    if padding_mode is PaddingMode.CONSTANT:
        _require_holds(x.data_type, constant_value)
    if any(dim not in (UNKNOWN_DIM, size) for dim, size in zip(paddings.shape, (x.rank, 2), strict=True)):
        refuse(f"{paddings} is not a pair per dimension of {x}; give it shape [{x.rank}, 2]")
    values = known_ints(paddings)
    if values is None:
        return x.spec.with_shape((UNKNOWN_DIM,) * x.rank)
    pairs = zip(values[::2], values[1::2], strict=True)
    return x.spec.with_shape([_padded(x, at, pair, padding_mode) for at, pair in enumerate(pairs)])


@operator(NodeType.SQUEEZE)
def squeeze(x: AnyTensor, *, axis: Ints = ()) -> TensorSpec:
    """x without the dimensions of length 1 that axis names (empty: without any of length 1).

    One that is named but has another length stays.
    """
    named = normalized_axes(axis, x.rank) if axis else tuple(range(x.rank))
    for at in named:
        if x.shape[at] == UNKNOWN_DIM:
            refuse(f"dimension {at} of {x} goes only if it is 1, which is not known; name others, or fix it")
    kept = [dim for at, dim in enumerate(x.shape) if dim != 1 or at not in named]
    return x.spec if len(kept) == x.rank else _moved(x, kept)


@operator(NodeType.UNSQUEEZE)
def unsqueeze(x: AnyTensor, *, axis: Ints = ()) -> TensorSpec:
    """x with dimensions of length 1 inserted, so that they are where axis says in the output."""
    if not axis:
        refuse("axis is empty; name the place of at least one new dimension")
    rank = x.rank + len(axis)
    inserted = normalized_axes(axis, rank)
    dims = iter(x.shape)
    return _moved(x, [1 if at in inserted else next(dims) for at in range(rank)])


@operator(NodeType.SHAPE)
def shape_of(x: AnyTensor, *, declared: tuple[TensorSpec, ...]) -> TensorSpec:
    """The dimensions of x, as INT32, or INT64 if the model declares the output so."""
    data_type = declared_data_type(declared, DataType.INT32)
    if data_type not in INDICES:
        refuse(f"the output is declared {data_type.name}; use INT32 or INT64")
    return TensorSpec(data_type, (x.rank,))


def _moved(x: Operand, shape: Sequence[int], layout: Format = Format.NONE) -> TensorSpec:
    """The same elements, quantized as they were, in other dimensions."""
    return replace(x.spec, shape=tuple(shape), format=layout)


def _element_count(vector: Operand) -> int:
    """Number of elements, which give the output its rank. Refuses one that is not known."""
    count = known_product(vector.shape)
    if count == UNKNOWN_DIM:
        refuse(f"{vector} decides the output's rank, but has an unknown length; fix it")
    if count > MAX_RANK:
        refuse(f"{vector} makes the output's rank {count}; use at most {MAX_RANK} elements")
    return count


def _padded(x: Operand, at: int, pair: tuple[int, int], mode: PaddingMode) -> int:
    """Length of dimension `at` with its padding."""
    before, after = pair
    if min(pair) < 0:
        refuse(f"paddings[{at}] is {list(pair)}; use 0 or more")
    size = x.shape[at]
    if size == UNKNOWN_DIM:
        return UNKNOWN_DIM
    most = {PaddingMode.REFLECT: max(size - 1, 0), PaddingMode.SYMMETRIC: size}.get(mode)
    if most is not None and max(pair) > most:
        refuse(f"paddings[{at}] is {list(pair)} but {mode.name} mirrors at most {most} elements of {x}")
    return before + size + after


def _require_holds(data_type: DataType, value: float) -> None:
    """Refuse a constant that integers of this type can't be."""
    if data_type in FLOATS or data_type is DataType.BOOL:
        return
    limits = np.iinfo(data_type.name.lower())
    if not (float(value).is_integer() and limits.min <= value <= limits.max):
        refuse(f"constant_value is {value}; use a whole number in {limits.min}..{limits.max} ({data_type.name})")
