"""The command `nnrt`: what an operator or a developer asks from a shell."""

import json
import logging
import sys
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.table import Table

from nnrt_client.device import Device
from nnrt_client.runtime import Runtime
from nnrt_client.settings import DEVICES_VARIABLE, Settings, addresses_from_environment
from nnrt_hdi import __version__
from nnrt_hdi.backend import Capabilities

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
