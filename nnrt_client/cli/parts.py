"""Command `nnrt explain --fallback`: show which parts of an ONNX model a device runs, and why this host the others."""

from pathlib import Path

from nnrt_client.cli.mermaid import draw_parts
from nnrt_client.cli.options import FixedInputs
from nnrt_client.cli.printing import format_bytes, print_json, print_line, print_table
from nnrt_client.model_session.opened_model import is_onnx
from nnrt_client.model_session.partition.fallback import Fallback
from nnrt_client.model_session.partition.report import PartReport
from nnrt_client.onnx_import import locate_errors
from nnrt_client.session.device import Device
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.files import container

_COLUMNS = ("", "runs on", "operators", "crossing")


def explain_parts(
    model: Path, device: Device, fixed: FixedInputs, fallback: Fallback, mermaid: Path | None, as_json: bool
) -> None:
    """Print the parts of the model and, with `mermaid`, draw them. Nothing is built and no weights are sent."""
    if not is_onnx(model):
        raise OperationFailed("only ONNX models are cut into parts", place=f"{model}")
    with locate_errors(model):
        # Imported here: it needs the package onnx, which other models don't.
        from nnrt_client.model_session.partition.build import preview_parts

        graph, placement, parts = preview_parts(model, device, fixed.shapes, fixed.constants, fallback.smallest_part)
    if mermaid:
        names = [f"part {number}, on {_where(part)}" for number, part in enumerate(parts, 1)]
        part_of = {at: name for name, part in zip(names, placement.parts, strict=True) for at in part.nodes}
        container.write(mermaid, [draw_parts(graph, part_of).encode()])
    if as_json:
        print_json({"device": device.name, "parts": [_describe(part) for part in parts]})
        return
    print_table(_COLUMNS, [_row(number, part) for number, part in enumerate(parts, 1)], right=("",))
    for number, part in enumerate(parts, 1):
        for reason in dict.fromkeys(part.reasons):
            print_line(f"{number}. {reason}")
    there = sum(part.node_count for part in parts if part.device)
    print_line(f"{device.name} runs {there} of {sum(part.node_count for part in parts)} ONNX operators")


def _row(number: int, part: PartReport) -> tuple[object, ...]:
    operators = ", ".join(f"{count} {name}" for name, count in part.operators.items()) or "constants"
    crossing = "varies" if part.crossing_bytes is None else format_bytes(part.crossing_bytes)
    return number, _where(part), operators, crossing if part.device else ""


def _where(part: PartReport) -> str:
    return part.device or "this host"


def _describe(part: PartReport) -> dict[str, object]:
    return {
        "device": part.device,
        "operators": dict(part.operators),
        "nodes": list(part.nodes),
        "inputs": list(part.inputs),
        "outputs": list(part.outputs),
        "crossing_bytes": part.crossing_bytes,
        "reasons": list(dict.fromkeys(part.reasons)),
    }
