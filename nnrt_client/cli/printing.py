"""Output of the commands, which escapes texts of devices, models and errors: they must not control the terminal."""

import json
import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich import box
from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from nnrt_client.build.build_task import Progress as BuildProgress
from nnrt_client.tensors.tensor_desc import TensorDesc
from nnrt_hdi.tensor import TensorSpec
from nnrt_hdi.text import escape_for_terminal

# Width of tables in pipes and files, which are never cut.
_WIDE = 10_000


def one_line(message: str) -> str:
    """Escape a message for a terminal, and join its lines: with a space after the first, with "; " between others."""
    first, *listed = message.split("\n")
    return escape_for_terminal(f"{first} {'; '.join(line.strip() for line in listed)}".rstrip())


class OneLineFormatter(logging.Formatter):
    """Formatter that prints each log record on one line."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


def print_line(text: str) -> None:
    """Print a text as one line, escaped."""
    click.echo(escape_for_terminal(text))


def print_json(document: object) -> None:
    """Print the document of --json, in which infinite numbers and NaN become null."""
    click.echo(json.dumps(replace_non_finite(document), indent=2, allow_nan=False))


def print_json_line(document: object) -> None:
    """Print one of many documents of --json, on a line of its own."""
    click.echo(json.dumps(replace_non_finite(document), allow_nan=False))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, whole: Sequence[str] = (), right: Sequence[str] = ()
) -> None:
    """Print a table; `whole` columns are never broken, `right` columns are right-aligned."""
    _console().print(_table(columns, rows, whole, right))


def print_records(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table if it fits the terminal; otherwise each row as a block with one line per column."""
    table, console = _table(columns, rows), _console()
    if console.measure(table, options=console.options.update(max_width=_WIDE)).maximum <= console.width:
        console.print(table)
        return
    width = max(map(len, columns))
    for row in rows:
        click.echo()
        for column, cell in zip(columns, row, strict=True):
            print_line(f"  {column:<{width}}   {cell}")


def print_page(page: RenderableType) -> None:
    """Print a page that is built from rich's renderables."""
    _console().print(page)


@contextmanager
def live() -> Iterator[Callable[[RenderableType], None]]:
    """Yield a function that draws a page over the previous one."""
    with Live(console=_console(), auto_refresh=False) as shown:
        yield lambda page: shown.update(page, refresh=True)


@contextmanager
def live_table(columns: Sequence[str]) -> Iterator[Callable[[Sequence[Sequence[object]]], None]]:
    """Yield a function that draws the rows of a table over the previous ones."""
    with live() as draw:
        yield lambda rows: draw(_table(columns, rows))


def _table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], whole: Sequence[str] = (), right: Sequence[str] = ()
) -> Table:
    table = Table(box=box.SIMPLE)
    for column in columns:
        table.add_column(
            column, no_wrap=column in whole, justify="right" if column in right else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(escape_for_terminal(str(cell))) for cell in row))
    return table


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)


@contextmanager
def build_bar(what: str = "") -> Iterator[BuildProgress]:
    """Show the progress of a build as a bar, if standard error is a terminal."""
    with _bars(TextColumn("{task.percentage:>3.0f}%")) as bars:
        bar = bars.add_task("", total=1.0)

        def advance(stage: str, fraction: float) -> None:
            bars.update(bar, description=escape_for_terminal(f"{what} {stage}".strip()), completed=fraction)

        yield advance


@contextmanager
def step_bar(total: int) -> Iterator["Steps"]:
    """Show the progress of `total` steps as a bar, if standard error is a terminal."""
    with _bars(MofNCompleteColumn()) as bars:
        yield Steps(bars, bars.add_task("", total=total))


class Steps:
    """Progress bar that advances step by step."""

    def __init__(self, bars: Progress, bar: TaskID) -> None:
        self._bars = bars
        self._bar = bar

    def begin(self, step: str) -> None:
        """Show the name of the step that begins."""
        self._bars.update(self._bar, description=step)

    def end(self) -> None:
        """Advance the bar by one step."""
        self._bars.advance(self._bar)


def _bars(column: Any) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        column,
        # Quiet, as some versions of rich print a newline for a disabled bar.
        console=Console(stderr=True, quiet=not sys.stderr.isatty()),
        transient=True,
        disable=not sys.stderr.isatty(),
    )


def format_bytes(count: float) -> str:
    """Return a size with its unit, such as 1.5 MiB."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def escaped_text(text: str) -> Text:
    """Return a text for a page of rich, escaped."""
    return Text(escape_for_terminal(text))


def rate_text(per_s: float | None, style: str = "") -> Text:
    """Return a number per second, in a style unless it is 0; `-` for None."""
    if per_s is None:
        return Text("-")
    return Text(f"{per_s:,.0f}" if per_s >= 10 or not per_s else f"{per_s:.1f}", style if per_s else "")


def duration_text(seconds: float | None) -> Text:
    """Return a short time in the unit that fits it; `-` for None."""
    if seconds is None:
        return Text("-")
    if seconds < 1e-3:
        return Text(f"{seconds * 1e6:.0f} µs")
    return Text(f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s")


def describe_tensor(tensor: TensorSpec | TensorDesc) -> dict[str, Any]:
    """Return a tensor's description as --json prints it; -1 is a dimension that varies."""
    return {
        "name": tensor.name,
        "data_type": tensor.data_type.name,
        "shape": list(tensor.shape or ()),
        "format": tensor.format.name,
    }


def replace_non_finite(value: Any) -> Any:
    """Return the document with null in place of infinite numbers and NaN, which JSON doesn't have."""
    if isinstance(value, dict):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
