"""Checks of GATHER's indices before a run, because OpenVINO doesn't check indices."""

from typing import NamedTuple

from nnrt_hdi.backend import Support
from nnrt_hdi.enums import NodeType
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.tensor import Array

UNSEEN = Support("OpenVINO doesn't check indices; give those of GATHER, and its axis, as inputs or constants")


class IndexCheck(NamedTuple):
    """Indices of a GATHER node, and the length of the dimension that they index."""

    place: str
    tensor: int
    length: int

    def require(self, indices: Array) -> None:
        """Raise InvalidParameter if an index is out of bounds."""
        if indices.size and not (indices.min() >= 0 and indices.max() < self.length):
            given = f"{indices.min()}..{indices.max()}"
            raise InvalidParameter(f"indices has elements {given}; use 0..{self.length - 1}", place=self.place)


def is_unseen(graph: Graph, node: Node) -> bool:
    """Return whether the indices of a node are unknown until the node is computed."""
    if node.type is not NodeType.GATHER:
        return False
    return node.inputs[1] not in (*graph.inputs, *graph.constants) or node.inputs[2] not in graph.constants


def index_checks(graph: Graph) -> list[IndexCheck]:
    """Return the checks of GATHER's indices that each run must make.

    The graph's shapes must be known. Raises InvalidParameter for constant indices that are out of bounds.
    """
    checks = []
    for at, node in enumerate(graph.nodes):
        if node.type is NodeType.GATHER:
            axis = graph.shape_values[node.inputs[2]].item()
            check = IndexCheck(graph.place(at), node.inputs[1], graph.tensors[node.inputs[0]].shape[axis])
            if (constant := graph.constants.get(check.tensor)) and constant.data is not None:
                check.require(constant.data)
            else:
                checks.append(check)
    return checks
