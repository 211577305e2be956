"""Command `nnrt-device cache`: lists, verifies and removes the models of a store."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.filesize import pick_unit_and_suffix
from rich.progress import track

from nnrt_device_service.cli.table import new_table, print_table
from nnrt_device_service.settings import setting_option, variable_of
from nnrt_hdi.errors import InvalidPath
from nnrt_hdi.files.store_contents import describe, remove
from nnrt_hdi.files.store_directory import SHOWN_KEY, Entry, StoreDirectory
from nnrt_hdi.text import escape_for_terminal

_UNITS = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]


@click.group()
def cache() -> None:
    """List, verify or remove the models in a daemon's store. The daemon may be running."""


def _store_command(function: Callable[..., None]) -> Callable[..., None]:
    """Make a command that gets the StoreDirectory of --store-dir, and whether to print JSON."""

    @setting_option("store_dir")
    @click.option("--json", "as_json", is_flag=True, help="Print JSON.")
    @wraps(function)
    def command(store_dir: str, **options: Any) -> None:
        if not store_dir:
            raise click.UsageError(f"give --store-dir, or set {variable_of('store_dir')}")
        directory = StoreDirectory(Path(store_dir))
        with _click_errors(store_dir):
            directory.require_store()
            function(directory, **options)

    return command


@cache.command()
@_store_command
def ls(directory: StoreDirectory, as_json: bool) -> None:
    """List the models, most recently used first."""
    rows = [describe(entry) for entry in reversed(directory.entries())]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    table = new_table()
    for column in ("model", "backend", "device", "inputs", "outputs", "size", "last use"):
        table.add_column(column, no_wrap=column in ("model", "size"), justify="right" if column == "size" else "left")
    for row in rows:
        about = [row["key"][:SHOWN_KEY]]
        if row["damage"]:
            about += ["damaged: " + row["damage"], "", "", ""]
        else:
            about += [row["backend"], row["device"], ", ".join(row["inputs"]), ", ".join(row["outputs"])]
        last_use = datetime.fromisoformat(row["last_use"]).astimezone()
        table.add_row(*map(escape_for_terminal, about), _size(row["size_bytes"]), f"{last_use:%Y-%m-%d %H:%M:%S}")
    print_table(table)


@cache.command()
@_store_command
def verify(directory: StoreDirectory, as_json: bool) -> None:
    """Read all models and list the damaged ones. Removes nothing.

    Exit code 1 if a model is damaged.
    """
    entries = directory.entries()
    damaged = [{"file": str(entry.path), "damage": damage} for entry, damage in _damages(entries) if damage]
    if as_json:
        click.echo(json.dumps({"models": len(entries), "damaged": damaged}, indent=2))
    else:
        for row in damaged:
            click.echo(f"{row['file']}: {row['damage']}")
        click.echo(f"models: {len(entries)}, damaged: {len(damaged)}")
    if damaged:
        raise SystemExit(1)


@cache.command()
@click.option("--damaged", is_flag=True, help="Only the models that `verify` lists.")
@_store_command
def clear(directory: StoreDirectory, as_json: bool, damaged: bool) -> None:
    """Remove all models. Daemons can still use models that they have loaded."""
    entries = directory.entries()
    if damaged:
        entries = [entry for entry, damage in _damages(entries) if damage]
    removed, size_bytes = remove(directory, entries, are_damaged=damaged)
    if as_json:
        click.echo(json.dumps({"removed": removed, "size_bytes": size_bytes}))
    else:
        click.echo(f"models removed: {removed}, {_size(size_bytes)}")


def _damages(entries: list[Entry]) -> Iterator[tuple[Entry, str]]:
    """Yield each entry with its damage, or an empty string. Shows a progress bar on a terminal."""
    is_watched = sys.stderr.isatty()
    console = Console(stderr=True, quiet=not is_watched)  # Some versions of rich end a disabled bar's line.
    for entry in track(entries, "checking", console=console, transient=True, disable=not is_watched):
        yield entry, entry.damage()


def _size(size_bytes: int) -> str:
    unit, suffix = pick_unit_and_suffix(size_bytes, _UNITS, 1024)
    return f"{size_bytes} bytes" if unit == 1 else f"{size_bytes / unit:.1f} {suffix}"


@contextmanager
def _click_errors(store_dir: str) -> Iterator[None]:
    try:
        yield
    except InvalidPath as error:
        raise click.ClickException(f"--store-dir {store_dir!r}: {error}") from error
    except OSError as error:
        raise click.ClickException(str(error)) from error
