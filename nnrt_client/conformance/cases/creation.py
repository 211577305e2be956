"""Rows (see `cases.row`) of operators that make tensors from a shape or a range."""

from collections.abc import Iterator

from nnrt_client.conformance.cases.row import ANY, DOUBLE, INTEGERS, NUMBERS, SINGLE, Row, ints
from nnrt_hdi.enums import NodeType


def rows() -> Iterator[Row]:
    yield Row(NodeType.FILL, [(), ints(2, 3)], {}, ANY)
    yield Row(NodeType.FILL, [(1,), ints(4, dtype="i4")], {}, (SINGLE,))
    yield Row(NodeType.FILL, [(), ints(2, 0)], {}, (SINGLE,))
    yield Row(NodeType.FILL, [(), ints()], {}, (SINGLE,))
    for number in range(13):
        yield Row(NodeType.CONSTANT_OF_SHAPE, [ints(2, 3)], {"data_type": number, "value": (3.0,)}, (SINGLE,))
    # Integers, and integral values of other types.
    for dtype in (*INTEGERS, SINGLE, DOUBLE):
        yield Row(NodeType.CONSTANT_OF_SHAPE, [ints(2, 3, dtype=dtype.str)], {}, (dtype,))
    for shape in ((), (0, 3)):
        yield Row(NodeType.CONSTANT_OF_SHAPE, [ints(*shape)], {"value": (0.5,)}, (SINGLE,))
    yield Row(NodeType.RANGE, [()], {"start": 3, "limit": 18, "delta": 4}, NUMBERS)
    yield Row(NodeType.RANGE, [(2, 0)], {"start": 9, "limit": 0, "delta": -3}, NUMBERS)
    yield Row(NodeType.RANGE, [(1,)], {}, (SINGLE,))
    for start, limit, delta in ((0, 5, 1), (5, -5, 1), (2, 7, 9)):
        yield Row(NodeType.RANGE, [(1,)], {"start": start, "limit": limit, "delta": delta}, (SINGLE,))
