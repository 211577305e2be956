"""Graphs as drawings of a page: boxes in layers, and lines between them."""

from collections.abc import Mapping, Sequence

from nnrt_client.cli.layers import Edge, layout
from nnrt_client.cli.page import escaped

_BOX_WIDTH, _BOX_HEIGHT = 190.0, 58.0
_LAYER_HEIGHT = 96.0
_MARGIN = 20.0
_LONGEST_LABEL = 26

STYLE = """
.box rect { fill: Canvas; stroke: var(--accent); stroke-width: 1.3; } .end rect { stroke: var(--mark); }
.box .kind { font-weight: 600; } .box:hover rect { fill: #fc03; }
.box :is(.name, .shape) { fill: #888; } .edge { fill: none; stroke: #8889; stroke-width: 1.2; } .edge:hover {
  stroke: var(--mark); stroke-width: 3; }
"""


def drawing(boxes: Sequence[str], edges: Mapping[Edge, str], marked: frozenset[Edge] = frozenset()) -> str:
    """Boxes from top to bottom, and the lines between them with what they say of themselves; some are marked."""
    found = layout([_BOX_WIDTH] * len(boxes), list(edges))
    width = found.width + 2 * _MARGIN
    height = found.layers * _LAYER_HEIGHT + 2 * _MARGIN
    parts = [f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}">']
    for (edge, title), route in zip(edges.items(), found.routes, strict=True):
        style = "edge marked" if edge in marked else "edge"
        parts.append(f'<path class="{style}" d="{_curve(route)}"><title>{escaped(title)}</title></path>')
    for box, (x, layer) in zip(boxes, found.places, strict=True):
        parts.append(f'<g transform="translate({x + _MARGIN:.1f},{_top(layer):.1f})">{box}</g>')
    return "\n".join([*parts, "</svg>"])


def end_box(what: str, name: str, kind: str) -> str:
    """An input or an output of a model."""
    return box("box end", what, name, kind, f"{what} {name}: {kind}", is_round=True)


def box(style: str, kind: str, name: str, shape: str, title: str, *, is_round: bool = False) -> str:
    """Three lines in a box, and what it says when it is pointed at."""
    lines = "\n".join(map(escaped, title.split("\n")))
    texts = "".join(
        f'<text class="{line}" text-anchor="middle" y="{y}">{escaped(_short(text))}</text>'
        for line, text, y in (("kind", kind, 18), ("name", name, 34), ("shape", shape, 50))
    )
    return (
        f'<g class="{style}"><title>{lines}</title><rect x="{-_BOX_WIDTH / 2}" width="{_BOX_WIDTH}"'
        f' height="{_BOX_HEIGHT}" rx="{_BOX_HEIGHT / 2 if is_round else 5}"/>{texts}</g>'
    )


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


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else f"{text[: _LONGEST_LABEL - 3]}..."
