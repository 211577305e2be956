"""Reduction of a model that a device computes wrongly to a few nodes that it computes wrongly only together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnrt_client.conformance.case import Case, Run
from nnrt_client.conformance.target import Connection
from nnrt_client.conformance.tolerance import output_error
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.graph import Graph

AnyArray = NDArray[Any]

# Maximum number of parts to try, besides one model per node.
_TRIES = 60
_MOST_NODES = 200


@dataclass(frozen=True, slots=True)
class SmallestPart:
    """Part of a model, with the right values of its inputs and outputs.

    The right values are the device's own: node by node the device computes the whole model rightly.
    """

    graph: Graph
    inputs: Sequence[AnyArray]
    right: Sequence[AnyArray]


def shrink(case: Case, run: Run, connection: Connection) -> SmallestPart | None:
    """Return the smallest part found of a case that the device still computes wrongly.

    Returns None if the device gives an error, or is also wrong node by node. Raises UnavailableDevice and
    ConnectionFailed if the daemon has ended.
    """
    graph = case.graph
    if run.wanted is None or not 1 < len(graph.nodes) <= _MOST_NODES:
        return None
    try:
        values = _node_by_node(graph, run.inputs, connection)
    except NnrtError:
        connection.session.require_alive()
        return None
    if any(distance.reason for distance in case.distances([values[index] for index in graph.outputs], run)):
        return None
    nodes = list(graph.order)
    if not _goes_wrong(case, nodes, values, connection):
        return None
    tries, size = _TRIES, len(nodes) // 2
    while size and tries:
        for start in range(0, len(nodes), size):
            rest = nodes[:start] + nodes[start + size :]
            tries -= 1
            if rest and _goes_wrong(case, rest, values, connection):
                nodes = rest
                break
            if not tries:
                break
        else:
            size //= 2
        size = min(size, len(nodes) - 1)
    part, taken, given = _part(graph, nodes, values)
    return SmallestPart(part, [values[index] for index in taken], [values[index] for index in given])


def _node_by_node(graph: Graph, inputs: Sequence[AnyArray], connection: Connection) -> Mapping[int, AnyArray]:
    """Return the value of every tensor when the device computes each node as a model of its own."""
    values: dict[int, AnyArray] = dict(zip(graph.inputs, inputs, strict=True))
    for node in graph.order:
        part, taken, given = _part(graph, [node], values)
        with connection.prepare(part) as prepared:
            outputs = prepared.run([values[index] for index in taken])
        values.update(zip(given, (np.array(output) for output in outputs), strict=True))
    return values


def _goes_wrong(case: Case, nodes: Sequence[int], values: Mapping[int, AnyArray], connection: Connection) -> bool:
    """Return whether the device computes these nodes together differently than one by one."""
    part, taken, given = _part(case.graph, nodes, values)
    try:
        with connection.prepare(part) as prepared:
            outputs = prepared.run([values[index] for index in taken])
    except NnrtError:
        connection.session.require_alive()
        return False
    for index, output in zip(given, outputs, strict=True):
        right, spec = values[index], case.graph.tensors[index]
        if (output.dtype, output.shape) != (right.dtype, right.shape):
            return True
        if output_error(output, right, spec) > case.tolerance.allows(spec):
            return True
    return False


def _part(
    graph: Graph, nodes: Sequence[int], values: Mapping[int, AnyArray]
) -> tuple[Graph, Sequence[int], Sequence[int]]:
    """Return a graph of these nodes alone, and the tensors that are its inputs and its outputs.

    Its outputs are the tensors that other nodes read or that the graph outputs.
    """
    made = {tensor for node in nodes for tensor in graph.nodes[node].outputs}
    read = dict.fromkeys(tensor for node in nodes for tensor in graph.nodes[node].inputs)
    taken = [tensor for tensor in read if tensor not in made and tensor not in graph.constants]
    elsewhere = {tensor for at, node in enumerate(graph.nodes) if at not in nodes for tensor in node.inputs}
    given = [tensor for tensor in made if tensor in elsewhere or tensor in graph.outputs] or list(made)
    # The device may need known shapes: take those of the computed values.
    known = [tensor for tensor in taken if tensor not in graph.inputs]
    tensors = list(graph.tensors)
    for tensor in known:
        tensors[tensor] = tensors[tensor].with_shape(values[tensor].shape)
    part, _ = graph.with_tensors(tensors).part(nodes, taken, given, f"{graph.name} in part".strip())
    return part, taken, given
