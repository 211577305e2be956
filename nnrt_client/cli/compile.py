"""Command `nnrt compile`: compile a model into an offline model."""

import time
from pathlib import Path

import click

from nnrt_client.build.compilation import Compilation
from nnrt_client.build.options import Options
from nnrt_client.cli.options import (
    FixedInputs,
    build_timeout_option,
    building_options,
    device_option,
    fixed_options,
    json_option,
    model_argument,
    open_fixed,
    runtime_for,
    settings_with,
)
from nnrt_client.cli.printing import build_bar, print_json, print_line
from nnrt_hdi.errors import InvalidFile, Unsupported
from nnrt_hdi.files import container
from nnrt_hdi.files.compiled import Target


@click.command("compile")
@model_argument
@device_option(required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The offline model to write.")
@fixed_options
@building_options
@build_timeout_option
@json_option
def compile_model(
    model: Path,
    device: str,
    output: Path,
    fixed: FixedInputs,
    options: Options,
    timeout: float,
    as_json: bool,
) -> None:
    """Compile MODEL for a kind of device into a file that Compilation.from_offline_file loads.

    The file replaces an earlier one when it is complete. Exit code 1 on failure.
    """
    started = time.monotonic()
    with runtime_for(device, settings_with(build_timeout_s=timeout)) as runtime:
        container.require_place(output)
        found = runtime.device(device)
        if not found.capabilities.model_cache:
            raise Unsupported(f"{found.name} does not export compiled models")
        source = open_fixed(model, fixed).model
        if source is None:
            raise InvalidFile("it is compiled already; give the model that it was made of", place=f"{model}")
        with Compilation(source, found) as compilation:
            compilation._set_options(options)
            with build_bar() as progress:
                compilation.build(progress)
            exported = compilation.export_cache()
    container.write(output, [exported])
    target = Target.of(found.info, found.name)
    seconds = time.monotonic() - started
    if as_json:
        about = {
            "file": str(output),
            "size_bytes": len(exported),
            "vendor": target.vendor,
            "device_type": target.device_type.name,
            "backend": target.backend,
            "backend_version": target.backend_version,
            "seconds": round(seconds, 3),
        }
        print_json(about)
    else:
        print_line(f"wrote {output}, {len(exported)} bytes, for {target.describe_kind()}, in {seconds:.1f} s")
