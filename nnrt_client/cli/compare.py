"""Command `nnrt compare`: compare the results of two devices and find the first operator that differs."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click

from nnrt_client.build.options import Options
from nnrt_client.cli.difference import Difference, Tolerance, compare_arrays, find_first_difference
from nnrt_client.cli.inputs import gather_inputs
from nnrt_client.cli.options import (
    FixedInputs,
    Number,
    build_timeout_option,
    building_options,
    device_option,
    fixed_options,
    input_option,
    json_option,
    model_argument,
    open_fixed,
    run_timeout_option,
    runtime_for,
    seed_option,
    settings_with,
)
from nnrt_client.cli.printing import build_bar, print_json, print_line, print_table
from nnrt_client.cli.sessions import load_with_options
from nnrt_client.model.model import Model
from nnrt_client.model_session.opened_model import OpenedModel
from nnrt_client.session.device import Device
from nnrt_hdi.tensor import Array

_NOT_NEGATIVE = Number(min=0)


@click.command()
@model_argument
@device_option(required=True, multiple=True)
@input_option
@fixed_options
@seed_option
@click.option("--rtol", type=_NOT_NEGATIVE, default=1e-3, show_default=True, help="Relative tolerance.")
@click.option("--atol", type=_NOT_NEGATIVE, default=1e-5, show_default=True, help="Absolute tolerance.")
@building_options
@build_timeout_option
@run_timeout_option(600.0)
@json_option
def compare(
    model: Path,
    devices: tuple[str, ...],
    given: tuple[str, ...],
    fixed: FixedInputs,
    seed: int,
    rtol: float,
    atol: float,
    options: Options,
    timeout: float,
    run_timeout_ms: int,
    as_json: bool,
) -> None:
    """Run MODEL on two devices with the same inputs, and name the first operator whose result differs.

    Give --device twice. Results differ where |a - b| > atol + rtol |a|, with a from the first device. Inputs without
    --input are random. Exit code 1 if an output differs.
    """
    if len(devices) != 2:
        raise click.UsageError(f"--device is given {len(devices)} times; give two devices")
    settings = settings_with(build_timeout_s=timeout)
    with ExitStack() as stack:
        runtimes = [stack.enter_context(runtime_for(device, settings)) for device in devices]
        found = open_fixed(model, fixed)
        arrays = gather_inputs(found.inputs, given, fixed.shapes, seed)
        asked = [runtime.device(device) for runtime, device in zip(runtimes, devices, strict=True)]
        outputs = [_outputs(found, device, arrays, options, run_timeout_ms) for device in asked]
        tolerance = Tolerance(rtol, atol)
        compared = {name: compare_arrays(outputs[0][name], outputs[1][name], tolerance) for name in outputs[0]}
        differs = any(one.count for one in compared.values())
        first = None
        if differs and found.graph is not None:
            with build_bar("looking for the operator:") as progress:
                run = [partial(_run, device, options, run_timeout_ms) for device in asked]
                first = find_first_difference(found.graph, run, list(arrays.values()), tolerance, progress)
    if as_json:
        _print_json(asked, compared, first)
    else:
        _print(asked, compared, first, found)
    if differs:
        raise SystemExit(1)


def _outputs(
    found: OpenedModel, device: Device, arrays: Mapping[str, Array], options: Options, timeout_ms: int
) -> Mapping[str, Array]:
    """Run the model on a device and return its outputs by name."""
    with build_bar(f"{device.name}:") as progress:
        session = load_with_options(found.source, device, options, cache=False, progress=progress)
    with session:
        return session.run(arrays, timeout_ms=timeout_ms)


def _run(device: Device, options: Options, timeout_ms: int, model: Model, arrays: list[Array]) -> list[Array]:
    with load_with_options(model, device, options, cache=False) as session:
        return list(session.run(arrays, timeout_ms=timeout_ms).values())


def _print_json(asked: list[Device], compared: dict[str, Difference], first: tuple[Any, Difference] | None) -> None:
    operator = None
    if first:
        place, one = first
        operator = {**place.describe(), **one.describe()}
    print_json(
        {
            "devices": [device.name for device in asked],
            "equal": not any(one.count for one in compared.values()),
            "outputs": [{"name": name, **one.describe()} for name, one in compared.items()],
            "first_operator": operator,
        }
    )


def _print(
    asked: list[Device], compared: dict[str, Difference], first: tuple[Any, Difference] | None, found: OpenedModel
) -> None:
    rows = [(name, f"{one.largest:.3g}", f"{one.count} of {one.size}") for name, one in compared.items()]
    print_table(("output", "largest difference", "elements that differ"), rows, right=("largest difference",))
    names = " and ".join(device.name for device in asked)
    if not any(one.count for one in compared.values()):
        print_line(f"{names} agree")
    elif first:
        place, one = first
        print_line(f"{names} differ first in {place}: {one}")
    elif found.graph is None:
        print_line(f"{names} differ; the operators of an offline model are not known")
    else:
        print_line(f"{names} differ, though each operator's result agrees when it is an output of the model itself")
