"""Refused matrix products and LSTMs."""

from nnrt_hdi.enums import NodeType

from .case import Case, t

# One forward layer: 5 steps, a batch of 2, 3 inputs, 4 hidden cells.
LSTM = [t(5, 2, 3), t(1, 16, 3), t(1, 16, 4), t(1, 32), t(1, 2, 4), t(1, 2, 4)]
LAYERS = [t(5, 2, 3), t(2, 16, 3), t(2, 16, 4), t(2, 32), t(2, 2, 4), t(2, 2, 4)]

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
    (
        NodeType.LSTM,
        [*LSTM[:2], t(1, 16, 5), *LSTM[3:]],
        {},
        r"w_hh FLOAT32\[1, 16, 5\] is not \[entries, 4 hidden, hidden\] with hidden 4; give it 4 instead of 5",
    ),
    (NodeType.LSTM, [LSTM[0], t(1, 14, 3), *LSTM[2:]], {}, "w_ih .* with hidden 4; give it 16 instead of 14"),
    (NodeType.LSTM, [LSTM[0], t(1, 16, 4), *LSTM[2:]], {}, "w_ih .* with inputs 3; give it 3 instead of 4"),
    (NodeType.LSTM, LSTM, {"hidden_size": 5}, "w_hh .* with hidden 5; give it 20 instead of 16"),
    (NodeType.LSTM, LSTM, {"input_size": 4}, "x .* with inputs 4; give it 4 instead of 3"),
    (NodeType.LSTM, LSTM, {"bidirectional": True}, "w_hh .* with entries 2; give it 2 instead of 1"),
    (
        NodeType.LSTM,
        [*LSTM[:3], t(16), *LSTM[4:]],
        {"has_bias": True},
        "bias .* with hidden 4; give it 32 instead of 16",
    ),
    (NodeType.LSTM, [*LSTM[:5], t(1, 3, 4)], {}, "cx .* with batch 2; give it 2 instead of 3"),
    (NodeType.LSTM, LSTM, {"num_directions": 2}, "num_directions is 2 but bidirectional False; use 1, or 0"),
    (NodeType.LSTM, LSTM, {"num_layers": -1}, "num_layers is -1; use 1 or more, or 0 for 1"),
    (NodeType.LSTM, LSTM, {"proj_size": 2}, "proj_size is 2, but no operand has the weights .* use 0"),
    (NodeType.LSTM, LSTM, {"zoneout_cell": 1.5}, r"zoneout_cell is 1.5; use 0\.\.1"),
    (
        NodeType.LSTM,
        LAYERS,
        {"num_layers": 2},
        "layer 2 reads the 4 outputs of layer 1 but w_ih .* takes 3; make them equal",
    ),
]
