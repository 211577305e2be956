"""The command `nnrt`: what an operator or a developer asks from a shell."""

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from nnrt_client.compilation import Compilation
from nnrt_client.device import Device
from nnrt_client.model import Model
from nnrt_client.runtime import Runtime
from nnrt_client.settings import DEVICES_VARIABLE, Settings, addresses_from_environment
from nnrt_hdi import __version__, container
from nnrt_hdi.backend import Capabilities
from nnrt_hdi.compiled import Target
from nnrt_hdi.enums import PerformanceMode
from nnrt_hdi.errors import InvalidPath, NnrtError, Unsupported

_WIDE = 240


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="nnrt")
def main() -> None:
    """Run neural networks on devices in other processes and on other hosts."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s", stream=sys.stderr)


@main.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=5.0,
    show_default=True,
    help="Seconds that a daemon gets to answer.",
)
def devices(addresses: tuple[str, ...], as_json: bool, timeout: float) -> None:
    """List the devices that answer at ADDRESS (HOST:PORT or unix:PATH), else at those in NNRT_DEVICES.

    Exit code 1 if one of them does not answer.
    """
    addresses = addresses or addresses_from_environment()
    if not addresses:
        raise click.UsageError(f"give an address, or set {DEVICES_VARIABLE} to addresses separated by commas")
    with Runtime(addresses, Settings(connect_timeout_s=timeout, query_timeout_s=timeout)) as runtime:
        answers = runtime.answers()
        rows = [_described(device) for device in answers.values() if device]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    elif rows:
        _print_table(rows)
    if None in answers.values():
        raise SystemExit(1)


class _Extension(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # Generic from click 8.4 on.
    """NAME=VALUE, neither of them empty."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, bytes]:
        name, _, given = value.partition("=")
        if not name or not given:
            self.fail(f"{value!r} is not NAME=VALUE.", param, ctx)
        return name, given.encode(errors="surrogateescape")


@main.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--device", metavar="DEVICE", required=True, help="HOST:PORT, unix:PATH, or a name among NNRT_DEVICES.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The offline model to write.")
@click.option("--float16", is_flag=True, help="Compute in half precision.")
@click.option(
    "--performance-mode", "mode", type=click.Choice([mode.name for mode in PerformanceMode], case_sensitive=False)
)
@click.option("--extension", "extensions", type=_Extension(), multiple=True, help="For the backend. May be repeated.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True, help="Seconds."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a line.")
def compile_model(
    model: Path,
    device: str,
    output: Path,
    float16: bool,
    mode: str | None,
    extensions: tuple[tuple[str, bytes], ...],
    timeout: float,
    as_json: bool,
) -> None:
    """Compile a saved MODEL for a kind of device, into a file that Compilation.from_offline_file loads.

    The file appears when it is complete, in place of an earlier one. Exit code 1 if something fails.
    """
    # A name has no colon; an address always has one.
    addresses = (device,) if ":" in device else addresses_from_environment()
    if not addresses:
        raise click.UsageError(f"{device!r} is no address; to find it by name set {DEVICES_VARIABLE}")
    started = time.monotonic()
    try:
        if not output.absolute().parent.is_dir():
            raise InvalidPath("there is no such directory", place=f"{output.parent}")
        with Runtime(addresses, Settings(build_timeout_s=timeout)) as runtime:
            found = runtime.device(device)
            if not found.capabilities.model_cache:
                raise Unsupported(f"{found.name} does not export compiled models")
            with Compilation(Model.load(model), found) as compilation:
                if mode:
                    compilation.set_performance_mode(PerformanceMode[mode])
                if float16:
                    compilation.enable_float16()
                for extension in extensions:
                    compilation.add_extension_config(*extension)
                _build_visibly(compilation)
                exported = compilation.export_cache()
        container.write(output, [exported])
    except (NnrtError, OSError) as error:
        raise click.ClickException(str(error)) from error
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
        click.echo(json.dumps(about, indent=2))
    else:
        click.echo(f"wrote {output}, {len(exported)} bytes, for {target.describe_kind()}, in {seconds:.1f} s")


def _build_visibly(compilation: Compilation) -> None:
    """Build with a bar on a terminal."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bars:
        bar = bars.add_task("checking", total=1.0)
        compilation.build(lambda stage, fraction: bars.update(bar, description=stage, completed=fraction))


def _described(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "id": f"{device.id:016x}",
        "type": device.type.name,
        "status": device.status().name,
        "address": device.address,
        "backend": f"{device.info.backend_name} {device.info.backend_version}",
        "capabilities": [name for name in Capabilities.__slots__ if getattr(device.capabilities, name)],
    }


def _print_table(rows: list[dict[str, Any]]) -> None:
    columns = ("name", "type", "status", "address", "backend")
    table = Table(box=box.SIMPLE)
    for column in (*columns, "capabilities"):
        table.add_column(column, no_wrap=column in ("name", "address"))
    for row in rows:
        table.add_row(*(row[column] for column in columns), ", ".join(row["capabilities"]) or "-")
    # Into a pipe or file goes the whole table, however wide.
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
