"""Matrix products."""

from nnrt_hdi.enums import NodeType

from .case import Case, t

CASES: list[Case] = [
    (NodeType.FULL_CONNECTION, [t(2, 3), t(4, 5)], {}, r"x FLOAT32\[2, 3\] has 6 elements, .* rows of the 5"),
    (
        NodeType.FULL_CONNECTION,
        [t(2, 3), t(4, 5)],
        {"axis": 1},
        r"has 3 elements from dimension 1 on but weight .* takes 5",
    ),
    (NodeType.FULL_CONNECTION, [t(2, 3), t(4, 3)], {"has_bias": True}, "has_bias is True but there are 2 inputs"),
    (NodeType.FULL_CONNECTION, [t(2, 3), t(4, 3)], {"axis": 0, "use_axis": False}, "axis is 0 but use_axis is False"),
    (NodeType.FULL_CONNECTION, [t(2, 3), t(4, 3), t(3)], {}, "bias has 3 elements; give one for each of the 4"),
    (
        NodeType.FULL_CONNECTION,
        [t(2, 0), t(4, 0)],
        {},
        r"weight FLOAT32\[4, 0\] takes no elements; give it at least one",
    ),
    (NodeType.MATMUL_FUSION, [t(2, 3), t(4, 3)], {}, "rows of 3 elements but b .* columns of 4; make them equal"),
    (NodeType.MATMUL_FUSION, [t(3), t(3, 4)], {}, r"a has rank 1 \(shape \[3\]\); use rank 2 or more"),
    (
        NodeType.MATMUL_FUSION,
        [t(2, 2, 3), t(5, 3, 4)],
        {},
        r"the batch of a \[2\] and the batch of b \[5\] do not broadcast",
    ),
]
