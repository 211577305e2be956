"""Normalizations."""

from collections.abc import Iterator

from nnrt_hdi.enums import NodeType

from .row import BOTH, FLOATS, HALF, SINGLE, Fixed, Given, Row


def rows() -> Iterator[Row]:
    vectors: list[Given] = [(4,), (4,), (4,), Fixed((4,), low=0.1, high=3)]
    yield Row(NodeType.FUSED_BATCH_NORM, [(3, 4), *vectors], {}, (HALF, SINGLE))
    yield Row(NodeType.FUSED_BATCH_NORM, [(2, 3, 5, 4), *vectors], {"epsilon": 2.0**-10}, FLOATS, BOTH)
    yield Row(NodeType.FUSED_BATCH_NORM, [(0, 3, 5, 4), *vectors], {}, (SINGLE,), BOTH)
    yield Row(NodeType.FUSED_BATCH_NORM, [(2, 3, 4), *vectors], {}, (SINGLE,))
    for axis in ((), (0,), (1,), (-3,)):
        yield Row(NodeType.SOFTMAX, [Fixed((3, 4, 5), low=-30, high=30)], {"axis": axis})
    yield Row(NodeType.SOFTMAX, [(0, 4)], {"axis": (1,)}, (SINGLE,))
    yield Row(NodeType.SOFTMAX, [(2, 3, 5, 4)], {"axis": (1,)}, (SINGLE,), BOTH)
