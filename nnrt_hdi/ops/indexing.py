"""Elements read or written by their index. Indices count from 0; a run fails if one is out of bounds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from nnrt_hdi.enums import DataType, Format, NodeType
from nnrt_hdi.ops.operands import (
    ANY,
    INDICES,
    AnyDimensioned,
    IndexVector,
    Indices,
    Logical,
    declared_data_type,
    known_int,
    known_rank,
    known_sizes,
    normalized_axis,
    require_length,
    require_one_element,
    same_data_type,
)
from nnrt_hdi.ops.operator import Accepts, Operand, operator, refuse
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape, TensorSpec, format_shape

IndexTuples = Annotated[Operand, Accepts(INDICES, min_rank=1)]
Comparable = Annotated[Operand, Accepts(ANY, min_rank=1)]


@operator(NodeType.GATHER)
def gather(x: AnyDimensioned, indices: Indices, axis: IndexVector) -> TensorSpec:
    """y[..., i, ...] = x[..., indices[i], ...]: the dimensions of indices replace the one at axis."""
    layout = x.format if indices.rank == 1 else Format.NONE
    at = known_int(axis)
    if at is None:
        return replace(x.spec, shape=(UNKNOWN_DIM,) * (x.rank - 1 + indices.rank), format=layout)
    at = normalized_axis(at, x.rank)
    return replace(x.spec, shape=(*x.shape[:at], *indices.shape, *x.shape[at + 1 :]), format=layout)


@operator(NodeType.GATHER_ND)
def gather_nd(x: AnyDimensioned, indices: IndexTuples) -> TensorSpec:
    """y[i] = x[indices[i]]: the last dimension of indices has positions in the first dimensions of x."""
    depth = _depth(indices, x.rank)
    return replace(x.spec, shape=(*indices.shape[:-1], *x.shape[depth:]), format=Format.NONE)


@operator(NodeType.SCATTER_ND, quantized=True)
def scatter_nd(
    indices: Annotated[Operand, Accepts(INDICES, min_rank=2)], updates: Logical, shape: IndexVector
) -> TensorSpec:
    """y[indices[i]] = the sum of all updates[i] with that index, or for BOOL their "or"; 0 elsewhere.

    The last dimension of indices has positions in the first dimensions of y, which has the given shape.
    """
    result = known_sizes(shape, known_rank(shape))
    depth = _depth(indices, len(result))
    expected = (*indices.shape[:-1], *result[depth:])
    if not _may_equal(updates.shape, expected):
        refuse(f"{updates} are no updates for {indices}; give them shape {format_shape(expected)}")
    return TensorSpec(updates.data_type, (*result[:depth], *updates.shape[indices.rank - 1 :]))


@operator(NodeType.SPARSE_TO_DENSE, quantized=True)
def sparse_to_dense(
    indices: Annotated[Operand, Accepts(INDICES, min_rank=2, max_rank=2)],
    values: Annotated[Operand, Accepts(ANY, min_rank=1, max_rank=1)],
    sparse_shape: IndexVector,
) -> TensorSpec:
    """y[indices[i]] = values[i], for equal indices the last one, 0 elsewhere: a matrix of shape sparse_shape."""
    if not _may_equal(indices.shape, (values.shape[0], 2)):
        wanted = format_shape((values.shape[0], 2))
        refuse(f"{indices} is not a row and a column for each of {values}; give it shape {wanted}")
    require_length(sparse_shape, 2, "dimensions of the output")
    return TensorSpec(values.data_type, known_sizes(sparse_shape, 2))


@operator(NodeType.ONE_HOT, quantized=True)
def one_hot(
    indices: Indices, depth: IndexVector, on_value: Logical, off_value: Logical, *, axis: int = -1
) -> TensorSpec:
    """y[..., j, ...] = on_value if indices[...] == j else off_value, for j from 0 to depth - 1.

    axis is the index of the new dimension in the output. An index outside of 0..depth-1 gives off_value everywhere.
    """
    for value in (on_value, off_value):
        require_one_element(value)
    at, count = normalized_axis(axis, indices.rank + 1), known_int(depth)
    if count is not None and count < 1:
        refuse(f"depth is {count}; use 1 or more")
    length = UNKNOWN_DIM if count is None else count
    return TensorSpec(same_data_type(on_value, off_value), (*indices.shape[:at], length, *indices.shape[at:]))


@operator(NodeType.TOPK_FUSION, quantized=True)
def top_k(x: Comparable, k: IndexVector, *, sorted: bool = True, axis: int = -1) -> tuple[TensorSpec, TensorSpec]:
    """y = the k largest elements along axis, and their indices (INT32): the largest first, or last unless sorted.

    Of equal elements the one with the lower index comes first. NaN counts as the largest.
    """
    at, count = normalized_axis(axis, x.rank), known_int(k)
    if count is not None:
        _require_enough(k.name, count, x, at, least=0)
    values = x.spec.with_shape((*x.shape[:at], UNKNOWN_DIM if count is None else count, *x.shape[at + 1 :]))
    return values, TensorSpec(DataType.INT32, values.shape, values.format)


@operator(NodeType.ARGMAX_FUSION, quantized=True)
def arg_max(
    x: Comparable,
    *,
    axis: int = -1,
    top_k: int = 1,
    keep_dims: bool = False,
    out_max_value: bool = False,
    declared: tuple[TensorSpec, ...],
) -> TensorSpec:
    """y = the indices of the top_k largest elements along axis, the largest first; with out_max_value the elements.

    The dimension gets length top_k. Length 1 is removed, unless keep_dims. Indices are INT32, or INT64 if the model
    declares the output so. Of equal elements the first counts. NaN counts as the largest.
    """
    at = normalized_axis(axis, x.rank)
    _require_enough("top_k", top_k, x, at, least=1)
    data_type = x.data_type if out_max_value else declared_data_type(declared, DataType.INT32)
    if not out_max_value and data_type not in INDICES:
        refuse(f"the output is declared {data_type.name}; use INT32 or INT64 for indices")
    if keep_dims or top_k > 1:
        return TensorSpec(data_type, (*x.shape[:at], top_k, *x.shape[at + 1 :]), x.format)
    return TensorSpec(data_type, x.shape[:at] + x.shape[at + 1 :])


def _depth(indices: Operand, rank: int) -> int:
    """Return the number of positions in an index: the last dimension."""
    depth = indices.shape[-1]
    if depth == UNKNOWN_DIM:
        refuse(f"the last dimension of {indices} decides the output's shape, but is not known; fix it")
    if not 1 <= depth <= rank:
        refuse(f"{indices} holds indices of {depth} positions for {rank} dimensions; use 1..{rank}")
    return depth


def _may_equal(shape: Shape, other: Sequence[int]) -> bool:
    """Return whether two shapes agree in all dimensions that both know."""
    return len(shape) == len(other) and all(
        dim == wanted or UNKNOWN_DIM in (dim, wanted) for dim, wanted in zip(shape, other, strict=True)
    )


def _require_enough(name: str, count: int, x: Operand, at: int, least: int) -> None:
    """Refuse a number of elements that is too small, or larger than the dimension."""
    size = x.shape[at]
    if count < least or count > size != UNKNOWN_DIM:
        allowed = f"{least} or more" if size == UNKNOWN_DIM else f"{least}..{size}"
        refuse(f"{name} is {count}, of what dimension {at} (axis) of {x} holds; use {allowed}")
