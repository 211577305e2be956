"""Command `nnrt explain`: show which operators of a model a device runs, and why it doesn't run the others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from nnrt_client.cli.onnx_files import (
    contents_of,
    definite_shapes,
    obstacles,
    print_obstacles,
    shape_options,
)
from nnrt_client.cli.options import (
    FixedInputs,
    device_option,
    fallback_options,
    fixed_options,
    json_option,
    mermaid_option,
    model_argument,
    open_fixed,
    runtime_for,
    settings_with,
)
from nnrt_client.cli.parts import explain_parts
from nnrt_client.cli.printing import print_json, print_line, print_table
from nnrt_client.model.model import parts_of
from nnrt_client.model.program import ONNX
from nnrt_client.model_session.opened_model import Kind, OpenedModel
from nnrt_client.model_session.partition.fallback import CPU, Fallback
from nnrt_client.session.device import Device
from nnrt_client.settings import addresses_to_ask_for
from nnrt_hdi.errors import NnrtError, OperationFailed, Unsupported

# Domains whose operators ONNX Runtime has itself.
_COMMON_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "com.microsoft"}


@click.command()
@model_argument
@device_option()
@fixed_options
@fallback_options("Show instead which parts of an ONNX model the device would run and which this host.")
@mermaid_option("With --fallback, write the parts as a Mermaid flowchart.")
@json_option
def explain(
    model: Path,
    device: str | None,
    fixed: FixedInputs,
    fallback: Fallback | None,
    mermaid: Path | None,
    as_json: bool,
) -> None:
    """Show for each operator of MODEL whether a device runs it, and if not, why. No weights are sent.

    For an ONNX file that can't be imported, show the nodes that prevent the import and what to type; this needs no
    device. Exit code 1 if a part of MODEL does not run; with --fallback it is 0.
    """
    if mermaid and not fallback:
        raise click.UsageError(f"--mermaid draws the parts; give --fallback {CPU}, or use `nnrt inspect --mermaid`")
    if fallback:
        with runtime_for(device, settings_with()) as runtime:
            explain_parts(model, runtime.device(device or 0), fixed, fallback, mermaid, as_json)
        return
    try:
        found = open_fixed(model, fixed)
    except Unsupported as error:
        _explain_obstacles(model, device, fixed, as_json, error)
        raise SystemExit(1) from error
    with runtime_for(device, settings_with()) as runtime:
        if found.model is None:
            raise OperationFailed(
                "an offline model has no operators any more; explain what it was made of", place=f"{model}"
            )
        asked = runtime.device(device or 0)
        operators = _operators(found, asked)
        refused = sum(not operator["supported"] for operator in operators)
        to_type = _helpful_shapes(model, found, fixed, asked, refused) if refused else []
    if as_json:
        print_json({"device": asked.name, "supported": not refused, "operators": operators, "try": to_type})
    else:
        print_table(
            ("", "operator", "name", "supported"),
            [(operator["index"], operator["type"], operator["name"], _answer(operator)) for operator in operators],
            right=("",),
        )
        print_line(f"{asked.name} runs {len(operators) - refused} of {len(operators)} operators")
        if to_type:
            print_line(f"it runs more of them with {' '.join(to_type)}")
    if refused:
        raise SystemExit(1)


def _explain_obstacles(model: Path, device: str | None, fixed: FixedInputs, as_json: bool, error: Unsupported) -> None:
    """Report the nodes that prevent an import, what to type, and whether the device takes the ONNX file itself."""
    contents = contents_of(model)
    found = obstacles(model, fixed, contents, error)
    name, takes_programs = _takes_programs(device)
    if as_json:
        about = {"supported": False, "imported": False, "obstacles": [one.describe() for one in found]}
        print_json(about | {"device": name, "takes_programs": takes_programs})
        return
    print_obstacles(model, contents, found)
    foreign = sorted(set(contents.opsets) - _COMMON_DOMAINS)
    if takes_programs and foreign:
        needs = f"but operators of {', '.join(foreign)} only as functions of the model, or if it has their library"
        print_line(f"{name} takes ONNX files as they are (--way program), {needs}")
    elif takes_programs:
        print_line(f"{name} takes ONNX files as they are: nnrt run and load try this (--way program)")
    elif name is not None:
        print_line(f"{name} takes no ONNX files as they are; its daemon does with --accept-programs")


def _takes_programs(device: str | None) -> tuple[str | None, bool | None]:
    """Return the device's name and whether it takes ONNX files as they are, or (None, None) if no device is named."""
    if not addresses_to_ask_for(device):
        return None, None
    with runtime_for(device, settings_with()) as runtime:
        asked = runtime.device(device or 0)
        return asked.name, ONNX in asked.capabilities.program_formats


def _operators(found: OpenedModel, device: Device) -> list[dict[str, Any]]:
    """Return the device's answer for each operator."""
    assert found.model is not None
    answers = found.model.supported_operations(device)
    return [
        {
            "index": index,
            "type": node.type.name,
            "name": node.name,
            "supported": not answer.reason,
            "reason": answer.reason,
            "note": answer.note,
        }
        for index, (node, answer) in enumerate(zip(parts_of(found.model).graph.nodes, answers, strict=True))
    ]


def _answer(operator: Mapping[str, Any]) -> str:
    if operator["note"]:
        return f"yes, {operator['note']}"
    return operator["reason"] or "yes"


def _helpful_shapes(model: Path, found: OpenedModel, fixed: FixedInputs, device: Device, refused: int) -> Sequence[str]:
    """Return --shape options with which the device runs more operators of an ONNX file, or an empty list."""
    if found.kind is not Kind.ONNX:
        return []
    definite = definite_shapes(contents_of(model).inputs, fixed)
    if not definite:
        return []
    try:
        operators = _operators(open_fixed(model, fixed.with_shapes(definite)), device)
    except NnrtError:  # Other sizes might work.
        return []
    left = sum(not operator["supported"] for operator in operators)
    return shape_options(definite) if left < refused else []
