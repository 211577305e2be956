"""LSTM, worked out by hand where no oracle has the case.

Without weights all gates are sigmoid(0) = 1/2, and tanh(0) = 0.
"""

from typing import Any

import numpy as np

from nnrt_hdi.enums import NodeType
from nnrt_hdi.tensor import data_type_of

from .refusals.case import t
from .single_node import AnyArray, array_of, graph_of, infer_all, run_all, spec


def lstm(x: AnyArray, hx: AnyArray, cx: AnyArray, bias: float = 0.0, **attrs: Any) -> list[AnyArray]:
    """Build an LSTM without weights."""
    inputs, hidden = x.shape[2], hx.shape[2]
    weights = [np.zeros(shape, "f4") for shape in ((1, 4 * hidden, inputs), (1, 4 * hidden, hidden))]
    arrays = [x, *weights, np.full((1, 8 * hidden), bias, "f4"), hx, cx]
    operands = [(spec(array.shape, data_type_of(array.dtype)), array) for array in arrays]
    return run_all(graph_of(NodeType.LSTM, operands, attrs), [])


def test_zoneout() -> None:
    """c' = c/2 and h' = tanh(c')/2, from c = 2 and h = 1.

    Step 1: c' = 1, h' = tanh(1)/2; c = 2/2 + 1/2, h = 1/4 + 3/4 h'. Step 2: c' = 3/4; c = 3/4 + 3/8.
    """
    x, one = np.zeros((2, 1, 1), "f4"), np.ones((1, 1, 1), "f4")
    output, hy, cy = lstm(x, one, 2 * one, zoneout_cell=0.5, zoneout_hidden=0.25)
    first = 0.25 + 0.75 * np.tanh(1) / 2
    second = 0.25 * first + 0.75 * np.tanh(0.75) / 2
    np.testing.assert_allclose(output.reshape(2), [first, second], rtol=1e-6)
    np.testing.assert_allclose(hy.reshape(1), [second], rtol=1e-6)
    np.testing.assert_array_equal(cy.reshape(1), [1.125])


def test_a_bias_that_does_not_count() -> None:
    x, one = np.zeros((1, 1, 1), "f4"), np.ones((1, 1, 1), "f4")
    (_, _, cy), (_, _, biased) = (lstm(x, one, one, np.nan, has_bias=has_bias) for has_bias in (False, True))
    assert cy == 0.5
    assert np.isnan(biased)


def test_no_steps() -> None:
    hx, cx = array_of([[1, 2]]), array_of([[3, 4]])
    output, hy, cy = lstm(np.zeros((0, 1, 3), "f4"), hx, cx)
    assert output.shape == (0, 1, 2)
    np.testing.assert_array_equal(hy, hx)
    np.testing.assert_array_equal(cy, cx)


def test_empty_batch() -> None:
    state = np.zeros((1, 0, 2), "f4")
    assert [array.shape for array in lstm(np.zeros((5, 0, 3), "f4"), state, state)] == [(5, 0, 2), (1, 0, 2), (1, 0, 2)]


def test_what_is_known_of_unknown_shapes() -> None:
    """Batch and hidden size are known if any operand has them."""
    operands = [t(-1, -1, 3), t(2, -1, 3), t(2, 16, -1), t(2, -1), t(-1, 5, -1), t(2, -1, -1)]
    shapes = [output.shape for output in infer_all(NodeType.LSTM, operands, {"bidirectional": True})]
    assert shapes == [(-1, 5, 8), (2, 5, 4), (2, 5, 4)]
