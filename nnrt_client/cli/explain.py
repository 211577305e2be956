"""`nnrt explain`: what of a model a device runs, and why not the rest."""

from pathlib import Path

import click

from nnrt_client.cli.options import (
    Shapes,
    device_option,
    json_option,
    model_argument,
    opened,
    runtime_for,
    shape_option,
)
from nnrt_client.cli.parts import explain_parts
from nnrt_client.cli.printing import print_json, print_line, print_table
from nnrt_client.partition.fallback import CPU, SMALLEST_PART, Fallback
from nnrt_client.settings import Settings
from nnrt_hdi.errors import OperationFailed


@click.command()
@model_argument
@device_option()
@shape_option
@click.option(
    "--fallback",
    type=click.Choice([CPU]),
    help="Say instead which parts of an ONNX model the device would run, and which this host.",
)
@click.option(
    "--smallest-part",
    type=click.IntRange(min=1),
    default=SMALLEST_PART,
    show_default=True,
    help="Light operators that a part has at least, to go to the device.",
)
@click.option(
    "--html", "html_file", type=click.Path(path_type=Path), help="Write a page that draws the parts, with --fallback."
)
@json_option
def explain(
    model: Path,
    device: str | None,
    shapes: Shapes,
    fallback: str | None,
    smallest_part: int,
    html_file: Path | None,
    as_json: bool,
) -> None:
    """Say for each operator of MODEL whether a device runs it, and if not, why. No weights are sent.

    Exit code 1 if it does not run all of them.
    """
    if html_file and not fallback:
        raise click.UsageError(f"--html draws the parts; give --fallback {CPU}, or use `nnrt inspect --html`")
    with runtime_for(device, Settings()) as runtime:
        if fallback:
            instead = Fallback(fallback, smallest_part)
            explain_parts(model, runtime.device(device or 0), shapes, instead, html_file, as_json)
            return
        found = opened(model, shapes)
        if found.model is None:
            raise OperationFailed(
                "an offline model has no operators any more; explain what it was made of", place=f"{model}"
            )
        asked = runtime.device(device or 0)
        answers = found.model.supported_operations(asked)
    graph = found.model._graph
    operators = [
        {
            "index": index,
            "type": node.type.name,
            "name": node.name,
            "supported": not answer.reason,
            "reason": answer.reason,
        }
        for index, (node, answer) in enumerate(zip(graph.nodes, answers, strict=True))
    ]
    refused = sum(not operator["supported"] for operator in operators)
    if as_json:
        print_json({"device": asked.name, "supported": not refused, "operators": operators})
    else:
        print_table(
            ("", "operator", "name", "supported"),
            [
                (operator["index"], operator["type"], operator["name"], operator["reason"] or "yes")
                for operator in operators
            ],
            right=("",),
        )
        print_line(f"{asked.name} runs {len(operators) - refused} of {len(operators)} operators")
    if refused:
        raise SystemExit(1)
