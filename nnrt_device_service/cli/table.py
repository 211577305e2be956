"""Tables of the commands' output."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table

_WIDE = 240


def new_table() -> Table:
    return Table(box=box.SIMPLE)


def print_table(table: Table) -> None:
    """Print a table, wide enough for all columns if the output is no terminal. Square brackets are no markup."""
    Console(width=None if sys.stdout.isatty() else _WIDE, markup=False).print(table)
