"""Values that shape inference computes before a run equal those of the run."""

from collections import Counter

import numpy as np
import pytest

from nnrt_client.conformance import Case, Level, cases
from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import INLINE_CONSTANT_BYTES, Constant, Graph, Node
from nnrt_hdi.ops import decided_graph, inferred_graph
from nnrt_hdi.ops.shape_numbers import FUNCTIONS
from nnrt_hdi.tensor import TensorSpec, data_type_of

N = NodeType


def read_in_one_row(case: Case) -> Graph:
    """Build the node of a case with constant operands, and reshape its result."""
    graph, (inputs, *_) = case.graph, case.inputs
    count = len(graph.tensors)
    constants = {at: Constant.of(array) for at, array in zip(graph.inputs, inputs, strict=True)}
    (result,) = graph.outputs
    tensors = *graph.tensors, TensorSpec(DataType.INT64, (1,)), graph.tensors[result].with_shape((-1,))
    nodes = *graph.nodes, Node(N.RESHAPE, (result, count), (count + 1,))
    constants |= {**graph.constants, count: Constant.of(np.array([-1]))}
    return inferred_graph(Graph(tensors, nodes, (), (count + 1,), constants))


def numbers_of(node_type: NodeType) -> list[Case]:
    """Return the cases of a node type with few integers."""
    return [
        case
        for case in cases(Level.OPERATORS)
        if case.node_types == (node_type,)
        and not case.is_dynamic
        and all(case.graph.tensors[at].numpy_dtype.kind in "iub" for at in case.graph.nodes[0].inputs)
        and all(array.nbytes <= INLINE_CONSTANT_BYTES for array in case.inputs[0])
    ]


@pytest.mark.parametrize("node_type", FUNCTIONS, ids=lambda node_type: node_type.name)
def test_numbers_are_those_of_a_run(node_type: NodeType) -> None:
    counts = Counter[bool]()
    for case in numbers_of(node_type):
        (wanted,) = case.runs[0].wanted or ()
        decided = decided_graph(read_in_one_row(case))
        is_found = [node.type for node in decided.nodes] == [N.RESHAPE]
        counts[is_found] += 1
        if is_found:
            (at,) = (at for at in decided.nodes[0].inputs[:1])
            found = decided.constants[at].data
            assert found is not None
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), case.name
            np.testing.assert_array_equal(found, wanted, err_msg=case.name)
    assert counts[True] > 0


def test_what_a_run_would_refuse_is_left_to_it_or_refused() -> None:
    """The run refuses an index out of range; shape inference refuses a slice out of range."""

    def of(node_type: NodeType, *operands: object) -> Graph:
        arrays = [np.asarray(operand) for operand in operands]
        specs = [TensorSpec(data_type_of(array.dtype), array.shape) for array in arrays]
        specs += [TensorSpec(specs[0].data_type, (-1,)), TensorSpec(specs[0].data_type, (-1,))]
        constants = {at: Constant.of(array) for at, array in enumerate(arrays)}
        count = len(arrays)
        nodes = Node(node_type, tuple(range(count)), (count,)), Node(N.ABS, (count,), (count + 1,))
        return Graph(tuple(specs), nodes, (), (count + 1,), constants)

    shape, outside = np.array([2, 3, 4]), np.array([1, 3])
    kept = decided_graph(of(N.GATHER, shape, outside, 0))
    assert [node.type for node in kept.nodes] == [N.GATHER, N.ABS]
    with pytest.raises(InvalidParameter, match=r"SLICE_FUSION node 0: dimension 0 of \[3\] is cut from 2 to 4"):
        decided_graph(of(N.SLICE_FUSION, shape, np.array([2]), np.array([2])))
