"""Elements read or written by their index."""

from collections.abc import Sequence

import torch

from nnrt_backend_torch.kernels.checks import are_made_later, require
from nnrt_backend_torch.kernels.kernel import Call, bits, cast_all, in_order, kernel, numbers
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.ops.operands import normalized_axis
from nnrt_hdi.tensor import Shape


@kernel(NodeType.GATHER, on_host=(2,))
def gather(call: Call, x: torch.Tensor, indices: torch.Tensor, axis: torch.Tensor) -> torch.Tensor:
    """Return the entries of x along axis at the given indices."""
    at = normalized_axis(numbers(axis)[0], x.ndim)
    size = x.shape[at]
    require_inside(indices, is_outside(indices, size), (size,))
    if not size and indices.numel():  # Only a check that comes later lets it pass.
        return torch.zeros(call.outputs[0].shape, dtype=x.dtype, device=x.device)
    source = bits(x)
    if indices.numel() >= size:  # Whole entries are faster to select than single elements.
        source = source.contiguous()
    entries = source.index_select(at, inside(indices, size).reshape(-1)).view(x.dtype)
    return entries.reshape(call.outputs[0].shape)


@kernel(NodeType.GATHER_ND)
def gather_nd(_: Call, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return the entries of x at positions in its first dimensions."""
    return bits(x)[positions(indices, x.shape)].view(x.dtype)


@kernel(NodeType.SCATTER_ND, on_host=(2,))
def scatter_nd(call: Call, indices: torch.Tensor, updates: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return the sums of the updates at each position. The sum of BOOL is true unless all are false."""
    shape, dtype = call.outputs[0].shape, call.dtype
    if dtype is torch.bool:
        dtype = torch.int32
    elif dtype is torch.float32 and call.device.type == "cpu":
        # CPUs add FLOAT32 in an order that varies from run to run, but FLOAT64 one after the other.
        dtype = torch.float64
    y = torch.zeros(shape, dtype=dtype, device=call.device)
    return y.index_put_(positions(indices, shape), updates.to(dtype), accumulate=True)


@kernel(NodeType.SPARSE_TO_DENSE, on_host=(2,))
def sparse_to_dense(call: Call, indices: torch.Tensor, values: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return a matrix with the values at their positions; of several values at one position the last."""
    rows, columns = call.outputs[0].shape
    row, column = positions(indices, (rows, columns))
    places, order = (row.to(torch.int64) * columns + column).sort(stable=True)
    is_last = torch.ones_like(places, dtype=torch.bool)
    is_last[:-1] = places[1:] != places[:-1]
    # Torch doesn't say which of several values stays. So all but the last go to one more element, which is dropped.
    y = torch.zeros(rows * columns + 1, dtype=values.dtype, device=call.device)
    bits(y)[torch.where(is_last, places, rows * columns)] = bits(values)[order]
    return y[:-1].reshape(rows, columns)


@kernel(NodeType.ONE_HOT, on_host=(1,))
def one_hot(
    call: Call, indices: torch.Tensor, _: torch.Tensor, on_value: torch.Tensor, off_value: torch.Tensor
) -> torch.Tensor:
    """Return on_value where the position along the new dimension equals the index, else off_value."""
    axis = call.attrs.axis
    count = call.outputs[0].shape[axis]
    along = torch.arange(count, device=call.device)
    along = along.reshape([count, *[1] * (indices.ndim - axis % (indices.ndim + 1))])
    if on_value.dtype is not off_value.dtype:
        on_value, off_value = cast_all(call.dtype, on_value, off_value)
    return torch.where(indices.unsqueeze(axis) == along, on_value.reshape(()), off_value.reshape(()))


@kernel(NodeType.TOPK_FUSION, on_host=(1,))
def top_k(call: Call, x: torch.Tensor, _: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest elements along axis, and their indices."""
    axis = call.attrs.axis
    indices = largest(x, call.outputs[0].shape[axis], axis)
    if not call.attrs.sorted:
        indices = indices.sort(axis).values  # So that the first of equal elements comes first.
        order = sortable(along_axis(x, indices, axis)).sort(dim=axis, stable=True).indices
        indices = indices.gather(axis, order)
    return along_axis(x, indices, axis), indices


@kernel(NodeType.ARGMAX_FUSION)
def arg_max(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Return the indices of the largest elements along axis, or with `out_max_value` these elements."""
    axis = call.attrs.axis
    indices = largest(x, call.attrs.top_k, axis)
    y = along_axis(x, indices, axis) if call.attrs.out_max_value else indices
    return y.reshape(call.outputs[0].shape)


def largest(x: torch.Tensor, count: int, axis: int) -> torch.Tensor:
    """Return the indices of the largest elements along axis, the largest first; of equal ones the first."""
    x = sortable(x)
    if count == 1:
        return x.argmax(axis, keepdim=True)
    # topk doesn't keep the order of equal elements.
    return x.sort(dim=axis, descending=True, stable=True).indices.narrow(axis, 0, count)


def sortable(x: torch.Tensor) -> torch.Tensor:
    """Return elements in the same order, of a type whose largest one torch finds."""
    return x.to(torch.uint8) if x.dtype is torch.bool else in_order(x)


def along_axis(x: torch.Tensor, indices: torch.Tensor, axis: int) -> torch.Tensor:
    """Return the elements of x at indices along an axis."""
    return bits(x).gather(axis, indices).view(x.dtype)


def positions(indices: torch.Tensor, shape: Shape) -> tuple[torch.Tensor, ...]:
    """Return positions in the first dimensions of a shape, in torch's form, after a check of their bounds.

    Raises:
        InvalidParameter: A position is out of bounds.
    """
    along = indices.unbind(-1)
    outside = torch.stack([is_outside(index, size) for index, size in zip(along, shape, strict=False)], -1)
    require_inside(indices, outside, shape)
    return tuple(inside(index, size) for index, size in zip(along, shape, strict=False))


def is_outside(indices: torch.Tensor, size: int) -> torch.Tensor:
    """Return whether indices are outside of 0..size - 1."""
    return (indices < 0) | (indices >= size)


def inside(indices: torch.Tensor, size: int) -> torch.Tensor:
    """Return indices that are inside of 0..size - 1 also if their check comes later: CUDA doesn't survive others."""
    return indices.clamp(0, max(size - 1, 0)) if are_made_later() else indices


def require_inside(indices: torch.Tensor, outside: torch.Tensor, sizes: Sequence[int]) -> None:
    """Require that all indices are inside of their dimensions.

    Args:
        indices: The indices.
        outside: Whether each is outside.
        sizes: The size of the dimension, or one for each position in the last dimension of the indices.

    Raises:
        InvalidParameter: An index is outside.
    """

    def error() -> InvalidParameter:
        at = outside.nonzero()[0].tolist()
        size = sizes[at[-1]] if len(sizes) > 1 else sizes[0]
        place = f"indices[{', '.join(map(str, at))}]" if at else "indices"
        right = f"use 0..{size - 1}" if size else "there is nothing to pick"
        found = indices[tuple(at)].item()
        return InvalidParameter(f"{place} is {found} in a dimension of {size} elements; {right}")

    require(outside.any(), error)
