"""Form of a tensor: its dimensions, the position of its rows, and its elements, as far as known before a run."""

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
# Source of a result's dimension: an axis of the operand, a size, or None if it is unknown.
Source = int | Size | None
# Data types of tracked elements: integers that make shapes, and truth values about them.
FOLLOWED = INTEGERS | {DataType.BOOL}
# Largest number of tracked elements of a tensor: models compute shapes with fewer.
MAX_ELEMENTS = 64


@dataclass(frozen=True, slots=True)
class Rows:
    """Position of the rows in a tensor.

    The length of dimension `axis` is `outer` times the number of rows times `inner`, from the slowest index to the
    fastest. Both factors are 1 if the dimension has only the rows. `inner` is 12 if 12 heads of each row were folded
    into it. `outer` is the number of steps if a dimension of steps before the rows was folded into it.
    """

    axis: int = 0
    outer: Size = ONE
    inner: Size = ONE

    @property
    def size(self) -> Size:
        """Length of the dimension."""
        return self.outer * ROW_COUNT * self.inner

    def moved_to(self, axis: int) -> "Rows":
        """Return the same position in another dimension."""
        return replace(self, axis=axis)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """Tensor as far as it is known before a run.

    Without `rows` the tensor is the same for all rows, except for elements that depend on the number of rows.
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
        """True if elements of the tensor depend on the number of rows."""
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
        """Return the sources of a result's dimensions: the axes of this tensor without `axes`."""
        return [axis for axis in range(self.rank) if axis not in axes]

    def changed(self, axes: Collection[int], size: Size | None) -> list[Source]:
        """Return the sources of a result's dimensions: the same axes of this tensor, but `size` at `axes`."""
        return [size if axis in axes else axis for axis in range(self.rank)]

    def widened(self, places: Collection[int], size: Size | None = ONE) -> list[Source]:
        """Return the sources of a result's dimensions: the axes of this tensor, with new ones of `size` at `places`."""
        rest = iter(range(self.rank))
        return [size if at in places else next(rest) for at in range(self.rank + len(places))]


def known_elements(numbers: Any) -> Elements:
    """Convert known integers to elements."""
    given = np.asarray(numbers)
    return as_elements([Size(number) for number in given.reshape(-1).tolist()], given.shape)


def as_elements(values: list[Size], shape: tuple[int, ...] | None = None) -> Elements:
    """Convert sizes to elements: a vector, or an array of the given shape."""
    result = np.empty(len(values), object)
    result[:] = values
    return result if shape is None else result.reshape(shape)
