"""Command `nnrt devices`: list devices and their state."""

import time
from dataclasses import asdict
from typing import Any

import click

from nnrt_client.cli.device_watch import show_changes
from nnrt_client.cli.discovery import default_names, found_by, nothing_found_message, unique_devices
from nnrt_client.cli.options import POSITIVE, identity_options, json_option, settings_with
from nnrt_client.cli.printing import format_bytes, print_json, print_line, print_records
from nnrt_client.cli.telemetry import format_telemetry
from nnrt_client.resolvers.names import is_name
from nnrt_client.session.device import Device
from nnrt_client.session.runtime import Runtime
from nnrt_client.settings import addresses_from_environment
from nnrt_hdi.backend import Capabilities, Telemetry
from nnrt_hdi.errors import OperationFailed, Unsupported

# Timeout of heartbeats. A daemon sends four of them in this time, each with its load.
_HEARTBEAT_TIMEOUT_S = 2.0
_POLL_S = 0.01


@click.command()
@click.argument("addresses", nargs=-1, metavar="[ADDRESS]...")
@identity_options
@json_option
@click.option("--counters", is_flag=True, help="Also show each daemon's counters per identity, since its start.")
@click.option("--watch", is_flag=True, help="Keep showing changes; with --json one line per change.")
@click.option("--timeout", type=POSITIVE, default=5.0, show_default=True, help="Seconds that a daemon gets to answer.")
def devices(addresses: tuple[str, ...], as_json: bool, counters: bool, watch: bool, timeout: float) -> None:
    """List the devices at ADDRESS: HOST:PORT, unix:PATH, or a name such as dns:///HOST:PORT.

    Default: the addresses in NNRT_DEVICES, or else all devices found on this host and this network link. Exit code 1 if
    an address does not answer or no device is found.
    """
    given = addresses or addresses_from_environment()
    settings = settings_with(
        connect_timeout_s=timeout, query_timeout_s=timeout, heartbeat_timeout_s=min(timeout, _HEARTBEAT_TIMEOUT_S)
    )
    names = given or default_names(settings)
    with Runtime(names, settings) as runtime:
        if watch:
            show_changes(runtime, lambda device: _load_text(_describe_load(device)), as_json=as_json)
        answers = runtime.answers()
        found = [device for device in answers.values() if device]
        _await_load(found, settings.heartbeat_timeout_s)
        shown = {device: [device.address] for device in found} if given else unique_devices(found)
        rows = [_describe(one, runtime, shown[one]) | (_describe_counters(one) if counters else {}) for one in shown]
        missing = runtime._members.failures()
    if as_json:
        print_json(rows)
    elif rows:
        _print(rows, with_ways=any(is_name(name) for name in names))
        for row in rows:
            if row.get("counters"):
                _print_counters(row)
    if not given and not rows:
        raise OperationFailed(nothing_found_message(settings))
    if None in answers.values() or (given and missing):
        raise SystemExit(1)


def _print(rows: list[dict[str, Any]], *, with_ways: bool) -> None:
    columns = ["name", "vendor", "type", "status", "load", "address", "backend", "capabilities"]
    table = [[*(row[column] for column in columns[:4]), _load_text(row["load"])] for row in rows]
    for cells, row in zip(table, rows, strict=True):
        cells += [row["address"], row["backend"], ", ".join(row["capabilities"]) or "-"]
    figures = [format_telemetry(Telemetry(**row["telemetry"])) for row in rows]
    if any(figures):
        columns.append("measured")
        for cells, each in zip(table, figures, strict=True):
            cells.append(", ".join(f"{what} {text}" for what, text in each.items()) or "-")
    if with_ways:
        columns.append("found by")
        for cells, row in zip(table, rows, strict=True):
            cells.append(", ".join(row["found_by"]))
    print_records(columns, table)


def _await_load(found: list[Device], longest_s: float) -> None:
    """Wait for the first heartbeat of each device, which reports its load, for at most `longest_s`."""
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline and any(device.is_connected and not _has_heartbeat(device) for device in found):
        time.sleep(_POLL_S)


def _has_heartbeat(device: Device) -> bool:
    return device.state.sessions > 0  # It counts this client's own session.


def _describe(device: Device, runtime: Runtime, addresses: list[str]) -> dict[str, Any]:
    status, canary = device._query_status()
    ways = (way for address in addresses for way in found_by(runtime, address))
    return {
        "name": device.name,
        "id": f"{device.id:016x}",
        "vendor": device.info.vendor_name,
        "type": device.type.name,
        "status": status.name,
        "canary": None if canary is None else asdict(canary),
        "load": _describe_load(device),
        "telemetry": asdict(device.state.telemetry or Telemetry()),
        "address": device.address,
        "found_by": list(dict.fromkeys(ways)),
        "backend": f"{device.info.backend_name} {device.info.backend_version}",
        "capabilities": [name for name in Capabilities.__slots__ if getattr(device.capabilities, name)],
    }


def _describe_load(device: Device) -> dict[str, Any] | None:
    state = device.state
    if not _has_heartbeat(device):
        return None
    return {
        "running": state.running,
        "queued": state.queued,
        "held_bytes": state.held_bytes,
        "sessions": state.sessions,
        "draining": state.is_draining,
    }


def _describe_counters(device: Device) -> dict[str, Any]:
    try:
        counters = device.counters()
    except Unsupported:  # An older daemon.
        return {"uptime_s": None, "counters": None}
    return {"uptime_s": counters.uptime_s, "counters": [asdict(each) for each in counters.identities]}


def _print_counters(row: dict[str, Any]) -> None:
    click.echo()
    print_line(f"{row['name']}, for {row['uptime_s']:.0f} s:")
    columns = ("identity", "now", "sessions", "runs", "on the device", "models", "compiling", "errors")
    table = [
        [
            each["identity"] or "(others)",
            f"{each['sessions']} sessions, {each['connections']} connections, {format_bytes(each['held_bytes'])}",
            str(each["opened_sessions"]),
            _list_counts(each["runs"]),
            f"{each['run_s']:.3f} s",
            _list_counts(each["models"]),
            f"{each['compile_s']:.3f} s",
            _list_counts(each["errors"]),
        ]
        for each in row["counters"]
    ]
    print_records(columns, table)


def _list_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "-"


def _load_text(load: dict[str, Any] | None) -> str:
    if load is None:
        return "-"
    draining = ", draining" if load["draining"] else ""
    memory = format_bytes(load["held_bytes"])
    clients = f"{load['sessions']} client{'s' if load['sessions'] > 1 else ''}"
    return f"{load['running']} running, {load['queued']} queued, {memory}, {clients}{draining}"
