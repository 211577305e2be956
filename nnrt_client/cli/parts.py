"""`nnrt explain --fallback`: which parts of an ONNX model a device runs, and why the others run here."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nnrt_client.cli.drawing import STYLE, box, drawing, end_box
from nnrt_client.cli.options import Settled
from nnrt_client.cli.page import escaped, page, table
from nnrt_client.cli.printing import format_bytes, print_json, print_line, print_table
from nnrt_client.model_session.opened_model import is_onnx
from nnrt_client.model_session.partition.fallback import Fallback
from nnrt_client.model_session.partition.report import PartReport
from nnrt_client.onnx_import import reading
from nnrt_client.session.device import Device
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.files import container

if TYPE_CHECKING:
    from nnrt_client.onnx_import.cut import OnnxGraph

# Of a larger model the first operators are drawn; nobody reads more.
_MOST_DRAWN = 2000
_COLUMNS = ("", "runs on", "operators", "crossing")
# Hues of the parts, one after the other, as different from their neighbours as can be.
_HUES = (210, 30, 140, 280, 60, 340, 180)
_STYLE = (
    STYLE
    + ".here rect { stroke: #888; stroke-dasharray: 5 3; } .edge.marked { stroke: var(--mark); stroke-width: 2; }\n"
    + "\n".join(
        f".there{at} rect {{ stroke: hsl({hue} 70% 45%); fill: hsl({hue} 70% 50% / .16); }}"
        for at, hue in enumerate(_HUES)
    )
)


def explain_parts(
    model: Path, device: Device, settled: Settled, fallback: Fallback, html_file: Path | None, as_json: bool
) -> None:
    """Print the parts, and write a page that draws them. Nothing is built, and no weights are sent."""
    if not is_onnx(model):
        raise OperationFailed("only ONNX models are cut into parts", place=f"{model}")
    with reading(model):
        # Not at the top: other models need none of the packages that this does.
        from nnrt_client.model_session.partition.build import explained

        graph, placement, parts = explained(model, device, settled.shapes, settled.constants, fallback.smallest_part)
    if html_file:
        part_of = {at: number for number, part in enumerate(placement.parts) for at in part.nodes}
        container.write(html_file, [_page(model.name, graph, part_of, parts).encode()])
    if as_json:
        print_json({"device": device.name, "parts": [_described(part) for part in parts]})
        return
    print_table(_COLUMNS, [_row(number, part) for number, part in enumerate(parts, 1)], right=("",))
    for number, part in enumerate(parts, 1):
        for reason in dict.fromkeys(part.reasons):
            print_line(f"{number}. {reason}")
    there = sum(part.node_count for part in parts if part.device)
    print_line(f"{device.name} runs {there} of {sum(part.node_count for part in parts)} ONNX operators")


def _row(number: int, part: PartReport) -> tuple[object, ...]:
    operators = ", ".join(f"{count} {name}" for name, count in part.operators.items()) or "constants"
    crossing = "it varies" if part.crossing_bytes is None else format_bytes(part.crossing_bytes)
    return number, part.device or "this host", operators, crossing if part.device else ""


def _described(part: PartReport) -> dict[str, object]:
    return {
        "device": part.device,
        "operators": dict(part.operators),
        "nodes": list(part.nodes),
        "inputs": list(part.inputs),
        "outputs": list(part.outputs),
        "crossing_bytes": part.crossing_bytes,
        "reasons": list(dict.fromkeys(part.reasons)),
    }


# ---- the page


def _page(title: str, graph: "OnnxGraph", part_of: Mapping[int, int], parts: Sequence[PartReport]) -> str:
    """One page that stands alone: parts on the device are coloured, each in its own way."""
    drawn = sorted(part_of)[:_MOST_DRAWN]
    left_out = len(part_of) - len(drawn)
    note = f"The first {len(drawn)} operators; {left_out} more are not drawn. " if left_out else ""
    boxes = [end_box("input", info.name, graph.kind(info.name)) for info in graph.inputs]
    source = {info.name: vertex for vertex, info in enumerate(graph.inputs)}
    # Whether a value is on the device.
    is_there = {info.name: False for info in graph.inputs}
    edges: dict[tuple[int, int], str] = {}
    crossing = set()
    for at in drawn:
        node, number = graph.nodes[at], part_of[at]
        part = parts[number]
        for name in sorted(node.reads & source.keys()):
            edge = source[name], len(boxes)
            edges[edge] = f"{name} {graph.kind(name)}"
            if is_there[name] != bool(part.device):
                crossing.add(edge)
        source |= dict.fromkeys(node.writes, len(boxes))
        is_there |= dict.fromkeys(node.writes, bool(part.device))
        style = f"box there{number % len(_HUES)}" if part.device else "box here"
        where = f"part {number + 1}, on {part.device or 'this host'}"
        boxes.append(box(style, node.type, node.name, graph.kind(node.writes[0]), f"{node.type} {node.name}\n{where}"))
    for name in graph.outputs:
        if name in source:
            edge = source[name], len(boxes)
            edges[edge] = f"{name} {graph.kind(name)}"
            if is_there[name]:
                crossing.add(edge)
            boxes.append(end_box("output", name, graph.kind(name)))
    numbered = list(enumerate(parts, 1))
    legend = "Coloured operators run on the device, dashed ones on this host; marked lines cross."
    return page(
        title,
        "\n".join(
            [
                table(
                    (*_COLUMNS, "why here"),
                    [(*_row(number, part), "; ".join(dict.fromkeys(part.reasons))) for number, part in numbered],
                ),
                f'<p class="note">{escaped(note + legend)}</p>',
                f'<div class="frame">\n{drawing(boxes, edges, frozenset(crossing))}\n</div>',
            ]
        ),
        _STYLE,
    )
