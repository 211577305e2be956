"""Samples: rows (see `cases.row`) with one data type and one layout, and the elements of their operands."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.cases.row import Attrs, Fixed, Given, Row
from nnrt_client.conformance.numbers import Numbers
from nnrt_hdi.enums import Format, NodeType

AnyArray = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Sample:
    """Node with its operands, whose pseudorandom elements have the name as seed."""

    name: str
    family: str
    node_type: NodeType
    given: Sequence[Given]
    attrs: Attrs
    dtype: np.dtype[Any]
    layout: Format

    def arrays(self) -> list[AnyArray]:
        """Return the elements of all operands, including constants."""
        numbers = Numbers(self.name)
        return [self._array(numbers, operand) for operand in self.given]

    def inputs(self) -> list[AnyArray]:
        """Return the elements of the operands that aren't constant."""
        return [array for index, array in enumerate(self.arrays()) if not self.is_constant(index)]

    def is_constant(self, index: int) -> bool:
        """Return whether an operand is a constant of the model."""
        return isinstance(self.given[index], np.ndarray)

    def layout_of(self, array: AnyArray) -> Format:
        """Return the layout of an operand; only images have one."""
        return self.layout if array.ndim == 4 else Format.NONE

    def _array(self, numbers: Numbers, given: Given) -> AnyArray:
        if isinstance(given, np.ndarray):
            return given
        wanted = given if isinstance(given, Fixed) else Fixed(given)
        shape = wanted.shape
        if len(shape) == 4 and self.layout is Format.NCHW:
            shape = shape[0], shape[3], shape[1], shape[2]
        return numbers.array(wanted.low, wanted.high, shape, np.dtype(wanted.dtype) if wanted.dtype else self.dtype)


def samples_of(family: str, rows: Iterable[Row]) -> Iterator[Sample]:
    """Yield the samples of a family, numbered per node type: a row added at the end renames no others."""
    counts: dict[NodeType, int] = {}
    for row in rows:
        number = counts[row.node_type] = counts.get(row.node_type, -1) + 1
        for dtype in row.dtypes:
            for layout in row.layouts:
                parts = [row.node_type.name, str(number), dtype.name]
                if layout is not Format.NONE:
                    parts.append(layout.name)
                yield Sample("-".join(parts), family, row.node_type, row.operands, row.attrs, dtype, layout)
