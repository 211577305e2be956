"""Commands `nnrt-device up`, `ps`, `drain` and `restart` for all daemons of a host."""

import asyncio
import json
import os
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from nnrt_device_service.cli.table import new_table, print_table
from nnrt_device_service.fleet.control import ask
from nnrt_device_service.fleet.discovery import find_specs, host_name
from nnrt_device_service.fleet.fleet_file import read_fleet
from nnrt_device_service.fleet.shown import drain_unsupervised, unsupervised_rows
from nnrt_device_service.fleet.spec import DeviceSpec
from nnrt_device_service.fleet.state_directory import Record, State, StateDirectory, default_state_directory
from nnrt_device_service.fleet.supervisor import Supervisor
from nnrt_device_service.host.log_handler import set_up_log
from nnrt_device_service.settings import setting_option, variable_of
from nnrt_hdi.errors import NnrtError
from nnrt_hdi.text import escape_for_terminal

_STATE_DIR_HELP = "State directory of the daemons. [default: /run/nnrt for root, else $XDG_RUNTIME_DIR/nnrt]"
_LOG_LINES = 20


def on_fleet(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command that gets --state-dir, and prints an NnrtError as one line."""

    @click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        envvar="NNRT_FLEET_STATE_DIR",
        show_envvar=True,
        help=_STATE_DIR_HELP,
    )
    @wraps(function)
    def command(state_dir: Path | None, **options: Any) -> Any:
        try:
            return function(state_dir=state_dir, **options)
        except NnrtError as error:
            raise click.ClickException(str(error)) from error

    return command


def _on_devices(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command that gets the names of devices, an empty list for all devices."""

    @click.argument("names", metavar="NAME...", nargs=-1)
    @click.option("--all", "is_all", is_flag=True, help="All devices; to restart, all that are not drained.")
    @on_fleet
    @wraps(function)
    def command(names: tuple[str, ...], is_all: bool, **options: Any) -> Any:
        if bool(names) == is_all:
            raise click.UsageError("give the names of devices, or --all")
        return function(names=list(names), **options)

    return command


class _CommandAfterDashes(click.Command):
    """Command that takes another command after `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[__name__] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


@click.command(cls=_CommandAfterDashes)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--dry-run", is_flag=True, help="Print the daemons that would start, and start none.")
@click.option(
    "--one-shot",
    is_flag=True,
    help="For tests: restart no daemon. Once all are ready, COMMAND runs with NNRT_DEVICES set. When it or any daemon"
    " ends, all end, with its exit code.",
)
@setting_option("log_format")
@on_fleet
@click.pass_context
def up(
    context: click.Context,
    file: Path | None,
    dry_run: bool,
    one_shot: bool,
    log_format: str,
    state_dir: Path | None,
) -> None:
    """Start a daemon for each device of this host, and keep the daemons running until SIGTERM.

    FILE names the devices. Without FILE these are all accelerators that the backends find, or else the CPU.
    """
    began = time.monotonic()
    command: list[str] = context.meta[__name__]
    if command and not one_shot:
        raise click.UsageError("a COMMAND runs with --one-shot only")
    if not hasattr(os, "pidfd_open"):
        raise click.ClickException("a supervisor needs Linux; start each daemon with `nnrt-device serve`")

    async def source() -> list[DeviceSpec]:
        return read_fleet(file, host_name()) if file else await find_specs()

    if dry_run:
        _print_specs(asyncio.run(source()))
        return
    set_up_log(log_format)
    os.environ[variable_of("log_format")] = log_format  # For daemons to which FILE gives no format of their own.
    with ExitStack() as stack:
        if one_shot and context.get_parameter_source("state_dir") is not ParameterSource.COMMANDLINE:
            state_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnrt-")))
        directory = StateDirectory((state_dir or default_state_directory()).absolute())
        supervisor = Supervisor(
            source,
            directory,
            on_ready=lambda records: _print_ready(records, began),
            is_one_shot=one_shot,
            command=command,
        )
        exit_code = asyncio.run(supervisor.run())
        if one_shot and exit_code:
            _print_ends_of_logs(directory)
    context.exit(exit_code)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@on_fleet
def ps(state_dir: Path | None, as_json: bool) -> None:
    """List the daemons of this host, with a supervisor or without one."""
    directory = resolve_state_directory(state_dir)
    devices = ask(directory.control, {"do": "ps"}, click.echo)
    is_supervised = devices is not None
    if devices is None:
        devices = unsupervised_rows(directory)
    if as_json:
        click.echo(json.dumps({"supervised": is_supervised, "devices": devices}, indent=2))
        return
    table = new_table()
    for column in ("name", "state", "pid", "address", "uptime", "restarts", "last exit", "why"):
        table.add_column(column, no_wrap=column in ("name", "address"))
    for device in devices:
        table.add_row(
            device["name"],
            device["state"],
            str(device["pid"] or ""),
            escape_for_terminal(" ".join(device["addresses"])),
            "" if device["uptime_s"] is None else _duration(device["uptime_s"]),
            str(device["restarts"]),
            "" if device["last_exit"] is None else str(device["last_exit"]),
            escape_for_terminal(device["why"]),
        )
    print_table(table)
    if not is_supervised:
        click.echo("no supervisor looks after them; `nnrt-device up` takes over those that live")


@click.command()
@_on_devices
def drain(state_dir: Path | None, names: list[str]) -> None:
    """Let daemons finish their work in progress and end. They stay down until `restart`."""
    directory = resolve_state_directory(state_dir)
    if ask(directory.control, {"do": "drain", "names": names}, click.echo) is None:
        for name in drain_unsupervised(directory, names):
            click.echo(f"{name} is drained")


@click.command()
@click.option("--rolling", is_flag=True, help="Restart one after the other; each must be ready before the next.")
@_on_devices
def restart(state_dir: Path | None, names: list[str], rolling: bool) -> None:
    """Drain daemons and start them again."""
    directory = resolve_state_directory(state_dir)
    if ask(directory.control, {"do": "restart", "names": names, "rolling": rolling}, click.echo) is None:
        raise click.ClickException(f"no supervisor looks after {directory.path}; `nnrt-device up` starts one")


def resolve_state_directory(state_dir: Path | None) -> StateDirectory:
    """Return the state directory at the path, or else this user's default. Raises InvalidPath without a default."""
    return StateDirectory((state_dir or default_state_directory()).absolute())


def _print_specs(specs: Sequence[DeviceSpec]) -> None:
    table = new_table()
    for column in ("name", "address", "command"):
        table.add_column(column, no_wrap=column != "command")
    for spec in specs:
        about = [
            *(f"{name}={value}" for name, value in spec.environment),
            *(["nice", "-n", str(spec.nice)] if spec.nice is not None else []),
            *(["taskset", "-c", ",".join(map(str, spec.cpus))] if spec.cpus else []),
            "nnrt-device",
            "serve",
            *spec.command()[4:],
        ]
        table.add_row(spec.name, " ".join(spec.listen), escape_for_terminal(shlex.join(about)))
    print_table(table)


def _print_ready(records: Sequence[Record], began: float) -> None:
    table = new_table()
    for column in ("name", "state", "pid", "address"):
        table.add_column(column, no_wrap=True)
    table.add_column("why")
    for record in records:
        pid = str(record.process.pid) if record.process else ""
        addresses = escape_for_terminal(" ".join(record.addresses))
        table.add_row(record.spec.name, record.state.value, pid, addresses, escape_for_terminal(record.why))
    ready = sum(record.state is State.READY for record in records)
    count = f"{ready} devices" if ready == len(records) else f"{ready} of {len(records)} devices"
    with suppress(BrokenPipeError):  # The reader has closed the pipe.
        print_table(table)
        click.echo(f"ready: {count} in {time.monotonic() - began:.1f} s")


def _print_ends_of_logs(directory: StateDirectory) -> None:
    for path in sorted(directory.log_path("x").parent.glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        click.echo("\n".join([f"the end of the log of {path.stem}:", *map(escape_for_terminal, lines)]), err=True)


def _duration(seconds: float) -> str:
    return str(timedelta(seconds=int(seconds)))
