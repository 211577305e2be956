"""Data movement."""

from collections.abc import Iterator

from nnrt_hdi.enums import NodeType, PaddingMode

from .row import ANY, BOOL, BOTH, NUMBERS, SINGLE, Row, ints


def rows() -> Iterator[Row]:
    for wanted in ((6, 4), (0, -1), (-1,), (2, 3, 2, 2, -1)):
        yield Row(NodeType.RESHAPE, [(2, 3, 4), ints(*wanted)], {}, ANY if wanted == (6, 4) else (SINGLE,))
    yield Row(NodeType.RESHAPE, [(0, 3), ints(0, 3, dtype="i4")], {}, (SINGLE,))
    yield Row(NodeType.RESHAPE, [(1,), ints()], {}, (SINGLE,))
    yield Row(NodeType.TRANSPOSE, [(2, 3, 4), ints(2, 0, 1)], {}, ANY)
    yield Row(NodeType.TRANSPOSE, [(2, 3, 4), ints(-1, -3, 1, dtype="i4")], {}, (SINGLE,))
    yield Row(NodeType.TRANSPOSE, [(0, 3, 4, 5), ints(0, 3, 1, 2)], {}, (SINGLE,), BOTH)
    yield Row(NodeType.CONCAT, [(2, 3), (4, 3), (1, 3)], {}, ANY)
    yield Row(NodeType.CONCAT, [(2, 3, 4), (2, 3, 1)], {"axis": -1}, (SINGLE,))
    yield Row(NodeType.CONCAT, [(2, 0, 4), (2, 3, 4)], {"axis": 1}, (SINGLE,))
    yield Row(NodeType.PAD_FUSION, [(2, 3), ints((1, 0), (2, 3))], {"constant_value": 5.0}, NUMBERS)
    yield Row(NodeType.PAD_FUSION, [(2, 3), ints((1, 0), (2, 3))], {}, (SINGLE, BOOL))
    yield Row(
        NodeType.PAD_FUSION, [(4, 5), ints((1, 3), (4, 0), dtype="i4")], {"padding_mode": PaddingMode.REFLECT}, NUMBERS
    )
    yield Row(NodeType.PAD_FUSION, [(0, 3), ints((0, 0), (2, 3))], {}, (SINGLE,))
    yield Row(NodeType.SQUEEZE, [(1, 3, 1, 4)], {}, ANY)
    yield Row(NodeType.SQUEEZE, [(1, 3, 1, 4)], {"axis": (-2,)}, (SINGLE,))
    yield Row(NodeType.SQUEEZE, [(2, 1, 1, 2, 2)], {"axis": (0, 1)}, (SINGLE,))
    yield Row(NodeType.UNSQUEEZE, [(3, 4)], {"axis": (1,)}, ANY)
    yield Row(NodeType.UNSQUEEZE, [(3, 4)], {"axis": (-1, 0)}, (SINGLE,))
    yield Row(NodeType.UNSQUEEZE, [()], {"axis": (0,)}, (SINGLE,))
    yield Row(NodeType.SHAPE, [(2, 0, 5)], {}, (SINGLE, BOOL))
    yield Row(NodeType.SHAPE, [()], {}, (SINGLE,))
