"""Memory that may be shared with a client that writes to it meanwhile, judged for every operator."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import OPERATORS
from nnrt_hdi.ops.in_place import COMPUTE, DATA_DEPENDENT, FLOATS_ONLY, PASS, PASS_FIRST, InPlace, in_place
from nnrt_hdi.ops.operands import INDICES, INTEGERS
from nnrt_hdi.tensor import TensorSpec

JUDGED = (COMPUTE, PASS, PASS_FIRST, DATA_DEPENDENT.keys())


def test_every_operator_is_judged_once() -> None:
    assert sorted(node_type for judged in JUDGED for node_type in judged) == sorted(OPERATORS)
    assert FLOATS_ONLY <= PASS


@pytest.mark.parametrize("node_type", sorted(OPERATORS), ids=lambda node_type: NodeType(node_type).name)
def test_no_operand_of_indices_counts_as_values(node_type: NodeType) -> None:
    rules = OPERATORS[node_type].operands
    if node_type in DATA_DEPENDENT:
        values = DATA_DEPENDENT[node_type]
        assert values <= {rule.name for rule in rules}
    else:
        values = frozenset(rule.name for rule in (rules[:1] if node_type in PASS_FIRST else rules))
    assert not [rule.name for rule in rules if rule.accepts.data_types in (INDICES, INTEGERS) and rule.name in values]


def graph(types: Mapping[int, DataType], nodes: Sequence[Node], inputs: int, outputs: Sequence[int]) -> Graph:
    """Vectors of 4, FLOAT32 unless `types` says otherwise; tensors that no node writes are constants."""
    count = 1 + max(tensor for node in nodes for tensor in (*node.inputs, *node.outputs))
    specs = tuple(TensorSpec(types.get(tensor, DataType.FLOAT32), (4,)) for tensor in range(count))
    written = {tensor for node in nodes for tensor in node.outputs}
    constants = {
        tensor: Constant.of(np.zeros(4, specs[tensor].numpy_dtype))
        for tensor in range(inputs, count)
        if tensor not in written
    }
    return Graph(specs, tuple(nodes), tuple(range(inputs)), tuple(outputs), constants)


def node(node_type: NodeType, inputs: Sequence[int], *outputs: int) -> Node:
    return Node(node_type, tuple(inputs), outputs)


INT = DataType.INT32
SUM = graph({}, [node(NodeType.ADD_FUSION, [0, 1], 2)], 2, [2])
QUOTIENT = graph({}, [node(NodeType.DIV_FUSION, [0, 1], 2)], 2, [2])
WHOLE_QUOTIENT = graph({0: INT, 1: INT, 2: INT}, [node(NodeType.DIV_FUSION, [0, 1], 2)], 2, [2])
RESHAPED = graph({2: INT}, [node(NodeType.RESHAPE, [0, 2], 1)], 1, [1])
RESHAPED_AT_RUN_TIME = graph({1: INT}, [node(NodeType.RESHAPE, [0, 1], 2)], 2, [2])
PICKED = graph({1: INT, 3: INT}, [node(NodeType.GATHER, [0, 1, 3], 2)], 2, [2])
# The indices are the second input, under another name.
RENAMED = graph(
    {1: INT, 3: INT, 4: INT, 5: INT},
    [node(NodeType.RESHAPE, [1, 4], 3), node(NodeType.GATHER, [0, 3, 5], 2)],
    2,
    [2],
)
# What is compared was computed before, in other memory; but the first output is just that.
CLASSIFIED = graph({2: INT}, [node(NodeType.SOFTMAX, [0], 1), node(NodeType.ARGMAX_FUSION, [1], 2)], 1, [1, 2])
# The sum is given as it is, and in another shape is what is sorted.
SORTED = graph(
    {4: INT, 6: INT, 7: INT},
    [
        node(NodeType.ADD_FUSION, [0, 1], 2),
        node(NodeType.RESHAPE, [2, 6], 3),
        node(NodeType.TOPK_FUSION, [3, 7], 5, 4),
    ],
    2,
    [2, 5],
)
UNTOUCHED = graph({}, [node(NodeType.ABS, [0], 1)], 1, [0, 1])


@pytest.mark.parametrize(
    ("given", "inputs", "outputs"),
    [
        (SUM, {0, 1}, {0}),
        (QUOTIENT, {0, 1}, {0}),
        (WHOLE_QUOTIENT, set(), {0}),
        (RESHAPED, {0}, {0}),
        (RESHAPED_AT_RUN_TIME, {0}, {0}),
        (PICKED, {0}, set()),
        (RENAMED, {0}, set()),
        (CLASSIFIED, {0}, set()),
        (SORTED, set(), set()),
        (UNTOUCHED, {0}, {1}),
    ],
    ids=[
        "sum",
        "quotient",
        "whole_quotient",
        "reshaped",
        "reshaped_at_run_time",
        "picked",
        "renamed",
        "classified",
        "sorted",
        "untouched",
    ],
)
def test_what_is_shared(given: Graph, inputs: set[int], outputs: set[int]) -> None:
    assert in_place(given) == InPlace(frozenset(inputs), frozenset(outputs))
