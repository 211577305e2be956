"""Tables of measurements: printed, and written as Markdown."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from rich.console import Console
from rich.table import Table


@dataclass
class Report:
    """One table with what it says about itself."""

    title: str
    about: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        self.rows.append(cells)

    def show(self) -> None:
        table = Table(*self.columns, title=self.title)
        for row in self.rows:
            table.add_row(*row)
        Console().print(table)

    def markdown(self) -> str:
        return "\n".join([f"## {self.title}", "", self.about, "", self.table()])

    def table(self) -> str:
        """Give the rows alone, as Markdown."""
        lines = [_line(self.columns), _line(["---"] * len(self.columns))]
        return "\n".join([*lines, *map(_line, self.rows), ""])


def machine() -> str:
    """Describe the machine that the figures were taken on."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()},"
        f" grpcio {version('grpcio')}, protobuf {version('protobuf')}, numpy {version('numpy')}"
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
