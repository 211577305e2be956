"""Scopes: the nodes of a graph, a branch or a function's body, with the values that they read and write."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from onnx import AttributeProto, GraphProto, NodeProto

from nnrt_client.onnx_import.value import Value
from nnrt_hdi.errors import InvalidFile


@dataclass(frozen=True, slots=True)
class Missing:
    """Substitute for a value that could not be imported."""


class Scope:
    """Nodes of a graph, and the values that they read and write."""

    def __init__(
        self,
        nodes: Sequence[NodeProto],
        values: Mapping[str, Value | Missing],
        outputs: Sequence[str],
        opsets: Mapping[str, int],
        outer: "Scope | None" = None,
    ) -> None:
        self.nodes = needed_nodes(nodes, outputs)
        self.outputs = outputs
        self.opsets = opsets
        # Ids of nodes that were fused into another one.
        self.fused: set[int] = set()
        # Names of values that could not be imported, and of all values that depend on them.
        self.affected_names: set[str] = set()
        self.values = dict(values)
        self._outer = outer
        self._writers = {name: node for node in self.nodes for name in node.output}
        self._readers: dict[str, list[NodeProto | None]] = {}
        for name in outputs:
            self._readers.setdefault(name, []).append(None)
        for node in self.nodes:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)
            for name in captured_names(node):
                self._readers.setdefault(name, []).append(None)

    def __getitem__(self, name: str) -> Value | Missing:
        value = self.find(name)
        if value is None:
            raise InvalidFile(f"it reads {name!r}, which no node before it writes")
        return value

    def find(self, name: str) -> Value | Missing | None:
        """Return the value of a name in this scope or in an outer one, or None if it has none yet."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope._outer
        return None

    def __setitem__(self, name: str, value: Value | Missing) -> None:
        if name in self.values:
            raise InvalidFile(f"it writes {name!r}, which is written already")
        self.values[name] = value

    def writer(self, name: str) -> NodeProto | None:
        """Return the node that writes a value, or None for an input or a constant."""
        if name in self._writers or self._outer is None:
            return self._writers.get(name)
        return self._outer.writer(name)

    def is_read(self, name: str) -> bool:
        return bool(name) and name in self._readers

    def is_affected(self, name: str) -> bool:
        """Return whether a value depends on one that could not be imported, which may explain its own problems."""
        return name in self.affected_names

    def only_reader(self, name: str) -> NodeProto | None:
        """Return the only reader of a value, or None if there are several, or the value is an output."""
        readers = self._readers.get(name, ())
        return readers[0] if len(readers) == 1 else None


def needed_nodes(nodes: Sequence[NodeProto], outputs: Iterable[str]) -> list[NodeProto]:
    """Return the nodes that the outputs depend on, in topological order."""
    wanted = set(outputs)
    kept = []
    for node in reversed(sort_nodes(nodes)):
        if wanted.intersection(filter(None, node.output)):
            kept.append(node)
            wanted.update(node.input)
            wanted.update(captured_names(node))
    return kept[::-1]


def sort_nodes(nodes: Sequence[NodeProto]) -> Sequence[NodeProto]:
    """Sort nodes topologically. Nodes that are sorted already, or form a cycle, are returned unchanged.

    ONNX requires this order, but ONNX Runtime accepts any, and its converter to float16 puts casts at the end.
    """
    writers = {name: at for at, node in enumerate(nodes) for name in node.output}
    reads = [{writers[name] for name in (*node.input, *captured_names(node)) if name in writers} for node in nodes]
    if all(source < at for at, sources in enumerate(reads) for source in sources):
        return nodes
    placed: dict[int, NodeProto] = {}
    entered: set[int] = set()
    stack = list(reversed(range(len(nodes))))
    while stack:
        at = stack[-1]
        missing = sorted(reads[at] - placed.keys(), reverse=True)
        if at in placed or not missing:
            placed.setdefault(at, nodes[at])
            stack.pop()
        elif at in entered:  # A cycle: the import will report that a node reads a value that no node before it writes.
            return nodes
        else:
            entered.add(at)
            stack += missing
    return list(placed.values())


def put_in_order(graph: GraphProto) -> None:
    """Sort the nodes of a graph topologically, in place."""
    given = list(graph.node)
    if (ordered := sort_nodes(given)) is not given:
        del graph.node[:]
        graph.node.extend(ordered)


def captured_names(node: NodeProto) -> Iterator[str]:
    """Yield the names that the subgraphs of a node read. Some may be written in the subgraphs themselves."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield from _names_read(attribute.g)
        for graph in attribute.graphs:
            yield from _names_read(graph)


def _names_read(graph: GraphProto) -> Iterator[str]:
    for output in graph.output:
        yield output.name
    for node in graph.node:
        yield from node.input
        yield from captured_names(node)
