"""Graphs of one node, run on the reference backend."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from loaded import loaded
from numpy.typing import NDArray

from nnrt_client.conformance.cases.one_node import Pair, graph_of, infer_all, pairs, spec, without_dims
from nnrt_hdi.backend import Cancellation, ModelConfig, PreparedModel
from nnrt_hdi.enums import NodeType
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import TensorSpec, data_type_of

__all__ = [
    "AnyArray",
    "Pair",
    "array_of",
    "compute",
    "graph_of",
    "infer",
    "infer_all",
    "pairs",
    "prepare",
    "run",
    "run_all",
    "spec",
    "without_dims",
]

AnyArray = NDArray[Any]


def infer(
    node_type: NodeType, operands: Sequence[Pair], attrs: Mapping[str, Any], declared: tuple[TensorSpec, ...] = ()
) -> TensorSpec:
    """Return the inferred spec of the only output."""
    (output,) = infer_all(node_type, operands, attrs, declared)
    return output


def prepare(graph: Graph, **config: Any) -> PreparedModel:
    return loaded("reference").prepare(graph, ModelConfig(**config), lambda _: None)


def run_all(graph: Graph, arrays: Sequence[AnyArray]) -> list[AnyArray]:
    """Run a graph, and return its outputs."""
    return prepare(graph).run(arrays, Cancellation())


def run(graph: Graph, arrays: Sequence[AnyArray]) -> AnyArray:
    """Run a graph, and return its only output."""
    (output,) = run_all(graph, arrays)
    return output


def compute(
    node_type: NodeType,
    arrays: Sequence[AnyArray],
    attrs: Mapping[str, Any] | None = None,
    declared: tuple[TensorSpec, ...] = (),
) -> AnyArray:
    """Run a node with constant operands, and return its only output."""
    operands = [(spec(array.shape, data_type_of(array.dtype)), array) for array in arrays]
    output = infer(node_type, operands, attrs or {}, declared)
    return run(graph_of(node_type, operands, attrs or {}, output), [])


def array_of(*values: Any, dtype: str = "f4") -> AnyArray:
    """Return an array of FLOAT32, or of another type."""
    return np.array(values, dtype)
