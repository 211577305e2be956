"""Differences between the results of two devices, and the first operator of a model that differs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnrt_client.build.build_task import Progress
from nnrt_client.model.model import Model, model_of
from nnrt_hdi.errors import InvalidParameter
from nnrt_hdi.graph import Graph
from nnrt_hdi.ops.inference import infer_graph
from nnrt_hdi.tensor import Array, TensorSpec

# Runs a model on a device.
Run = Callable[[Model, list[Array]], list[Array]]

# Limits of one run's results, which are all in memory at the same time.
_RESULTS_AT_A_TIME = 64
_BYTES_AT_A_TIME = 64 << 20


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Tolerance with which results a and b agree: |a - b| <= absolute + relative |a|."""

    relative: float
    absolute: float


@dataclass(frozen=True, slots=True)
class Difference:
    """Difference of two results: `count` of `size` elements differ, most at index `at`, which has the two `values`."""

    count: int
    size: int
    largest: float
    at: tuple[int, ...] = ()
    values: tuple[float, float] = (0.0, 0.0)
    shapes: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    def __str__(self) -> str:
        if self.shapes:
            return f"the shapes are {list(self.shapes[0])} and {list(self.shapes[1])}"
        a, b = self.values
        return f"{self.count} of {self.size} elements, most at {list(self.at)}, where they are {a:.7g} and {b:.7g}"

    def describe(self) -> dict[str, Any]:
        """Return the difference as --json prints it."""
        return {
            "differing": self.count,
            "elements": self.size,
            "largest_difference": self.largest,
            "at": list(self.at),
            "values": list(self.values),
            "shapes": [list(shape) for shape in self.shapes] if self.shapes else None,
        }


@dataclass(frozen=True, slots=True)
class OperatorOutput:
    """One output tensor of an operator."""

    graph: Graph
    node: int
    tensor: int

    def __str__(self) -> str:
        return self.graph.place(self.node)

    def describe(self) -> dict[str, Any]:
        """Return the operator as --json prints it."""
        node = self.graph.nodes[self.node]
        return {
            "index": self.node,
            "type": node.type.name,
            "name": node.name,
            "output": self.graph.tensors[self.tensor].name,
        }


def compare_arrays(a: Array, b: Array, tolerance: Tolerance) -> Difference:
    """Compare two results. A NaN agrees only with NaN, an infinity only with the same infinity."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return Difference(max(a.size, b.size, 1), max(a.size, b.size, 1), np.inf, shapes=(a.shape, b.shape))
    if not a.size:
        return Difference(0, 0, 0.0)
    # Large integers lose their last digits in float64; `a == b` below still finds the equal ones.
    x, y = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        by = np.abs(x - y)
        same = (a == b) | (np.isnan(x) & np.isnan(y))
        by = np.where(same, 0.0, np.where(np.isnan(by), np.inf, by))
        differs = ~same & ~(
            np.isfinite(x) & np.isfinite(y) & (by <= tolerance.absolute + tolerance.relative * np.abs(x))
        )
    # Choose among the elements that differ: large numbers within the tolerance may be farther apart.
    worst = np.unravel_index(int(np.argmax(np.where(differs, by, -1.0) if differs.any() else by)), a.shape)
    at = tuple(int(index) for index in worst)
    return Difference(int(differs.sum()), a.size, float(by.max()), at, (float(x[at]), float(y[at])))


def find_first_difference(
    graph: Graph,
    runs: Sequence[Run],
    inputs: Sequence[Array],
    tolerance: Tolerance,
    progress: Progress,
) -> tuple[OperatorOutput, Difference] | None:
    """Return the first operator in topological order whose result differs, or None if all results agree.

    It runs temporary models whose outputs are the results of a group of operators, group by group.
    """
    graph = infer_graph(graph).graph  # Inference also adds nodes.
    shaped = _infer_shapes(graph, inputs)
    done = 0
    for nodes in _node_groups(shaped):
        progress("comparing", done / len(graph.nodes))
        places = [OperatorOutput(graph, node, tensor) for node in nodes for tensor in graph.nodes[node].outputs]
        part, kept = extract_part(graph, [place.tensor for place in places])
        arrays = [array for index, array in zip(graph.inputs, inputs, strict=True) if index in kept]
        results = [run(model_of(part), arrays) for run in runs]
        for place, *pair in zip(places, *results, strict=True):
            found = compare_arrays(pair[0], pair[1], tolerance)
            if found.count:
                return place, found
        done += len(nodes)
    return None


def extract_part(graph: Graph, outputs: Sequence[int]) -> tuple[Graph, Mapping[int, int]]:
    """Return the part of a graph that computes these tensors, and the new index of each tensor in it.

    The part has only the inputs that it needs. If it needs none, it has all of them, because every model has an input.
    """
    producer = {tensor: index for index, node in enumerate(graph.nodes) for tensor in node.outputs}
    needed: set[int] = set()
    waiting = [producer[tensor] for tensor in outputs]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [producer[tensor] for tensor in graph.nodes[node].inputs if tensor in producer]
    used = {tensor for node in needed for tensor in graph.nodes[node].inputs}.union(outputs)
    inputs = [index for index in graph.inputs if index in used] or graph.inputs
    return graph.part(sorted(needed), inputs, outputs, graph.name)


def _infer_shapes(graph: Graph, inputs: Sequence[Array]) -> Graph:
    """Return the graph with the shapes inferred from these inputs."""
    tensors = list(graph.tensors)
    for index, array in zip(graph.inputs, inputs, strict=True):
        tensors[index] = tensors[index].with_shape(array.shape)
    try:
        return infer_graph(graph.with_tensors(tensors)).graph
    except InvalidParameter:  # Inference fails with these shapes; the device decides.
        return graph


def _node_groups(graph: Graph) -> Iterator[list[int]]:
    """Yield the nodes in order, in groups small enough for one run."""
    group: list[int] = []
    results = size_bytes = 0
    for index in graph.order:
        specs = [graph.tensors[tensor] for tensor in graph.nodes[index].outputs]
        own_bytes = sum(_size_bytes(spec) for spec in specs)
        if group and (results + len(specs) > _RESULTS_AT_A_TIME or size_bytes + own_bytes > _BYTES_AT_A_TIME):
            yield group
            group, results, size_bytes = [], 0, 0
        group.append(index)
        results, size_bytes = results + len(specs), size_bytes + own_bytes
    if group:
        yield group


def _size_bytes(spec: TensorSpec) -> int:
    """Return the size of a result in bytes; a size that is known only at run time counts as large."""
    return _BYTES_AT_A_TIME if spec.is_dynamic else spec.byte_size
