"""Known facts about a tensor before a run: its dimensions, where the rows are, and the sizes among its elements."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import DataType
from nnrt_hdi.ops.operands import INTEGERS
from nnrt_hdi.ops.rows_apart.sizes import ONE, ROW_COUNT, Size

# An array of Size.
Elements = NDArray[Any]
# The source of a result's dimension: an axis of the operand, another size, or None if it is unknown.
Source = int | Size | None
# Integers that make shapes, and truth values about them.
FOLLOWED = INTEGERS | {DataType.BOOL}
# The most elements that a model uses to compute a shape.
MAX_ELEMENTS = 64


@dataclass(frozen=True, slots=True)
class Rows:
    """Position of the rows in a tensor.

    Dimension `axis` has `outer` times the rows, and for each row `inner` entries. Both are 1 if the dimension is that
    of the rows alone. They are 1 and 12 if each row's 12 heads were folded into it. They are the number of steps and 1
    if steps before the rows were folded into it.
    """

    axis: int = 0
    outer: Size = ONE
    inner: Size = ONE

    @property
    def size(self) -> Size:
        """Length of the dimension."""
        return self.outer * ROW_COUNT * self.inner

    def moved_to(self, axis: int) -> "Rows":
        """Return the same in another dimension."""
        return replace(self, axis=axis)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Tensor. If it has no `rows`, it is the same for all rows, except for elements that count them.

    `elements` are the elements of a small integer tensor, some of which may be unknown; None if they aren't tracked.
    """

    dims: tuple[Size, ...]
    rows: Rows | None = None
    elements: Elements | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def counts_rows(self) -> bool:
        """True if the tensor has numbers that depend on the number of rows."""
        return self.elements is not None and any(size.counts_rows for size in self.elements.flat)

    @property
    def is_alike(self) -> bool:
        """True if the tensor is the same for all rows, whatever their number."""
        return self.rows is None and not self.counts_rows

    @property
    def is_one(self) -> bool:
        """True if the tensor has one element."""
        return all(dim == ONE for dim in self.dims)

    def without(self, axes: Collection[int]) -> list[Source]:
        """Return the dimensions without some."""
        return [axis for axis in range(self.rank) if axis not in axes]

    def changed(self, axes: Collection[int], size: Size | None) -> list[Source]:
        """Return the dimensions, some with another size."""
        return [size if axis in axes else axis for axis in range(self.rank)]

    def widened(self, places: Collection[int], size: Size | None = ONE) -> list[Source]:
        """Return the dimensions, with new ones at these indices of the result."""
        rest = iter(range(self.rank))
        return [size if at in places else next(rest) for at in range(self.rank + len(places))]


def known_elements(numbers: Any) -> Elements:
    """Return known integers as elements."""
    given = np.asarray(numbers)
    return as_elements([Size(number) for number in given.reshape(-1).tolist()], given.shape)


def as_elements(values: list[Size], shape: tuple[int, ...] | None = None) -> Elements:
    """Return sizes as elements: a vector, or an array of a shape."""
    result = np.empty(len(values), object)
    result[:] = values
    return result if shape is None else result.reshape(shape)
