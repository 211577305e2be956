"""Graphs whose answers change if an optimization is wrong; the answers are worked out by hand.

Wrong optimizations fuse a node whose output another node reads too, free memory too early, or reorder outputs.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from nnrt_client.conformance.case import Case, Level
from nnrt_client.conformance.cases.draft import Draft, HandMade, case_by_hand
from nnrt_client.conformance.numbers import f4, i4
from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import UNKNOWN_DIM, QuantParam, TensorSpec

N = NodeType
RELU: dict[str, Any] = {"activation_type": ActivationType.RELU}
# Longer than Python's recursion limit.
LONG = 1500


def _case(title: str, graph: Graph, *runs: HandMade) -> Case:
    return case_by_hand(Level.GRAPHS, f"optimizations-{title}", graph, *runs)


def optimizations() -> Iterator[Case]:
    """Yield the cases of graphs that a wrong optimization breaks."""
    for kind in (_activations, _pairs, _folds, _reused, _merged, _interfaces, _long):
        yield from kind()


def _activations() -> Iterator[Case]:
    """Yield graphs in which another node also reads the input of an activation that could be fused."""
    x = f4(-3, 1, 2)
    for title in ("read_by_another", "given_back"):
        draft = Draft()
        total = draft.node(N.ADD_FUSION, draft.float_input(3), draft.constant(f4(1, 1, 1)))
        rectified = draft.node(N.ACTIVATION, total, **RELU)
        other = draft.node(N.MUL_FUSION, total, draft.constant(f4(2, 2, 2))) if title == "read_by_another" else total
        right = f4(-4, 4, 6) if title == "read_by_another" else f4(-2, 2, 3)
        yield _case(f"activation_{title}", draft.graph(rectified, other), ([x], [f4(0, 2, 3), right]))


def _pairs() -> Iterator[Case]:
    """Yield graphs with two conversions that can be merged or removed."""
    draft = Draft()
    first = draft.node(N.TRANSPOSE, draft.float_input(2, 3, 4), draft.constant(i4(1, 2, 0)))
    second = draft.node(N.TRANSPOSE, first, draft.constant(i4(0, 2, 1)))
    cube = np.arange(24, dtype="f4").reshape(2, 3, 4)
    wanted = np.ascontiguousarray(cube.transpose(1, 0, 2))
    yield _case("two_transposes", draft.graph(second), ([cube], [wanted]))

    draft = Draft()
    whole = TensorSpec(DataType.INT8, (3,), quant=(QuantParam(1.0, 0),))
    kinds = int(DataType.FLOAT32), int(DataType.INT8)
    stored = draft.node(N.QUANT_DTYPE_CAST, draft.float_input(3), declared=(whole,), src_t=kinds[0], dst_t=kinds[1])
    back = draft.node(N.QUANT_DTYPE_CAST, stored, src_t=kinds[1], dst_t=kinds[0])
    double = draft.node(N.ADD_FUSION, back, back)
    yield _case("quantized_and_back", draft.graph(double), ([f4(0.25, 1.75, 300)], [f4(0, 4, 254)]))

    draft = Draft()
    whole_number = draft.node(N.CAST, draft.float_input(3), draft.constant(i4(4)))
    back = draft.node(N.CAST, whole_number, draft.constant(i4(11)))
    double = draft.node(N.ADD_FUSION, back, back)
    yield _case("cast_and_back", draft.graph(double), ([f4(0.25, -1.75, 3)], [f4(0, -2, 6)]))


def _folds() -> Iterator[Case]:
    """Yield graphs with nodes that can be folded into an adjacent convolution, and constants that can be merged."""
    draft = Draft()
    weight, none, one = (draft.constant(array) for array in (f4(1).reshape(1, 1, 1, 1), f4(0), f4(1)))
    pixels = draft.node(N.CONV2D_FUSION, draft.float_input(1, 1, 2, 1), weight, none, **RELU)
    norm = draft.node(N.FUSED_BATCH_NORM, pixels, draft.constant(f4(-2)), one, none, one, epsilon=0.0)
    image = f4(-3, 4).reshape(1, 1, 2, 1)
    yield _case("norm_behind_an_activation", draft.graph(norm), ([image], [f4(1, -7).reshape(1, 1, 2, 1)]))

    draft = Draft()
    weight, none = draft.constant(np.ones((1, 1, 3, 1), "f4")), draft.constant(f4(0))
    borders = draft.constant(np.array([[0, 0], [0, 0], [1, 1], [0, 0]], "i4"))
    wide = draft.node(N.PAD_FUSION, draft.float_input(1, 1, 2, 1), borders, constant_value=5.0)
    y = draft.node(N.CONV2D_FUSION, wide, weight, none)
    image = f4(1, 2).reshape(1, 1, 2, 1)
    yield _case("border_of_fives", draft.graph(y), ([image], [f4(8, 8).reshape(1, 1, 2, 1)]))

    draft = Draft()
    a, b, x_in = draft.constant(f4(1, 2)), draft.constant(f4(10, 20)), draft.float_input(2)
    both = draft.node(N.ADD_FUSION, x_in, draft.node(N.ADD_FUSION, a, b))
    alone = draft.node(N.MUL_FUSION, x_in, a)
    yield _case("constant_that_is_read_twice", draft.graph(both, alone), *[([f4(1, 1)], [f4(12, 23), f4(1, 2)])] * 2)


def _reused() -> Iterator[Case]:
    draft = Draft()
    total = draft.node(N.ADD_FUSION, draft.float_input(2), draft.constant(f4(1, 1)))
    double = draft.node(N.MUL_FUSION, total, draft.constant(f4(2, 2)))
    triple = draft.node(N.MUL_FUSION, total, draft.constant(f4(3, 3)))
    y = draft.node(N.SUB_FUSION, double, triple)
    yield _case("diamond", draft.graph(y), *[([f4(4, -1)], [f4(-5, 0)])] * 2)

    draft = Draft()
    x = draft.float_input(2)
    y = draft.node(N.ADD_FUSION, draft.node(N.ACTIVATION, x, **RELU), x)
    yield _case("input_read_after_an_activation", draft.graph(y), ([f4(4, -1)], [f4(8, -1)]))

    draft = Draft()
    total = draft.node(N.ADD_FUSION, draft.float_input(2), draft.constant(f4(1, 1)))
    y = draft.node(N.MUL_FUSION, draft.node(N.ADD_FUSION, total, draft.constant(f4(5, 5))), total)
    yield _case("sum_read_after_a_sum", draft.graph(y), ([f4(4, -1)], [f4(50, 0)]))

    draft = Draft()
    backwards = [draft.constant(i4(*numbers)) for numbers in ([-1], [0], [-1])]
    places = draft.constant(np.array([[0, 1], [1, 0], [0, 1]], "i4"))
    turned = [draft.node(N.STRIDED_SLICE, at, *backwards, end_mask=1) for at in (places, draft.float_input(3))]
    y = draft.node(N.SPARSE_TO_DENSE, *turned, draft.constant(i4(2, 2)))
    yield _case("places_from_the_last", draft.graph(y), ([f4(1, 2, 3)], [f4([0, 1], [2, 0])]))

    draft = Draft()
    x = draft.float_input(2)
    y = draft.node(N.CONCAT, x, x, draft.node(N.SUB_FUSION, x, x))
    yield _case("one_operand_several_times", draft.graph(y), ([f4(4, -1)], [f4(4, -1, 4, -1, 0, 0)]))


def _merged() -> Iterator[Case]:
    draft = Draft()
    x = draft.float_input(2, 2)
    rows, columns = (draft.node(N.SOFTMAX, x, axis=(axis,)) for axis in (1, 0))
    ahead = f4([0, np.log(3)], [0, np.log(3)])
    right = [f4([0.25, 0.75], [0.25, 0.75]), f4([0.5, 0.5], [0.5, 0.5])]
    yield _case("two_axes", draft.graph(draft.node(N.ADD_FUSION, rows, columns)), ([ahead], [right[0] + right[1]]))

    draft = Draft()
    a, b = draft.float_input(2), draft.float_input(2)
    y = draft.node(N.MUL_FUSION, draft.node(N.SUB_FUSION, a, b), draft.node(N.SUB_FUSION, b, a))
    yield _case("both_differences", draft.graph(y), ([f4(4, -1), f4(1, 1)], [f4(-9, -4)]))


def _interfaces() -> Iterator[Case]:
    a, b = f4(4, -1), f4(1, 2)

    draft = Draft()
    first, second = draft.float_input(2), draft.float_input(2)
    y = draft.node(N.SUB_FUSION, second, first)
    yield _case("inputs_read_from_the_last", draft.graph(y), ([a, b], [b - a]))

    draft = Draft()
    unread, x = draft.float_input(2), draft.float_input(2)
    y = draft.node(N.MUL_FUSION, x, draft.constant(f4(2, 2)))
    assert unread != x
    yield _case("an_input_that_nobody_reads", draft.graph(y), ([a, b], [2 * b]))

    draft = Draft()
    x = draft.float_input(2)
    double = draft.node(N.MUL_FUSION, x, draft.constant(f4(2, 2)))
    square = draft.node(N.MUL_FUSION, double, double)
    yield _case("outputs_from_the_last", draft.graph(square, double), ([a], [f4(64, 4), 2 * a]))

    ordered = draft.graph(square)
    backwards = replace(ordered, nodes=ordered.nodes[::-1])
    yield _case("nodes_from_the_last", backwards, ([a], [f4(64, 4)]))

    draft = Draft()
    x, known = draft.float_input(2), draft.constant(f4(7, 8))
    total = draft.node(N.ADD_FUSION, x, known)
    yield _case("outputs_that_no_node_makes", draft.graph(x, known, total), ([a], [a, f4(7, 8), f4(11, 7)]))

    draft = Draft()
    y = draft.node(N.ADD_FUSION, draft.float_input(UNKNOWN_DIM, UNKNOWN_DIM), draft.constant(f4(1)))
    matrices = [np.arange(6, dtype="f4").reshape(shape) for shape in ((2, 3), (3, 2), (1, 6), (2, 3))]
    yield _case("as_many_elements", draft.graph(y), *[([x], [x + 1]) for x in matrices])


def _long() -> Iterator[Case]:
    draft = Draft()
    y, one = draft.float_input(2), draft.constant(f4(1, 1))
    for _ in range(LONG):
        y = draft.node(N.ADD_FUSION, y, one)
    yield _case("long_chain", draft.graph(y), ([f4(0, -1)], [f4(LONG, LONG - 1)]))
