"""Which nodes the accelerator runs, and how. docs/reference/operators.md of nnrt says what each node type computes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_hdi.enums import ActivationType, DataType, NodeType
from nnrt_hdi.graph import Graph, Node

AnyArray = NDArray[Any]

_ACTIVATIONS = (ActivationType.NO_ACTIVATION, ActivationType.RELU)


def reason_against(graph: Graph, node: Node) -> str:
    """Why the accelerator doesn't run a node, in words a person can act on; empty where it does.

    It is asked of nodes with mistakes, too, which the daemon refuses: say anything of them, but raise nothing.
    """
    if node.type not in KERNELS:
        return f"acme has no kernel for {node.type.name}"
    for tensor in (*node.inputs, *node.outputs):
        spec = graph.tensors[tensor]
        if spec.data_type is not DataType.FLOAT32:
            return f"acme computes in FLOAT32; {graph.tensor_place(tensor)} is {spec.data_type.name}"
    activation = _activation(node)
    if activation not in _ACTIVATIONS:
        return f"acme knows the activations {' and '.join(one.name for one in _ACTIVATIONS)}; this is {activation!r}"
    return ""


def _activation(node: Node) -> object:
    return node.attrs.get("activation_type", ActivationType.NO_ACTIVATION)


def _activated(node: Node, x: AnyArray) -> AnyArray:
    """Compute the activation that the node says comes behind its operator."""
    return np.maximum(x, np.float32(0)) if _activation(node) == ActivationType.RELU else x


def _add(node: Node, a: AnyArray, b: AnyArray) -> AnyArray:
    return _activated(node, a + b)


def _matmul(node: Node, a: AnyArray, b: AnyArray) -> AnyArray:
    a = a.swapaxes(-1, -2) if node.attrs.get("transpose_a", False) else a
    b = b.swapaxes(-1, -2) if node.attrs.get("transpose_b", False) else b
    return _activated(node, a @ b)


KERNELS: dict[NodeType, Callable[..., AnyArray]] = {
    NodeType.ACTIVATION: _activated,
    NodeType.ADD_FUSION: _add,
    NodeType.MATMUL_FUSION: _matmul,
}
