"""Matrix products."""

from collections.abc import Iterator

from nnrt_hdi.enums import NodeType

from .row import FLOATS, INTEGERS, RELU, RELU6, SINGLE, Row


def rows() -> Iterator[Row]:
    yield Row(NodeType.FULL_CONNECTION, [(5, 7), (3, 7)])
    yield Row(NodeType.FULL_CONNECTION, [(2, 3, 7), (4, 7), (4,)], {"has_bias": True, **RELU})
    yield Row(NodeType.FULL_CONNECTION, [(2, 3, 4), (5, 12), (5,)], {"axis": 1, **RELU6})
    yield Row(NodeType.FULL_CONNECTION, [(2, 3, 4), (5, 12), (5,)], {"axis": -2, "use_axis": True})
    yield Row(NodeType.FULL_CONNECTION, [(2, 3), (5, 6)], {"use_axis": True}, (SINGLE,))
    yield Row(NodeType.FULL_CONNECTION, [(0, 7), (3, 7), (3,)], {}, (SINGLE,))
    yield Row(NodeType.MATMUL_FUSION, [(3, 5), (5, 4)], {}, (*FLOATS, *INTEGERS))
    yield Row(NodeType.MATMUL_FUSION, [(2, 1, 3, 5), (4, 6, 5)], {"transpose_b": True, **RELU})
    yield Row(NodeType.MATMUL_FUSION, [(6, 5, 3), (5, 2)], {"transpose_a": True, **RELU6})
    yield Row(NodeType.MATMUL_FUSION, [(6, 5, 3), (6, 2, 5)], {"transpose_a": True, "transpose_b": True}, (SINGLE,))
    yield Row(NodeType.MATMUL_FUSION, [(0, 3, 5), (5, 4)], {}, (SINGLE,))
    yield Row(NodeType.MATMUL_FUSION, [(2, 3, 1), (1, 4)], {}, (SINGLE,))
