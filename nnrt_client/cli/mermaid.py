"""Drawings of graphs as Mermaid flowcharts, which GitHub, GitLab and many editors show and `mmdc` renders."""

from collections.abc import Hashable, Iterable, Mapping
from typing import TYPE_CHECKING

from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import format_shape
from nnrt_hdi.text import escape_for_terminal

if TYPE_CHECKING:
    from nnrt_client.onnx_import.cut import OnnxGraph

_LONGEST_VALUE = 120


class Flowchart:
    """Flowchart with an arrow from the box that writes a tensor to each box that reads it."""

    def __init__(self) -> None:
        self._boxes: dict[str, list[str]] = {}
        self._lines: list[str] = []
        self._writers: dict[Hashable, str] = {}

    def add(
        self, lines: Iterable[str], reads: Iterable[tuple[Hashable, str]], writes: Iterable[Hashable], group: str = ""
    ) -> None:
        """Add a box with these lines of text, inside the frame of its group.

        `reads` pairs each tensor that the box reads with the label of the arrow from the box that writes it.
        """
        box = f"n{sum(map(len, self._boxes.values()))}"
        self._boxes.setdefault(group, []).append(f'{box}["{"<br>".join(_escape(line) for line in lines if line)}"]')
        for tensor, label in reads:
            if tensor in self._writers:
                arrow = f'-- "{_escape(label)}" -->' if label else "-->"
                self._lines.append(f"{self._writers[tensor]} {arrow} {box}")
        self._writers |= dict.fromkeys(writes, box)

    def __str__(self) -> str:
        parts = ["flowchart TD"]
        for at, (group, boxes) in enumerate(self._boxes.items()):
            parts += [f'subgraph g{at}["{_escape(group)}"]', *boxes, "end"] if group else boxes
        return "\n".join([*parts, *self._lines, ""])


def draw_graph(graph: Graph) -> str:
    """Draw each operator of a graph with its attributes, and the inputs and outputs."""
    labels = {index: f"{spec.name or f'tensor {index}'} {spec}" for index, spec in enumerate(graph.tensors)}
    chart = Flowchart()
    for index in graph.inputs:
        chart.add(("input", labels[index]), (), (index,))
    for node in (graph.nodes[index] for index in graph.order):
        attrs = (f"{name} = {str(value)[:_LONGEST_VALUE]}" for name, value in node.attrs.items())
        shapes = ", ".join(format_shape(graph.tensors[index].shape) for index in node.outputs)
        reads = dict.fromkeys((index, labels[index]) for index in node.inputs)
        chart.add((node.type.name, node.name, *attrs, shapes), reads, node.outputs)
    for index in graph.outputs:
        chart.add(("output", labels[index]), ((index, ""),), ())
    return str(chart)


def draw_parts(graph: "OnnxGraph", part_of: Mapping[int, str]) -> str:
    """Draw the operators of an ONNX graph, grouped by their parts, and the inputs and outputs."""
    chart = Flowchart()
    for info in graph.inputs:
        chart.add(("input", info.name, graph.kind(info.name)), (), (info.name,))
    for index, part in sorted(part_of.items()):
        node = graph.nodes[index]
        reads = [(name, f"{name} {graph.kind(name)}") for name in sorted(node.reads)]
        chart.add((node.type, node.name, graph.kind(node.writes[0])), reads, node.writes, part)
    for name in graph.outputs:
        chart.add(("output", name, graph.kind(name)), ((name, ""),), ())
    return str(chart)


def _escape(text: str) -> str:
    """Escape text for Mermaid's quotes: characters that have a meaning there or in HTML become numeric entities."""
    return "".join(
        f"#{ord(char)};" if char in '"#&;<>`\\' else char for char in escape_for_terminal(text).replace("\n", " ")
    )
