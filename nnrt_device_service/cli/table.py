"""Tables that the commands print."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table

_WIDE = 240


def new_table() -> Table:
    return Table(box=box.SIMPLE)


def print_table(table: Table) -> None:
    """Into a pipe or file goes the whole table, however wide. Square brackets in it are no markup."""
    Console(width=None if sys.stdout.isatty() else _WIDE, markup=False).print(table)
