"""The page of a model: its graph drawn in layers, and its operators in a table."""

from collections.abc import Iterator, Sequence

from nnrt_client.cli.layers import layout
from nnrt_client.cli.page import escaped, page, table
from nnrt_hdi.graph import Graph, Node
from nnrt_hdi.tensor import TensorSpec, format_shape

# Of a larger model the first operators are drawn; nobody reads more.
_MOST_DRAWN = 2000
_BOX_WIDTH, _BOX_HEIGHT = 190.0, 58.0
_LAYER_HEIGHT = 96.0
_MARGIN = 20.0
_LONGEST_LABEL = 26
_LONGEST_VALUE = 120

_STYLE = """
.box rect { fill: Canvas; stroke: var(--accent); stroke-width: 1.3; } .end rect { stroke: var(--mark); }
.box .kind { font-weight: 600; } .box:hover rect { fill: #fc03; }
.box :is(.name, .shape) { fill: #888; } .edge { fill: none; stroke: #8889; stroke-width: 1.2; } .edge:hover {
  stroke: var(--mark); stroke-width: 3; }
"""


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
        _STYLE,
    )


def _drawing(graph: Graph, drawn: Sequence[int]) -> str:
    """The drawn operators with the inputs and outputs of the model."""
    boxes = [_end("input", graph.tensors[index]) for index in graph.inputs]
    source = {tensor: vertex for vertex, tensor in enumerate(graph.inputs)}
    edges: dict[tuple[int, int], int] = {}
    for index in drawn:
        node, vertex = graph.nodes[index], len(boxes)
        edges |= {(source[tensor], vertex): tensor for tensor in node.inputs if tensor in source}
        source |= dict.fromkeys(node.outputs, vertex)
        boxes.append(_operator(graph, index))
    for tensor in graph.outputs:
        if tensor in source:
            edges[source[tensor], len(boxes)] = tensor
            boxes.append(_end("output", graph.tensors[tensor]))
    found = layout([_BOX_WIDTH] * len(boxes), list(edges))
    width = found.width + 2 * _MARGIN
    height = found.layers * _LAYER_HEIGHT + 2 * _MARGIN
    parts = [f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">']
    for tensor, route in zip(edges.values(), found.routes, strict=True):
        title = escaped(_tensor(graph, tensor))
        parts.append(f'<path class="edge" d="{_curve(route)}"><title>{title}</title></path>')
    for box, (x, layer) in zip(boxes, found.places, strict=True):
        parts.append(f'<g transform="translate({x + _MARGIN:.1f},{_top(layer):.1f})">{box}</g>')
    return "\n".join([*parts, "</svg>"])


def _top(layer: int) -> float:
    return _MARGIN + layer * _LAYER_HEIGHT


def _curve(route: Sequence[tuple[float, int]]) -> str:
    """From the bottom of a box to the top of another, straight past the boxes of the layers in between."""
    points: list[tuple[float, float]] = []
    for at, (x, layer) in enumerate(route):
        if at:
            points.append((x + _MARGIN, _top(layer)))
        if at < len(route) - 1:
            points.append((x + _MARGIN, _top(layer) + _BOX_HEIGHT))
    (x, y), rest = points[0], points[1:]
    parts = [f"M{x:.1f} {y:.1f}"]
    for next_x, next_y in rest:
        half = (y + next_y) / 2
        parts.append(f"C{x:.1f} {half:.1f} {next_x:.1f} {half:.1f} {next_x:.1f} {next_y:.1f}")
        x, y = next_x, next_y
    return " ".join(parts)


def _end(what: str, spec: TensorSpec) -> str:
    return _box("box end", what, spec.name, str(spec), f"{what} {spec.name}: {spec}", _BOX_HEIGHT / 2)


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
    return f'<a href="#node-{index}">{_box("box", node.type.name, node.name, shapes, title, 5)}</a>'


def _box(style: str, kind: str, name: str, shape: str, title: str, radius: float) -> str:
    lines = "\n".join(map(escaped, title.split("\n")))
    texts = "".join(
        f'<text class="{style}" text-anchor="middle" y="{y}">{escaped(_short(text))}</text>'
        for style, text, y in (("kind", kind, 18), ("name", name, 34), ("shape", shape, 50))
    )
    return (
        f'<g class="{style}"><title>{lines}</title><rect x="{-_BOX_WIDTH / 2}" width="{_BOX_WIDTH}"'
        f' height="{_BOX_HEIGHT}" rx="{radius}"/>{texts}</g>'
    )


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


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 3]}..."
