"""Tables of measurements: printed, and written as Markdown."""

import os
import platform
import statistics
from collections.abc import Iterable, Sequence
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


def pair_cells(
    pairs: Iterable[tuple[float, float]], ratios: str = ".2f", scale: float = 1
) -> tuple[str, str, str, str]:
    """Return both figures of the round with the median ratio, this ratio of the second to the first, and the quartiles
    of the rounds' ratios.

    Medians of each side would be of different rounds, and their quotient none of the ratios that were measured.
    """
    rounds = sorted(pairs, key=lambda pair: pair[1] / pair[0])
    first, second = rounds[(len(rounds) - 1) // 2]
    low, _, high = statistics.quantiles(second / first for first, second in rounds)
    sides = _figure(first * scale), _figure(second * scale)
    return *sides, f"{second / first:{ratios}}", f"{low:{ratios}}..{high:{ratios}}"


def machine() -> str:
    """Describe the machine that the figures were taken on."""
    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()},"
        f" grpcio {version('grpcio')}, protobuf {version('protobuf')}, numpy {version('numpy')}"
    )


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _figure(number: float) -> str:
    """Write three digits or more: a reader who divides two such figures gets their ratio."""
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"
