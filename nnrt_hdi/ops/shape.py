"""Data moved but not changed: new shapes, orders, joins, parts, repetitions and borders."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from nnrt_hdi.enums import DataType, Format, NodeType, PaddingMode
from nnrt_hdi.ops.operands import (
    INDICES,
    INTEGERS,
    AnyDimensioned,
    AnyTensor,
    IndexVector,
    Logical,
    common_dim,
    common_format,
    common_shape,
    declared_data_type,
    known_int,
    known_ints,
    known_product,
    known_rank,
    known_sizes,
    named_axes,
    normalized_axes,
    normalized_axis,
    require_holds,
    require_length,
    same_data_type,
)
from nnrt_hdi.ops.operator import Accepts, IntLists, Ints, Operand, operator, refuse
from nnrt_hdi.ops.slicing import Masks, crop_starts, strided_cuts, window
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape, TensorSpec, format_shape

# The most outputs that an operation of NNRt may have.
_MOST_OUTPUTS = 200

_LAYOUT_CHANGES: dict[tuple[Format, Shape], Format] = {
    (Format.NHWC, (0, 3, 1, 2)): Format.NCHW,
    (Format.NCHW, (0, 2, 3, 1)): Format.NHWC,
    (Format.NHWC, (0, 1, 2, 3)): Format.NHWC,
    (Format.NCHW, (0, 1, 2, 3)): Format.NCHW,
}


@operator(NodeType.RESHAPE)
def reshape(x: AnyTensor, shape: IndexVector) -> TensorSpec:
    """y = the elements of x, in their order, in another shape: 0 copies a dimension, one -1 takes the rest."""
    rank, wanted = known_rank(shape), known_ints(shape)
    if wanted is None:
        return _moved(x, (UNKNOWN_DIM,) * rank)
    return _moved(x, reshaped(x, wanted))


def reshaped(x: Operand, wanted: Sequence[int]) -> Shape:
    """Return the shape that RESHAPE gives x. A -1 can become known even if copied dimensions are unknown."""
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

    The format survives only a change from NHWC to NCHW or back. After any other permutation it is NONE.
    """
    require_length(permutation, x.rank, f"dimensions of {x.name}")
    axes = known_ints(permutation)
    if axes is None:
        return _moved(x, (UNKNOWN_DIM,) * x.rank)
    order = normalized_axes(axes, x.rank, permutation.name)
    return _moved(x, [x.shape[axis] for axis in order], _LAYOUT_CHANGES.get((x.format, order), Format.NONE))


@operator(NodeType.CONCAT)
def concat(*parts: AnyDimensioned, axis: int = 0) -> TensorSpec:
    """y = the parts joined along axis; their shapes agree in all other dimensions."""
    first = _first_of_like(parts)
    along = normalized_axis(axis, first.rank)
    shape = []
    for at, dims in enumerate(zip(*(part.shape for part in parts), strict=True)):
        if at == along:
            shape.append(UNKNOWN_DIM if UNKNOWN_DIM in dims else sum(dims))
        elif (known := common_dim(dims)) is not None:
            shape.append(known)
        else:
            shapes = ", ".join(format_shape(part.shape) for part in parts)
            refuse(f"the parts {shapes} differ in dimension {at}; only dimension {along} (axis) may differ")
    return replace(first.spec, shape=tuple(shape), format=common_format(*parts))


@operator(NodeType.STACK)
def stack(*parts: AnyTensor, axis: int = 0) -> TensorSpec:
    """y = the parts, all of one shape, joined along a new dimension, whose index in the output is axis."""
    first = _first_of_like(parts)
    at = normalized_axis(axis, first.rank + 1)
    shape = common_shape(*parts)
    return _moved(first, (*shape[:at], len(parts), *shape[at:]))


@operator(NodeType.SPLIT)
def split(
    x: AnyDimensioned,
    *,
    output_num: int = 0,
    size_splits: Ints = (),
    axis: int = 0,
    declared: tuple[TensorSpec, ...],
) -> tuple[TensorSpec, ...]:
    """y = x cut along axis into output_num pieces, of equal length or of the lengths in size_splits.

    An output_num of 0 means the length of size_splits or, if that is empty, the number of outputs.
    """
    along = normalized_axis(axis, x.rank)
    count = _output_count(output_num or len(size_splits) or len(declared), declared)
    total = x.shape[along]
    lengths = size_splits or (UNKNOWN_DIM if total == UNKNOWN_DIM else total // count,) * count
    if len(lengths) != count:
        refuse(f"size_splits is {list(lengths)} but output_num is {count}; give a length for each output")
    if size_splits and min(lengths) < 0:
        refuse(f"size_splits is {list(lengths)}; use 0 or more")
    if total != UNKNOWN_DIM and sum(lengths) != total:
        wanted = f"lengths {list(lengths)}" if size_splits else f"{count} equal lengths"
        refuse(f"{wanted} do not make up the {total} of dimension {along} (axis) of {x}; give size_splits that do")
    return tuple(x.spec.with_shape((*x.shape[:along], length, *x.shape[along + 1 :])) for length in lengths)


@operator(NodeType.UNSTACK)
def unstack(x: AnyDimensioned, *, axis: int = 0, declared: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """y = the entries of x along axis, one output for each; that dimension is removed."""
    along = normalized_axis(axis, x.rank)
    count = x.shape[along]
    if count == UNKNOWN_DIM and not declared:
        refuse(f"dimension {along} (axis) of {x} is the number of outputs, but is not known; fix it, or give outputs")
    count = _output_count(len(declared) if count == UNKNOWN_DIM else count, declared)
    return (_moved(x, x.shape[:along] + x.shape[along + 1 :]),) * count


@operator(NodeType.SLICE_FUSION)
def slice_(x: AnyDimensioned, begin: IndexVector, size: IndexVector, *, axes: Ints = ()) -> TensorSpec:
    """y = size[i] elements of x from begin[i] on, in dimension axes[i] (axes empty: in dimension i, of all)."""
    along = normalized_axes(axes, x.rank, "axes") if axes else tuple(range(x.rank))
    for vector in (begin, size):
        require_length(vector, len(along), "dimensions that are cut")
    starts = known_ints(begin)
    if starts is None:  # A window that fits anywhere fits at 0.
        starts = (0,) * len(along)
    cut = window(x.shape, along, starts, known_sizes(size, len(along)))
    return x.spec.with_shape([length for _, length in cut])


@operator(NodeType.CROP)
def crop(x: AnyDimensioned, shape: IndexVector, *, axis: int = 0, offset: Ints = ()) -> TensorSpec:
    """y = a window of x: from dimension axis on, shape[i] elements of dimension i; earlier dimensions stay whole.

    It begins at 0, or at offset: one number for all dimensions that are cut, one for each of them, or one for each of
    x.
    """
    require_length(shape, x.rank, f"dimensions of {x.name}")
    along = range(normalized_axis(axis, x.rank), x.rank)
    starts = crop_starts(offset, along)
    cut = window(x.shape, along, starts, known_sizes(shape, x.rank)[along.start :])
    return x.spec.with_shape([length for _, length in cut])


@operator(NodeType.STRIDED_SLICE)
def strided_slice(
    x: AnyTensor,
    begin: IndexVector,
    end: IndexVector,
    strides: IndexVector,
    *,
    begin_mask: int = 0,
    end_mask: int = 0,
    ellipsis_mask: int = 0,
    new_axis_mask: int = 0,
    shrink_axis_mask: int = 0,
    declared: tuple[TensorSpec, ...],
) -> TensorSpec:
    """y = x[begin[0]:end[0]:strides[0], begin[1]:end[1]:strides[1], ...], with later dimensions whole.

    As in Python, negative positions count from the end, and bounds outside of x are limited to it. Bit i of a mask
    changes entry i. begin_mask and end_mask: from the start, or to the end. ellipsis_mask, for one entry: whole
    dimensions, as many as the other entries leave. new_axis_mask: a new dimension of length 1. shrink_axis_mask: the
    element at begin, which must exist, without its dimension; if the model declares the output with that dimension, it
    has length 1.
    """
    count = known_rank(begin)
    for vector in (end, strides):
        require_length(vector, count, f"entries of {begin.name}")
    masks = Masks(begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask)
    entries = [known_ints(vector) or (None,) * count for vector in (begin, end, strides)]
    cuts = strided_cuts(x.shape, list(zip(*entries, strict=True)), masks)
    if not (declared and declared[0].rank == len(cuts)):
        cuts = [cut for cut in cuts if not cut.is_shrunk]
    keeps_places = len(cuts) == x.rank and all(cut.part is not None for cut in cuts)
    return _moved(x, [cut.length for cut in cuts], x.format if keeps_places else Format.NONE)


@operator(NodeType.TILE_FUSION)
def tile(x: AnyTensor, multiples: IndexVector, *, dims: Ints = ()) -> TensorSpec:
    """y = x repeated multiples[i] times along dimension dims[i] (dims empty, or of another length: along dimension i).

    If there are more multiples than dimensions, x gets dimensions of length 1 in front.
    """
    count = known_rank(multiples)
    rank = max(count, x.rank)
    if len(dims) != count:
        require_length(multiples, rank, f"dimensions of {x.name}")
    along = normalized_axes(dims, rank, "dims") if len(dims) == count else range(rank)
    shape = [1] * (rank - x.rank) + list(x.shape)
    for at, times in zip(along, known_sizes(multiples, count), strict=True):
        shape[at] = known_product((times, shape[at]))
    return x.spec.with_shape(shape) if rank == x.rank else _moved(x, shape)


@operator(NodeType.BROADCAST_TO)
def broadcast_to(x: AnyTensor, *, shape: Ints = ()) -> TensorSpec:
    """y = x repeated along its dimensions of length 1, and along new ones in front, to fill a shape.

    A dimension of -1 keeps the length that it has in x.
    """
    added = len(shape) - x.rank
    if added < 0:
        refuse(f"shape is {list(shape)} but {x} has rank {x.rank}; give at least as many dimensions")
    result = []
    for at, (wanted, dim) in enumerate(zip(shape, (1,) * added + x.shape, strict=True)):
        keeps = wanted == UNKNOWN_DIM and at >= added
        if not keeps and (wanted < 0 or dim not in (1, wanted, UNKNOWN_DIM)):
            own = f"{dim}, or -1 for it" if at >= added else "0 or more"
            refuse(f"shape is {list(shape)}, whose dimension {at} {x} does not fill; use {own}")
        result.append(dim if keeps else wanted)
    return _moved(x, result) if added else x.spec.with_shape(result)


@operator(NodeType.PAD_FUSION, quantized=True)
def pad(
    x: Logical,
    paddings: Annotated[Operand, Accepts(INTEGERS, min_rank=2, max_rank=2)],
    *,
    paddings_: IntLists = (),
    padding_mode: PaddingMode = PaddingMode.CONSTANT,
    constant_value: float = 0.0,
) -> TensorSpec:
    """y = x with paddings[i, 0] elements before and paddings[i, 1] elements after it in dimension i.

    They are constant_value, or mirror x at its edge: REFLECT without the edge itself, SYMMETRIC with it. The attribute
    paddings stays empty; the operand counts.
    """
    if paddings_:
        refuse(f"the attribute paddings is {paddings_}; leave it empty, the operand of that name counts")
    if padding_mode is PaddingMode.RESERVED:
        refuse("padding_mode is RESERVED; use CONSTANT, REFLECT or SYMMETRIC")
    if padding_mode is PaddingMode.CONSTANT:
        require_holds(x.data_type, constant_value, "constant_value")
    if any(dim not in (UNKNOWN_DIM, size) for dim, size in zip(paddings.shape, (x.rank, 2), strict=True)):
        refuse(f"{paddings} is not a pair per dimension of {x}; give it shape [{x.rank}, 2]")
    values = known_ints(paddings)
    if values is None:
        return x.spec.with_shape((UNKNOWN_DIM,) * x.rank)
    pairs = zip(values[::2], values[1::2], strict=True)
    return x.spec.with_shape([_padded(x, at, pair, padding_mode) for at, pair in enumerate(pairs)])


@operator(NodeType.SQUEEZE)
def squeeze(x: AnyTensor, *, axis: Ints = ()) -> TensorSpec:
    """y = x without the dimensions of length 1 that axis names (empty: without all of length 1).

    A named dimension of another length stays.
    """
    named = named_axes(axis, x.rank) or range(x.rank)
    for at in named:
        if x.shape[at] == UNKNOWN_DIM:
            refuse(f"dimension {at} of {x} goes only if it is 1, which is not known; name others, or fix it")
    kept = [dim for at, dim in enumerate(x.shape) if dim != 1 or at not in named]
    return x.spec if len(kept) == x.rank else _moved(x, kept)


@operator(NodeType.UNSQUEEZE)
def unsqueeze(x: AnyTensor, *, axis: Ints = ()) -> TensorSpec:
    """y = x with dimensions of length 1 inserted, whose indices in the output are in axis."""
    if not axis:
        refuse("axis is empty; name the place of at least one new dimension")
    rank = x.rank + len(axis)
    inserted = normalized_axes(axis, rank)
    dims = iter(x.shape)
    return _moved(x, [1 if at in inserted else next(dims) for at in range(rank)])


@operator(NodeType.EXPAND_DIMS)
def expand_dims(x: AnyTensor, axis: IndexVector) -> TensorSpec:
    """y = x with a dimension of length 1 inserted, whose index in the output is axis."""
    at = known_int(axis)
    if at is None:
        return _moved(x, (UNKNOWN_DIM,) * (x.rank + 1))
    at = normalized_axis(at, x.rank + 1)
    return _moved(x, (*x.shape[:at], 1, *x.shape[at:]))


@operator(NodeType.FLATTEN)
def flatten(x: AnyTensor, *, axis: int = 1) -> TensorSpec:
    """y = the elements of x as a matrix: the dimensions before axis become rows, the others columns."""
    if not -x.rank <= axis <= x.rank:
        refuse(f"axis is {axis} but the rank is {x.rank}; use {-x.rank}..{x.rank}")
    at = axis if axis >= 0 else axis + x.rank
    return _moved(x, [known_product(x.shape[:at]), known_product(x.shape[at:])])


@operator(NodeType.SHAPE)
def shape_of(x: AnyTensor, *, declared: tuple[TensorSpec, ...]) -> TensorSpec:
    """y = the dimensions of x, as INT32, or INT64 if the model declares the output so."""
    data_type = declared_data_type(declared, DataType.INT32)
    if data_type not in INDICES:
        refuse(f"the output is declared {data_type.name}; use INT32 or INT64")
    return TensorSpec(data_type, (x.rank,))


@operator(NodeType.RANK)
def rank_of(x: AnyTensor) -> TensorSpec:
    """y = the number of dimensions of x, as an INT32 scalar."""
    return TensorSpec(DataType.INT32, ())


def _first_of_like(parts: Sequence[Operand]) -> Operand:
    """Return the first of two or more parts. Refuses parts that differ in data type or rank."""
    first = parts[0]
    if len(parts) < 2:
        refuse("it has 1 input; give 2 or more")
    same_data_type(*parts)
    for part in parts[1:]:
        if part.rank != first.rank:
            refuse(f"{first} and {part} differ in rank; give them one rank")
    return first


def _output_count(count: int, declared: Sequence[TensorSpec]) -> int:
    """Return the number of outputs. Refuses a number above NNRt's limit, or other than that of declared outputs."""
    if not 1 <= count <= _MOST_OUTPUTS:
        refuse(f"it would have {count} outputs; use 1 to {_MOST_OUTPUTS}")
    if declared and count != len(declared):
        refuse(f"it has {len(declared)} outputs; give {count}")
    return count


def _moved(x: Operand, shape: Sequence[int], layout: Format = Format.NONE) -> TensorSpec:
    """Return the spec of x with another shape and layout."""
    return replace(x.spec, shape=tuple(shape), format=layout)


def _padded(x: Operand, at: int, pair: tuple[int, int], mode: PaddingMode) -> int:
    """Return the length of dimension `at` with its padding."""
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
