"""The page of a model: its graph drawn in layers, and its operators in a table."""

from collections.abc import Iterator, Sequence

from nnrt_client.cli.drawing import STYLE, box, drawing, end_box
from nnrt_client.cli.page import page, table
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.tensor import TensorSpec, format_shape

# Of a larger model the first operators are drawn; nobody reads more.
_MOST_DRAWN = 2000
_LONGEST_VALUE = 120


def graph_page(title: str, about: Sequence[tuple[str, object]], graph: Graph) -> str:
    """One page that stands alone. `about` is what is known of the model as a whole."""
    drawn = graph.order[:_MOST_DRAWN]
    left_out = len(graph.nodes) - len(drawn)
    note = (
        f'<p class="note">The first {len(drawn)} operators; {left_out} more are in the table.</p>' if left_out else ""
    )
    rows = [
        (index, node.type.name, node.name, _tensors(graph, node.inputs), _tensors(graph, node.outputs), _attrs(node))
        for index, node in enumerate(graph.nodes)
    ]
    columns = ("", "operator", "name", "inputs", "outputs", "attributes")
    return page(
        title,
        "\n".join(
            [
                table(("", ""), about),
                f"<details open><summary>Graph</summary>{note}",
                f'<div class="frame">\n{_drawing(graph, drawn)}\n</div></details>',
                "<details open><summary>Operators</summary>",
                table(columns, rows, [f"node-{index}" for index in range(len(rows))]),
                "</details>",
            ]
        ),
        STYLE,
    )


def _drawing(graph: Graph, drawn: Sequence[int]) -> str:
    """The drawn operators with the inputs and outputs of the model."""
    boxes = [_end("input", graph.tensors[index]) for index in graph.inputs]
    source = {tensor: vertex for vertex, tensor in enumerate(graph.inputs)}
    edges: dict[tuple[int, int], str] = {}
    for index in drawn:
        node, vertex = graph.nodes[index], len(boxes)
        edges |= {(source[tensor], vertex): _tensor(graph, tensor) for tensor in node.inputs if tensor in source}
        source |= dict.fromkeys(node.outputs, vertex)
        boxes.append(_operator(graph, index))
    for tensor in graph.outputs:
        if tensor in source:
            edges[source[tensor], len(boxes)] = _tensor(graph, tensor)
            boxes.append(_end("output", graph.tensors[tensor]))
    return drawing(boxes, edges)


def _end(what: str, spec: TensorSpec) -> str:
    return end_box(what, spec.name, str(spec))


def _operator(graph: Graph, index: int) -> str:
    node = graph.nodes[index]
    shapes = ", ".join(format_shape(graph.tensors[tensor].shape) for tensor in node.outputs)
    title = "\n".join(
        [
            graph.place(index),
            *(f"reads {_tensor(graph, tensor)}" for tensor in node.inputs),
            *(f"writes {_tensor(graph, tensor)}" for tensor in node.outputs),
            *([_attrs(node)] if node.attrs else []),
        ]
    )
    return f'<a href="#node-{index}">{box("box", node.type.name, node.name, shapes, title)}</a>'


def _tensors(graph: Graph, tensors: Sequence[int]) -> str:
    return ", ".join(_tensor(graph, tensor) for tensor in tensors)


def _tensor(graph: Graph, tensor: int) -> str:
    spec = graph.tensors[tensor]
    constant = "constant " if tensor in graph.constants else ""
    return f"{constant}{spec.name or f'tensor {tensor}'} {spec}"


def _attrs(node: Node) -> str:
    return ", ".join(_shown_attrs(node))


def _shown_attrs(node: Node) -> Iterator[str]:
    for name, value in node.attrs.items():
        text = str(value)
        yield f"{name} = {text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + '...'}"
