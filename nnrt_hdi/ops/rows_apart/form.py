"""What is known of a tensor before a run: its dimensions, where the rows are in it, and the sizes that it holds."""

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
# Where a dimension of a result comes from: an axis of the operand, or a size of its own, None where nobody knows it.
Source = int | Size | None
# Integers that make shapes, and what is true of them.
FOLLOWED = INTEGERS | {DataType.BOOL}
# As many as a model computes with to make a shape.
MAX_ELEMENTS = 64


@dataclass(frozen=True, slots=True)
class Rows:
    """The place of the rows in a tensor.

    Dimension `axis` counts `outer` times the rows, and for each row `inner` entries: 1 and 1 where it is that of the
    rows alone, 1 and 12 where each row's 12 heads were folded into it, and where steps before the rows were folded into
    it their number and 1.
    """

    axis: int = 0
    outer: Size = ONE
    inner: Size = ONE

    @property
    def size(self) -> Size:
        """The dimension."""
        return self.outer * ROW_COUNT * self.inner

    def at(self, axis: int) -> "Rows":
        """The same in another dimension."""
        return replace(self, axis=axis)


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A tensor: all rows have it alike where it has no `rows` in it, but for elements that count them.

    `elements` are those of few integers, with the unknown ones, None where they are not followed.
    """

    dims: tuple[Size, ...]
    rows: Rows | None = None
    elements: Elements | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def counts_rows(self) -> bool:
        """It holds numbers that depend on how many rows there are."""
        return self.elements is not None and any(size.counts_rows for size in self.elements.flat)

    @property
    def is_alike(self) -> bool:
        """It is the same for all rows, however many there are."""
        return self.rows is None and not self.counts_rows

    @property
    def is_one(self) -> bool:
        """It has one element."""
        return all(dim == ONE for dim in self.dims)

    def without(self, axes: Collection[int]) -> list[Source]:
        """Its dimensions, but for some."""
        return [axis for axis in range(self.rank) if axis not in axes]

    def changed(self, axes: Collection[int], size: Size | None) -> list[Source]:
        """Its dimensions, some of which have another size."""
        return [size if axis in axes else axis for axis in range(self.rank)]

    def widened(self, places: Collection[int], size: Size | None = ONE) -> list[Source]:
        """Its dimensions, with new ones at these places of the result."""
        rest = iter(range(self.rank))
        return [size if at in places else next(rest) for at in range(self.rank + len(places))]


def sizes(numbers: Any) -> Elements:
    """Known integers as elements."""
    given = np.asarray(numbers)
    return as_elements([Size(number) for number in given.reshape(-1).tolist()], given.shape)


def as_elements(values: list[Size], shape: tuple[int, ...] | None = None) -> Elements:
    """Sizes as elements: a vector, or in a shape."""
    result = np.empty(len(values), object)
    result[:] = values
    return result if shape is None else result.reshape(shape)
