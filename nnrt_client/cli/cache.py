"""Command `nnrt cache`: list, verify and clear the cache of compiled models."""

from collections.abc import Callable
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any

import click

from nnrt_client.cli.options import json_option
from nnrt_client.cli.printing import format_bytes, print_json, print_line, print_table, step_bar
from nnrt_client.model_session.known_file import Records
from nnrt_client.model_session.model_cache import cache_directory
from nnrt_hdi.files.store_contents import describe, remove, used_bytes
from nnrt_hdi.files.store_directory import SHOWN_KEY, Entry, StoreDirectory


@click.group()
def cache() -> None:
    """List, verify or clear the cache of compiled models, even while it is in use.

    The user's cache is nnrt/models in XDG_CACHE_HOME and takes at most NNRT_CACHE_BYTES.
    """


def _cache_command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command that calls `function` with a store, its models (last used first) and the other options."""

    @json_option
    @click.option("--directory", type=click.Path(path_type=Path), help="Another cache directory than the user's.")
    @wraps(function)
    def command(directory: Path | None, **options: Any) -> None:
        store = StoreDirectory(directory or cache_directory())
        if directory is None and not store.path.exists():  # No model has been cached yet.
            function(store, [], **options)
            return
        store.require_store()
        function(store, store.entries()[::-1], **options)

    return command


@cache.command()
@_cache_command
def ls(directory: StoreDirectory, entries: list[Entry], as_json: bool) -> None:
    """List the models, last used first."""
    rows = [describe(entry) for entry in entries]
    if as_json:
        print_json(rows)
        return
    columns = ("model", "device", "inputs", "outputs", "size", "last use")
    print_table(columns, [_cells(row) for row in rows], whole=("model", "size"), right=("size",))
    print_line(f"{directory.path}: models: {len(entries)}, {format_bytes(used_bytes(entries))}")


@cache.command()
@_cache_command
def verify(directory: StoreDirectory, entries: list[Entry], as_json: bool) -> None:
    """Read every model and list the damaged ones. Removes nothing.

    Exit code 1 if a model is damaged.
    """
    damaged = [{"file": str(entry.path), "damage": damage} for entry, damage in _check_models(entries) if damage]
    if as_json:
        print_json({"models": len(entries), "damaged": damaged})
    else:
        for row in damaged:
            print_line(f"{row['file']}: {row['damage']}")
        print_line(f"models: {len(entries)}, damaged: {len(damaged)}")
    if damaged:
        raise SystemExit(1)


@cache.command()
@click.option("--damaged", is_flag=True, help="Only what `verify` lists.")
@_cache_command
def clear(directory: StoreDirectory, entries: list[Entry], as_json: bool, damaged: bool) -> None:
    """Remove all models, and what is known of model files. Sessions that use a removed model keep working."""
    if not damaged and directory.path.exists():
        Records(directory.path).remove()
    if damaged:
        entries = [entry for entry, damage in _check_models(entries) if damage]
    removed, size_bytes = remove(directory, entries, are_damaged=damaged) if entries else (0, 0)
    if as_json:
        print_json({"removed": removed, "size_bytes": size_bytes})
    else:
        print_line(f"models removed: {removed}, {format_bytes(size_bytes)}")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    about = ("damaged: " + row["damage"], "", "")
    if not row["damage"]:
        about = (row["device"], ", ".join(row["inputs"]), ", ".join(row["outputs"]))
    last_use = datetime.fromisoformat(row["last_use"]).astimezone()
    return row["key"][:SHOWN_KEY], *about, format_bytes(row["size_bytes"]), f"{last_use:%Y-%m-%d %H:%M}"


def _check_models(entries: list[Entry]) -> list[tuple[Entry, str]]:
    """Return each entry with its damage, which is empty for an intact entry."""
    found = []
    with step_bar(len(entries)) as steps:
        for entry in entries:
            steps.begin(entry.key[:SHOWN_KEY])
            found.append((entry, entry.damage()))
            steps.end()
    return found
