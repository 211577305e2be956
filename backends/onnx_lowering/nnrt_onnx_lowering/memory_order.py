"""The order in which the dimensions of a tensor lie in memory.

A layout says which dimension is the n-th in memory; an empty one that all are in their places.
"""

from collections.abc import Sequence

from nnrt_hdi.tensor import Shape


def after(layout: Shape, permutation: Sequence[int]) -> Shape:
    """The layout of a tensor with this one when it is read by a permutation."""
    read = {axis: at for at, axis in enumerate(permutation)}
    return normal(tuple(read[axis] for axis in layout or range(len(permutation))))


def between(layout: Shape, wanted: Shape) -> Shape:
    """The permutation of memory that makes one layout of another."""
    found = {axis: at for at, axis in enumerate(layout or range(len(wanted)))}
    return tuple(found[axis] for axis in wanted or range(len(layout)))


def axis_in_memory(layout: Shape, axis: int) -> int:
    """The place of a dimension in memory."""
    return layout.index(axis % len(layout)) if layout else axis


def is_image(layout: Shape) -> bool:
    """Batch, channels, height and width lie in memory as kernels for images expect: channels first or last."""
    return not layout or (layout[0] == 0 and 1 in (layout[1], layout[-1]))


def normal(layout: Shape) -> Shape:
    """The layout, empty where all dimensions are in their places."""
    return () if layout == tuple(range(len(layout))) else layout
