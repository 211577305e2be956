"""Comparisons, logic, and choices by a condition."""

from collections.abc import Iterator

from .row import Row


def rows() -> Iterator[Row]:
    yield from ()
