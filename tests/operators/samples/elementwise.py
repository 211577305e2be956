"""Functions of one element."""

from collections.abc import Iterator

import numpy as np

from nnrt_hdi.enums import NodeType

from .row import ANY, SINGLE, Fixed, Row, ints


def rows() -> Iterator[Row]:
    for number in range(1, 13):
        yield Row(NodeType.CAST, [Fixed((2, 3), low=0, high=30), ints(number, dtype="i4")], {}, ANY)
    yield Row(NodeType.CAST, [(0, 3), ints(4)], {}, (SINGLE,))
    yield Row(NodeType.CAST, [(), np.array(4)], {}, (SINGLE,))
