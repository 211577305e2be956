"""`nnrt inspect`: what a model is, without any device."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nnrt_client.cli.graph_page import graph_page
from nnrt_client.cli.options import Shapes, json_option, model_argument, opened, shape_option
from nnrt_client.cli.printing import described, format_bytes, print_json, print_line, print_table
from nnrt_client.model_session.opened_model import OpenedModel
from nnrt_hdi.errors import OperationFailed
from nnrt_hdi.files import container
from nnrt_hdi.files.graph_file import graph_digest
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import TensorSpec, format_shape


@click.command()
@model_argument
@shape_option
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write a page that draws the graph.")
@json_option
def inspect(model: Path, shapes: Shapes, html_file: Path | None, as_json: bool) -> None:
    """Say what MODEL is: its inputs and outputs, operators, parameters and size.

    Of an offline model only the device that it was made for knows the operators.
    """
    found = opened(model, shapes)
    about = _about(model, found)
    if html_file:
        if found.graph is None:
            raise OperationFailed("an offline model has no operators to draw", place=f"{model}")
        title = f"{model.name} ({found.kind.value})"
        container.write(html_file, [graph_page(title, _summary(about), found.graph).encode()])
    if as_json:
        print_json(about)
        return
    print_line(f"{model}: {found.kind.value}, {format_bytes(found.size_bytes)}")
    rows = [_row("input", spec) for spec in found.inputs] + [_row("output", spec) for spec in found.outputs]
    print_table(("", "name", "data type", "shape", "format"), rows)
    if found.graph is not None:
        print_table(("operator", "count"), list(about["operators"].items()), right=("count",))
    for what, value in _summary(about):
        print_line(f"{what}: {value}")


def _about(path: Path, found: OpenedModel) -> dict[str, Any]:
    about: dict[str, Any] = {
        "file": str(path),
        "kind": found.kind.value,
        "size_bytes": found.size_bytes,
        "inputs": [described(spec) for spec in found.inputs],
        "outputs": [described(spec) for spec in found.outputs],
    }
    if found.graph is not None:
        return about | _about_graph(found.graph)
    compiled = found.compiled
    assert compiled is not None
    target = compiled.target
    return about | {
        "target": {
            "device": target.device,
            "vendor": target.vendor,
            "device_type": target.device_type.name,
            "backend": target.backend,
            "backend_version": target.backend_version,
        },
        "digest": compiled.source_digest.hex(),
        "float16": compiled.config.enable_float16,
        "performance_mode": compiled.config.mode.name,
    }


def _about_graph(graph: Graph) -> dict[str, Any]:
    counts = Counter(node.type.name for node in graph.nodes)
    elements = [graph.tensors[index].element_count for index in graph.constants]
    return {
        "name": graph.name,
        "digest": graph_digest(graph).hex(),
        "operators": dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
        "nodes": len(graph.nodes),
        "parameters": sum(elements),
        "parameter_bytes": sum(constant.size_bytes for constant in graph.constants.values()),
    }


def _summary(about: dict[str, Any]) -> Sequence[tuple[str, object]]:
    """List what is known of the model as a whole, for people."""
    if "target" in about:
        target = about["target"]
        made_for = f"{target['backend']} {target['backend_version']} ({target['vendor']}, {target['device_type']})"
        return [("made for", made_for), ("model", about["digest"]), ("float16", "yes" if about["float16"] else "no")]
    parameters = f"{about['parameters']:,} in {format_bytes(about['parameter_bytes'])}"
    return [("operators", about["nodes"]), ("parameters", parameters), ("model", about["digest"])]


def _row(what: str, spec: TensorSpec) -> tuple[str, str, str, str, str]:
    return what, spec.name, spec.data_type.name, format_shape(spec.shape), spec.format.name
