"""Elements picked or placed by their index."""

from collections.abc import Iterator

from .row import Row


def rows() -> Iterator[Row]:
    yield from ()
