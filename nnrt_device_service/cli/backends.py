"""Command `nnrt-device backends`."""

import json
from dataclasses import asdict

import click

from nnrt_device_service.cli.table import new_table, print_table
from nnrt_hdi.backend import BackendState, backend_states


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def backends(as_json: bool) -> None:
    """List the installed backends, whether they work here, and the devices of this host that they serve."""
    states = backend_states()
    if as_json:
        click.echo(json.dumps([_as_json(state) for state in states], indent=2))
        return
    table = new_table()
    for column in ("backend", "state", "device", "type", "version", "devices here"):
        table.add_column(column, no_wrap=column in ("backend", "state"))
    for state in states:
        if state.info:
            info = state.info
            device = f"{info.device_name} by {info.vendor_name}"
            here = ", ".join(found.name for found in state.devices)
            table.add_row(state.name, "available", device, info.device_type.name, info.backend_version, here)
        elif state.skipped:
            table.add_row(state.name, "skipped", state.skipped)
        elif state.too_new:
            table.add_row(state.name, "too new", state.too_new)
        else:
            table.add_row(state.name, "broken", state.broken.strip().splitlines()[-1])
            click.echo(state.broken, err=True)
    print_table(table)


def _as_json(state: BackendState) -> dict[str, object]:
    return {
        "name": state.name,
        "version": state.info.backend_version if state.info else None,
        "skipped": state.skipped,
        "broken": state.broken,
        "too_new": state.too_new,
        "interface": state.interface,
        "devices": [{**asdict(found), "device_type": found.device_type.name} for found in state.devices],
    }
