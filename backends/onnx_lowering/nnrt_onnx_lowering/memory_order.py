"""Order of a tensor's dimensions in memory.

layout[n] is the dimension that is the n-th in memory. An empty layout means the logical order.
"""

from collections.abc import Sequence

from nnrt_hdi.tensor import Shape


def permuted_layout(layout: Shape, permutation: Sequence[int]) -> Shape:
    """Return the layout of a tensor after its dimensions are permuted."""
    read = {axis: at for at, axis in enumerate(permutation)}
    return normalized_layout(tuple(read[axis] for axis in layout or range(len(permutation))))


def permutation_between(layout: Shape, wanted: Shape) -> Shape:
    """Return the permutation of dimensions in memory that converts one layout to another."""
    found = {axis: at for at, axis in enumerate(layout or range(len(wanted)))}
    return tuple(found[axis] for axis in wanted or range(len(layout)))


def axis_in_memory(layout: Shape, axis: int) -> int:
    """Return the position in memory of the dimension with a logical index."""
    return layout.index(axis % len(layout)) if layout else axis


def is_image(layout: Shape) -> bool:
    """Return whether an image is in memory as image kernels expect: channels first or last."""
    return not layout or (layout[0] == 0 and 1 in (layout[1], layout[-1]))


def normalized_layout(layout: Shape) -> Shape:
    """Return the layout, or an empty one if it is the logical order."""
    return () if layout == tuple(range(len(layout))) else layout
