"""Command `nnrt inspect`: describe a model without a device."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnrt_client.cli.mermaid import draw_graph
from nnrt_client.cli.onnx_files import (
    contents_of,
    declared_dims,
    describe_contents,
    named_dims,
    obstacles,
    print_contents,
    print_obstacles,
)
from nnrt_client.cli.options import FixedInputs, fixed_options, json_option, mermaid_option, model_argument, open_fixed
from nnrt_client.cli.printing import describe_tensor, format_bytes, print_json, print_line, print_table
from nnrt_client.model_session.opened_model import Kind, OpenedModel
from nnrt_hdi.errors import OperationFailed, Unsupported
from nnrt_hdi.files import container
from nnrt_hdi.files.graph_file import graph_digest
from nnrt_hdi.graph import Graph
from nnrt_hdi.tensor import format_shape

if TYPE_CHECKING:
    from nnrt_client.onnx_import.contents import Contents


@click.command()
@model_argument
@fixed_options
@mermaid_option("Write the graph as a Mermaid flowchart.")
@json_option
def inspect(model: Path, fixed: FixedInputs, mermaid: Path | None, as_json: bool) -> None:
    """Show the inputs, outputs, operators, parameters and size of MODEL.

    The operators of an offline model are known only to the device that it was made for.
    """
    try:
        found = open_fixed(model, fixed)
    except Unsupported as error:
        _inspect_unimported(model, fixed, mermaid, as_json, error)
        return
    contents = contents_of(model) if found.kind is Kind.ONNX else None
    about = _about(model, found, contents)
    if mermaid:
        if found.graph is None:
            raise OperationFailed("an offline model has no operators to draw", place=f"{model}")
        container.write(mermaid, [draw_graph(found.graph).encode()])
    if as_json:
        print_json(about)
        return
    print_line(f"{model}: {found.kind.value}, {format_bytes(found.size_bytes)}")
    if contents:
        print_contents(contents)
    dims = named_dims(found, contents) if contents else {}
    rows = [
        (
            what,
            spec.name,
            spec.data_type.name,
            _shape_text(dims.get(spec.name)) or format_shape(spec.shape),
            spec.format.name,
        )
        for what, specs in (("input", found.inputs), ("output", found.outputs))
        for spec in specs
    ]
    print_table(("", "name", "data type", "shape", "format"), rows)
    if found.graph is not None:
        _print_operators(about["operators"], contents)
    for what, value in _summary(about):
        print_line(f"{what}: {value}")


def _inspect_unimported(
    model: Path, fixed: FixedInputs, mermaid: Path | None, as_json: bool, error: Unsupported
) -> None:
    """Describe an ONNX file that can't be imported, and the nodes that prevent it."""
    if mermaid:
        raise error
    contents = contents_of(model)
    found = obstacles(model, fixed, contents, error)
    size_bytes = model.stat().st_size
    if as_json:
        ends = {
            what: [{"name": one.name, "data_type": one.data_type, "dimensions": declared_dims(one)} for one in tensors]
            for what, tensors in (("inputs", contents.inputs), ("outputs", contents.outputs))
        }
        about = {"file": str(model), "kind": Kind.ONNX.value, "size_bytes": size_bytes, **ends}
        obstructed = [one.describe() for one in found]
        print_json(about | {"onnx": describe_contents(contents), "imported": False, "obstacles": obstructed})
        return
    print_line(f"{model}: {Kind.ONNX.value}, {format_bytes(size_bytes)}")
    print_contents(contents)
    rows = [
        (what, one.name, one.data_type, _shape_text(declared_dims(one)) or "any")
        for what, tensors in (("input", contents.inputs), ("output", contents.outputs))
        for one in tensors
    ]
    print_table(("", "name", "data type", "shape"), rows)
    _print_operators({}, contents)
    print_obstacles(model, contents, found)


def _print_operators(operators: Mapping[str, int], contents: "Contents | None") -> None:
    """Print a table of NNRt's operators and their counts, next to the ONNX file's operators if there is one."""
    ours = [(name, str(count)) for name, count in operators.items()]
    if contents is None:
        print_table(("operator", "count"), ours, right=("count",))
        return
    theirs = [(name, str(count)) for name, count in contents.operators.items()]
    if not ours:
        print_table(("ONNX operator", "count"), theirs, right=("count",))
        return
    rows = [(*one, *other) for one, other in zip_longest(theirs, ours, fillvalue=("", ""))]
    print_table(("ONNX operator", "count", "becomes", "count"), rows, right=("count",))


def _shape_text(dims: Sequence[int | str] | None) -> str:
    return "" if dims is None else f"[{', '.join(map(str, dims))}]"


def _about(path: Path, found: OpenedModel, contents: "Contents | None") -> dict[str, Any]:
    about: dict[str, Any] = {
        "file": str(path),
        "kind": found.kind.value,
        "size_bytes": found.size_bytes,
        "inputs": [describe_tensor(spec) for spec in found.inputs],
        "outputs": [describe_tensor(spec) for spec in found.outputs],
    }
    if contents is not None:
        dims = named_dims(found, contents)
        for end in (*about["inputs"], *about["outputs"]):
            end["dimensions"] = dims[end["name"]]
        about |= {"imported": True, "onnx": describe_contents(contents)}
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
    """Return the facts about the whole model that the command prints below the tables."""
    if "target" in about:
        target = about["target"]
        made_for = f"{target['backend']} {target['backend_version']} ({target['vendor']}, {target['device_type']})"
        return [("made for", made_for), ("model", about["digest"]), ("float16", "yes" if about["float16"] else "no")]
    parameters = f"{about['parameters']:,} in {format_bytes(about['parameter_bytes'])}"
    return [("operators", about["nodes"]), ("parameters", parameters), ("model", about["digest"])]
