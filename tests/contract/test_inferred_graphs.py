"""Graphs that have been inferred say so, so that nobody infers them twice; copies with other parts don't."""

from dataclasses import replace

import numpy as np
import pytest

from nnrt_hdi.enums import DataType, NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Constant, Graph, Node
from nnrt_hdi.ops import infer_graph, inferred_graph
from nnrt_hdi.tensor import TensorSpec

VECTOR = TensorSpec(DataType.FLOAT32, (512,))
DATA = np.ones(512, np.float32)
DIGEST_ONLY = Constant(Constant.of(DATA).sha256, DATA.nbytes)
SUM = Graph(
    (VECTOR, VECTOR, TensorSpec(DataType.UNKNOWN, (-1,))),
    (Node(NodeType.ADD_FUSION, (0, 1), (2,)),),
    (0,),
    (2,),
    {1: DIGEST_ONLY},
)


def test_an_inferred_graph_is_taken_as_it_is() -> None:
    known = inferred_graph(SUM)
    assert known.output_specs == (VECTOR,)
    assert (SUM.is_inferred, known.is_inferred) == (False, True)
    assert inferred_graph(known) is known


def test_copies_with_other_parts_are_not_inferred() -> None:
    known = inferred_graph(SUM)
    assert not known.with_tensors(known.tensors).is_inferred
    assert not replace(known, inputs=(0,)).is_inferred


def test_data_of_large_constants_change_no_shape() -> None:
    known = inferred_graph(SUM).with_constants({1: Constant.of(DATA)})
    assert known.is_inferred and known.constants[1].data is not None
    assert not SUM.with_constants({1: Constant.of(DATA)}).is_inferred


def test_a_graph_with_a_problem_is_not_inferred() -> None:
    wrong = replace(SUM, tensors=(VECTOR, VECTOR, TensorSpec(DataType.INT8, (512,))))
    assert not infer_graph(wrong).graph.is_inferred
    with pytest.raises(InvalidParameter, match="ADD_FUSION node 0: output is declared INT8"):
        inferred_graph(wrong)
