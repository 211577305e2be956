"""Geometry of slices, which inference and kernels share. A dimension of -1 is unknown."""

from collections.abc import Sequence
from typing import NamedTuple

from nnrt_hdi.ops.operator import refuse
from nnrt_hdi.tensor import UNKNOWN_DIM, Shape, format_shape


def window(
    shape: Shape, along: Sequence[int], starts: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """Return start and length of a window in each dimension. Refuses a window that is out of bounds."""
    result = [(0, dim) for dim in shape]
    for at, start, size in zip(along, starts, sizes, strict=True):
        end = start + max(size, 0)
        if start < 0 or end > shape[at] != UNKNOWN_DIM:
            refuse(f"dimension {at} of {format_shape(shape)} is cut from {start} to {end}; stay inside it")
        result[at] = (start, size)
    return tuple(result)


def crop_starts(offset: Sequence[int], along: range) -> Sequence[int]:
    """Return the start of CROP's window in each dimension along which it cuts."""
    rank, count = along.stop, len(along)
    if len(offset) in (0, 1):
        return (*offset, 0)[:1] * count
    if len(offset) not in (count, rank):
        refuse(f"offset is {list(offset)}; give no value, 1, {count} (from dimension {along.start} on) or {rank}")
    return offset[-count:]


class Masks(NamedTuple):
    """Masks of STRIDED_SLICE, named like its attributes; bit i concerns entry i of begin, end and strides.

    An ellipsis takes precedence over a new axis, and a new axis over a shrunk dimension.
    """

    begin_mask: int
    end_mask: int
    ellipsis_mask: int
    new_axis_mask: int
    shrink_axis_mask: int


class Cut(NamedTuple):
    """Dimension of STRIDED_SLICE's result: a part of an input dimension, or None for a new one."""

    part: slice | None
    length: int
    is_shrunk: bool = False


# Begin, end and stride; None where one is unknown.
Entry = tuple[int | None, int | None, int | None]


def strided_cuts(shape: Shape, entries: Sequence[Entry], masks: Masks) -> list[Cut]:
    """Return the cuts of STRIDED_SLICE, including the dimensions that are shrunk."""
    cuts = []
    for number, at in strided_dims(len(shape), len(entries), masks):
        if at is None:
            cuts.append(Cut(None, 1))
        elif number is None:
            cuts.append(Cut(slice(None), shape[at]))
        elif is_set(masks.shrink_axis_mask, number):
            cuts.append(_element(shape, at, number, entries[number], masks))
        else:
            cuts.append(_stretch(shape[at], number, entries[number], masks))
    return cuts


def is_set(mask: int, bit: int) -> bool:
    return bool(mask >> bit & 1)


def strided_dims(rank: int, count: int, masks: Masks) -> list[tuple[int | None, int | None]]:
    """Return the dimensions of STRIDED_SLICE's result, each as an entry and the input dimension that it cuts.

    The entry is None for a whole dimension, and the input dimension None for a new one. Shrunk ones are included.
    """
    ellipses = [number for number in range(count) if is_set(masks.ellipsis_mask, number)]
    if len(ellipses) > 1:
        refuse(f"ellipsis_mask is {masks.ellipsis_mask}, which sets the bits {ellipses}; set at most one")
    added = {number for number in range(count) if is_set(masks.new_axis_mask, number)} - {*ellipses}
    whole = rank - (count - len(ellipses) - len(added))
    if whole < 0:
        refuse(f"begin cuts {rank - whole} dimensions but x has {rank}; give at most one entry for each")
    ellipsis = ellipses[0] if ellipses else count
    numbers = (*range(ellipsis), *(None,) * whole, *range(ellipsis + 1, count))
    dimensions = iter(range(rank))
    return [(number, None if number in added else next(dimensions)) for number in numbers]


def _element(shape: Shape, at: int, number: int, entry: Entry, masks: Masks) -> Cut:
    """Return the cut of a dimension that shrinks to the element at begin."""
    begin, _, stride = entry
    _require_stride(number, stride)
    position, size = 0 if is_set(masks.begin_mask, number) else begin, shape[at]
    if position is None or size == UNKNOWN_DIM:
        return Cut(slice(0), 1, is_shrunk=True)
    if not -size <= position < size:
        refuse(f"begin[{number}] is {position} but dimension {at} of x has {size} elements; use {-size}..{size - 1}")
    position %= size
    return Cut(slice(position, position + 1), 1, is_shrunk=True)


def _stretch(size: int, number: int, entry: Entry, masks: Masks) -> Cut:
    """Return the cut of a dimension from begin to end, in steps of stride."""
    begin, end, stride = entry
    _require_stride(number, stride)
    from_edge, to_edge = is_set(masks.begin_mask, number), is_set(masks.end_mask, number)
    is_known = None not in (from_edge or begin, to_edge or end) and size != UNKNOWN_DIM
    begin, end = None if from_edge else begin, None if to_edge else end
    length = _length(begin, end, stride, size) if is_known and stride is not None else UNKNOWN_DIM
    return Cut(slice(begin, end, stride), length)


def _length(begin: int | None, end: int | None, stride: int, size: int) -> int:
    """Return the number of elements of a slice [begin:end:stride] of `size` elements; None means the edge.

    Python's `slice.indices` would do, but takes only integers, no `OpenDim`.
    """
    first, last = (0, size) if stride > 0 else (size - 1, -1)
    least, most = (first, last) if stride > 0 else (last, first)

    def inside(position: int) -> int:
        return min(max(position + size if position < 0 else position, least), most)

    begin = first if begin is None else inside(begin)
    end = last if end is None else inside(end)
    return max(0, -((begin - end) // stride))


def _require_stride(number: int, stride: int | None) -> None:
    if stride == 0:
        refuse(f"strides[{number}] is 0; use 1 or more, or a negative number to go backwards")
