"""Operands that decide shapes, and come with the run or are too large to be looked at before.

Through holes here a client could make a daemon take memory or time, or an error that nobody raised on purpose.
"""

import time
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from loaded import loaded
from model_draft import Draft

from nnrt_hdi import wire
from nnrt_hdi.backend import Cancellation, ModelConfig
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Node
from nnrt_hdi.ops import infer_graph, infer_node
from nnrt_hdi.tensor import TensorSpec

VECTOR_BYTES = 1 << 20


def peak_bytes(work: Callable[[], object]) -> int:
    """Memory that the work takes on its way to being refused."""
    tracemalloc.start()
    try:
        with pytest.raises(InvalidParameter):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


FLOATS = TensorSpec(DataType.FLOAT32, (2, 3))


def test_length_of_a_shape_that_is_not_known_yet() -> None:
    gigantic = TensorSpec(DataType.INT32, (1_000_000,))
    node = Node(NodeType.RESHAPE, (), ())
    assert peak_bytes(lambda: infer_node(node, [(FLOATS, None), (gigantic, None)])) < VECTOR_BYTES


@pytest.mark.parametrize(
    "node_type", [NodeType.REDUCE_FUSION, NodeType.RESHAPE, NodeType.TRANSPOSE], ids=lambda node_type: node_type.name
)
def test_gigantic_operand_that_comes_with_a_run(node_type: NodeType) -> None:
    axes = np.zeros(500_000, np.int32)
    operands = [(FLOATS, None), (TensorSpec(DataType.INT32, axes.shape), axes)]
    assert peak_bytes(lambda: infer_node(Node(node_type, (), ()), operands)) < VECTOR_BYTES


def test_more_axes_than_dimensions() -> None:
    with pytest.raises(InvalidParameter):
        infer_node(Node(NodeType.REDUCE_FUSION, (), ()), [(FLOATS, None), (TensorSpec(DataType.INT64, (200,)), None)])


def test_shape_without_elements_that_comes_with_a_run() -> None:
    with pytest.raises(InvalidParameter):
        infer_node(Node(NodeType.RESHAPE, (), ()), [(FLOATS, None), (TensorSpec(DataType.INT32, (0,)), None)])


def test_paddings_of_a_scalar() -> None:
    draft = Draft()
    operands = [draft.input([]), draft.constant(np.zeros((0, 2), np.int32))]
    draft.node(NodeType.PAD_FUSION, operands, [draft.output([])])
    prepared = loaded("reference").prepare(wire.graph(draft.message), ModelConfig(), lambda _: None)
    (result,) = prepared.run([np.asarray(np.float32(3))], Cancellation())
    assert result == 3


def test_outputs_by_the_thousand() -> None:
    draft = Draft()
    x = draft.input([2])
    for _ in range(4000):
        draft.node(NodeType.ADD_FUSION, [x, x], [draft.output([2])])
    prepared = loaded("reference").prepare(wire.graph(draft.message), ModelConfig(), lambda _: None)
    start = time.process_time()
    prepared.run([np.zeros(2, np.float32)], Cancellation())
    assert time.process_time() - start < 0.5


def test_axis_outside_that_comes_with_a_run() -> None:
    draft = Draft()
    operands = [draft.input([3]), draft.constant(np.array(0, np.int32)), draft.input([], DataType.INT32)]
    draft.node(NodeType.GATHER, operands, [draft.output([])])
    prepared = loaded("reference").prepare(wire.graph(draft.message), ModelConfig(), lambda _: None)
    with pytest.raises(InvalidParameter):
        prepared.run([np.zeros(3, np.float32), np.array(4, np.int32)], Cancellation())


def test_inferring_twice_gives_the_same() -> None:
    """A device infers before it asks its backend, which infers again."""
    draft = Draft()
    output = draft.output([2], quant_params=[{"scale": 1}])
    draft.node(NodeType.NEG, [draft.input([2], DataType.INT32)], [output])
    first = infer_graph(wire.graph(draft.message))
    assert bool(first.problems) == bool(infer_graph(first.graph).problems)
